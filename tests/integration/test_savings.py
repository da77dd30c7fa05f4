"""`gateway savings --replay`: recorded sessions through the real pipeline, without a network (guarantee §13.12)."""

import csv
import io
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import main
from gateway.operations import parser
from tests.support.documents import prose

Json = dict[str, Any]
PRICES = {
    "input_cost_per_token": 3e-06,
    "output_cost_per_token": 15e-06,
    "cache_read_input_token_cost": 3e-07,
    "cache_creation_input_token_cost": 3.75e-06,
}
STEPS = 24


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with prices, and no way out of this process."""
    facts = {"max_input_tokens": 60_000, "max_output_tokens": 2000, "tokenizer": "o200k_base", **PRICES}
    params = {"model": "anthropic/claude-x", "api_key": "sk-ant"}
    unpriced = {"model_name": "unpriced", "litellm_params": {"model": "openai/nobodys"}}
    models = [{"model_name": "claude", "litellm_params": params, "model_info": facts}, unpriced]
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_list": models, "context": {"planning": "always"}}))
    monkeypatch.setenv("GATEWAY_CONFIG", str(file))
    monkeypatch.chdir(tmp_path)

    def refused(*_: Any) -> None:
        raise AssertionError("nothing is asked over a network")

    monkeypatch.setattr(socket.socket, "connect", refused)


def session(words: int = 300, steps: int = STEPS) -> list[Json]:
    """Requests of an agent that reads much, and at the end edits what it read first."""
    messages: list[Json] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Mend the lamps."}]
    bodies: list[Json] = []
    for n in range(steps):
        arguments = {"path": f"page{n}.txt"}
        name = "read"
        if n == steps - 1:
            name, arguments = "edit", {"old_string": prose(3, words)[700:1300], "new_string": "mended"}
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"c{n}", "type": "function", "function": function}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        at = 1000 + 20 * n + (1000 if n > steps - 5 else 0)
        bodies.append({"messages": list(messages), "answer": answer, "timestamp": at, "session": "agent"})
        messages += [answer, {"role": "tool", "tool_call_id": f"c{n}", "content": prose(n, words)}]
    return bodies


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "recorded"
    made.mkdir()
    (made / "agent.jsonl").write_text("\n".join(map(json.dumps, session())))
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    (made / "talk.json").write_text(json.dumps(talk))
    (made / "notes.json").write_text('{"name": "notes"}')
    return made


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["savings", *arguments])
    told = capsys.readouterr()
    return status, told.out, told.err


@pytest.mark.in_turn("stored")
@pytest.mark.parametrize("stored", [True, False])
def test_s13_12_what_each_setting_would_have_cost(
    folder: Path, capsys: pytest.CaptureFixture[str], stored: bool
) -> None:
    """Without a budget each session costs what it costs directly, to the digit; with one fewer tokens go up, breaks are
    counted where the prompt had to be written anew, and edits whose text is gone. The dearest stands in front."""
    more = () if stored else ("--unstored",)
    options = ("--replay", str(folder), "--max-input-tokens", "none,6000", "--json", *more)
    status, out, err = run(capsys, *options)
    assert status == 0
    assert "left out: notes.json is no transcript" in err
    told = json.loads(out)
    assert (told["object"], told["model"]) == ("savings.replay", "claude")
    found = {(each["session"], each["setting"].partition(",")[0]): each for each in told["sessions"]}
    free, tight = found["agent", "whole window"], found["agent", "6000 tokens"]
    assert free["steps"] == tight["steps"] == STEPS
    assert free["direct_cost"] == free["gateway_cost"] == tight["direct_cost"] > 0
    assert (free["breaks"], free["cold_breaks"], free["missing"], free["refused"]) == (0, 0, 0, 0)
    assert tight["gateway_cost"] < tight["direct_cost"]
    assert 0 < tight["breaks"] < STEPS / 2
    assert (free["quoted"], tight["quoted"], tight["missing"]) == (1, 1, 1)
    assert [each["ratio"] for each in told["sessions"]] == sorted(
        (each["ratio"] for each in told["sessions"]), reverse=True
    )
    totals = {each["setting"].partition(",")[0]: each for each in told["totals"]}
    assert totals["6000 tokens"]["gateway_cost"] == pytest.approx(
        sum(found[name, "6000 tokens"]["gateway_cost"] for name in ("agent", "talk.json")), abs=1e-12
    )
    assert (totals["whole window"]["sessions"], totals["whole window"]["dearer"]) == (2, 0)
    assert run(capsys, *options)[1] == out, "the same each time"
    check_meter(told)


def test_s13_12_answers_that_a_fork_has_copied_count_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Claude Code copies a session that it forks or resumes to another file, with other ids of session and lines."""
    (tmp_path / "recorded").mkdir()

    def write(name: str, *answers: str) -> None:
        lines: list[Json] = []
        for n, text in enumerate(answers):
            asked = {"role": "user", "content": f"Question {n}"}
            answer = {"role": "assistant", "id": f"msg_{text}", "content": [{"type": "text", "text": text}]}
            lines += [{"type": "user", "message": asked}, {"type": "assistant", "message": answer}]
        named = ({**line, "sessionId": name, "uuid": f"{name}{n}"} for n, line in enumerate(lines))
        (tmp_path / "recorded" / name).write_text("\n".join(map(json.dumps, named)))

    write("a.jsonl", "one", "two")
    write("fork.jsonl", "one", "two", "three")
    write("same.jsonl", "one", "two")
    _, out, err = run(capsys, "--replay", "recorded", "--max-input-tokens", "none", "--json")
    told = json.loads(out)
    assert {each["session"]: each["steps"] for each in told["sessions"]} == {"a.jsonl": 2, "fork.jsonl": 1}
    assert err.splitlines()[:2] == [
        f"left out: {name} 2 answers that another file has, too" for name in ("fork.jsonl", "same.jsonl")
    ]


def test_s13_12_lines_that_cannot_be_read_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their session is cheaper than the real one was. The last line of a session that still runs is not among them."""
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    first, second = map(json.dumps, talk)
    (tmp_path / "a.jsonl").write_text("\n".join([first, first[:9], "", second, "\0" * 9, second[:9]]))
    _, _, err = run(capsys, "--replay", "a.jsonl", "--max-input-tokens", "none", "--json")
    assert err.splitlines()[:1] == ["left out: a.jsonl 2 lines that are no JSON"]


def test_s13_12_a_name_that_no_folder_can_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--replay", "a" * 5000) == (2, "", "--replay: File name too long\n")


@pytest.mark.chaos
def test_s13_12_a_loss_stands_in_front(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A window that is so small that each step rewrites it costs more than it saves, and that is shown first; tables,
    JSON and CSV say the same."""
    options = ("--replay", str(folder / "agent.jsonl"), "--max-input-tokens", "6000,1500")
    told = json.loads(run(capsys, *options, "--json")[1])
    rows = list(csv.DictReader(io.StringIO(run(capsys, *options, "--csv")[1])))
    assert [each["setting"] for each in rows] == [each["setting"] for each in told["sessions"]]
    costs = [each["gateway_cost"] for each in told["sessions"]]
    assert [float(each["gateway_cost"]) for each in rows] == pytest.approx(costs)
    table = run(capsys, *options)[1].splitlines()
    assert [line.split("  ")[0] for line in table[1:3]] == [each["setting"] for each in told["totals"]]
    assert table[5].startswith("agent")
    assert f"{told['sessions'][0]['gateway_cost']:.4f}" in table[5]
    assert told["sessions"][0]["ratio"] >= told["sessions"][-1]["ratio"]
    assert told["sessions"][0]["gateway_cost"] > told["sessions"][0]["direct_cost"]
    check_meter(told)


def check_meter(told: Json) -> None:
    """What bills say was saved net is what the replay finds, within 2 % of the direct bill, sign included."""
    for each in told["sessions"]:
        saved = each["direct_cost"] - each["gateway_cost"]
        assert each["metered_saving"] == pytest.approx(saved, abs=0.02 * each["direct_cost"]), each
        if abs(saved) > 0.02 * each["direct_cost"]:
            assert (each["metered_saving"] > 0) == (saved > 0), each


@pytest.mark.chaos
def test_s13_12_modes_of_economy_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each with each ceiling; a pass is free where the recorded times say that the cache was cold."""
    options = ("--replay", str(folder), "--max-input-tokens", "none,6000", "--economy", "off,auto", "--json")
    told = json.loads(run(capsys, *options)[1])
    totals = {each["setting"]: each for each in told["totals"]}
    windows, modes = ("whole window", "6000 tokens"), ("off", "auto")
    assert totals.keys() == {f"{window}, economy {mode}" for window in windows for mode in modes}
    off, auto = totals["whole window, economy off"], totals["whole window, economy auto"]
    assert off["gateway_cost"] == off["direct_cost"]
    assert auto["gateway_cost"] < off["gateway_cost"]
    assert (auto["dearer"], auto["breaks"], auto["cold_breaks"]) == (0, 0, 1)
    check_meter({"sessions": [each for each in told["sessions"] if each["setting"].endswith("auto")]})


def test_s13_12_a_session_that_needs_the_gateway_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(map(json.dumps, session(9000, 8))))
    status, out, err = run(capsys, "--replay", str(path))
    assert (status, out) == (1, "")
    assert "left out: agent has a request of" in err
    assert "no session was played" in err


def test_s13_12_windows_may_be_as_large_as_models_have_them() -> None:
    options = parser().parse_args(["savings", "--max-input-tokens", "none,200000,1000000"])
    assert options.max_input_tokens == [None, 200_000, 1_000_000]


def test_s13_12_options_that_cannot_be_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--replay", str(folder / "none"))[0] == 2
    status, _, err = run(capsys, "--replay", str(folder), "--model", "unpriced")
    assert (status, "no prices are known of 'unpriced'" in err) == (2, True)
    for wrong in (("--max-input-tokens", "many"), ("--economy", "much"), ("--cache-lifetime", "2m")):
        with pytest.raises(SystemExit):
            main(["savings", "--replay", str(folder), *wrong])
    capsys.readouterr()
