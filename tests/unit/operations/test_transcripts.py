"""Recorded sessions as their clients would have sent them (guarantee §13.12)."""

import codecs
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.core.jsons import Json
from gateway.operations.savings.playing import VerbatimTexts, quoted
from gateway.operations.savings.transcripts import (
    NOT_RECORDED,
    STEP_SECONDS,
    RecordedSession,
    read_sessions,
    transcripts,
)


def said(session: RecordedSession) -> list[list[str]]:
    """What each request has: the first words of a message, or the id of a call."""
    return [[_short(message) for message in step.messages] for step in session.steps]


def _short(message: Json) -> str:
    if message.get("tool_calls"):
        return "+".join(call["id"] for call in message["tool_calls"])
    return f"={message['tool_call_id']}" if message["role"] == "tool" else str(message["content"])


def written(folder: Path, name: str, *lines: Any) -> Path:
    path = folder / name
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines))
    return path


def line(kind: str, content: Any, second: int, **more: Any) -> Json:
    """A line of Claude Code's."""
    message = {"role": kind, "content": content, **({"id": more.pop("of")} if "of" in more else {})}
    at = f"2026-03-01T10:00:{second:02}.500Z"
    return {"type": kind, "message": message, "timestamp": at, "sessionId": "s", "uuid": f"u{second}", **more}


def use(call_id: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": arguments}


def result(call_id: str, text: str) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": text}]}


def test_s13_12_claude_code(tmp_path: Path) -> None:
    """Blocks of one answer are one answer, also where results come between them; thoughts and notes of the client's own
    are left out; a sub-agent is a session of its own; a summary takes the place of all before it."""
    path = written(
        tmp_path,
        "a.jsonl",
        *[{"type": "summary", "summary": "A title", "leafUuid": "u9"}] * 30,
        line("user", "Mend it", 0),
        line("user", "a caveat", 1, isMeta=True),
        line("assistant", [{"type": "thinking", "thinking": "hm", "signature": "x"}], 2, of="m1"),
        line("assistant", [{"type": "text", "text": "Reading."}], 3, of="m1"),
        line("assistant", [use("c1", path="a.py")], 4, of="m1"),
        line("user", [result("c1", "one")], 5),
        line("assistant", [use("c2", path="b.py")], 6, of="m1"),
        line("user", [result("c2", "two"), {"type": "text", "text": "and quickly"}], 7),
        line("user", "Look there", 8, isSidechain=True),
        line("assistant", [{"type": "text", "text": "Nothing there."}], 9, of="m9", isSidechain=True, parentUuid="u8"),
        line("assistant", [use("c3", path="c.py")], 10, of="m2"),
        line("user", "Stop", 11),
        line("assistant", [{"type": "text", "text": "Stopped."}], 12, of="m3"),
        line("user", "This was said so far.", 13, isCompactSummary=True),
        line("user", "Go on", 14),
        line("assistant", [{"type": "text", "text": "Done."}], 15, of="m4"),
        '{"type": "user", "mess',
    )
    main, agent = read_sessions(path, "a.jsonl")
    assert said(main) == [
        ["Mend it"],
        ["Mend it", "c1+c2", "=c1", "=c2", "and quickly"],
        ["Mend it", "c1+c2", "=c1", "=c2", "and quickly", "c3", "=c3", "Stop"],
        ["This was said so far.", "Go on"],
    ]
    assert main.steps[0].answer["content"] == "Reading."
    assert main.steps[2].messages[6]["content"] == NOT_RECORDED
    assert [step.at for step in main.steps] == [0, 8, 10, 13]
    assert [tool["function"]["name"] for tool in main.tools] == ["Read"]
    assert (main.agent, main.name, agent.name) == ("claude-code", "a.jsonl", "a.jsonl:agent-1")
    assert said(agent) == [["Look there"]]


def test_s13_12_claude_code_goes_back(tmp_path: Path) -> None:
    """A prompt after an older line than the last one's goes on from there; calls at once, and lines that are no
    messages, branch without meaning, and what names an unknown line stays where it is."""
    path = written(
        tmp_path,
        "a.jsonl",
        line("user", "Mend it", 0, parentUuid=None),
        line("assistant", [use("c1", path="a.py")], 1, of="m1", parentUuid="u0"),
        line("assistant", [use("c2", path="b.py")], 2, of="m1", parentUuid="u1"),
        line("user", [result("c1", "one")], 3, parentUuid="u1"),
        {"type": "progress", "uuid": "p1", "parentUuid": "u1", "sessionId": "s"},
        line("user", [result("c2", "two")], 4, parentUuid="u2"),
        line("assistant", [{"type": "text", "text": "Mended."}], 5, of="m2", parentUuid="u4"),
        line("user", "Also this", 6, parentUuid="u5"),
        line("assistant", [{"type": "text", "text": "This, too."}], 7, of="m3", parentUuid="u6"),
        {"type": "system", "uuid": "s1", "parentUuid": "u5", "sessionId": "s"},
        line("user", "No, that", 8, parentUuid="s1"),
        line("assistant", [{"type": "text", "text": "That."}], 9, of="m4", parentUuid="u8"),
        line("user", "More of this", 10, parentUuid="u7"),
        line("assistant", [{"type": "text", "text": "More."}], 11, of="m5", parentUuid="u10"),
        line("user", "And", 12, parentUuid="lost"),
        line("assistant", [{"type": "text", "text": "Yes."}], 13, of="m6", parentUuid="u12"),
        line("user", "All anew", 14, parentUuid=None),
        line("assistant", [{"type": "text", "text": "Anew."}], 15, of="m7", parentUuid="u14"),
        {"type": "system", "subtype": "compact_boundary", "uuid": "s2", "parentUuid": None, "sessionId": "s"},
        line("user", "This was said so far.", 16, isCompactSummary=True, parentUuid="s2"),
        line("user", "Go on", 17, parentUuid="u16"),
        line("assistant", [{"type": "text", "text": "On."}], 18, of="m8", parentUuid="u17"),
        line("user", "No, further", 19, parentUuid="u16"),
        line("assistant", [{"type": "text", "text": "Further."}], 20, of="m9", parentUuid="u19"),
    )
    (session,) = read_sessions(path, "a.jsonl")
    begun = ["Mend it", "c1+c2", "=c1", "=c2"]
    this = [*begun, "Mended.", "Also this", "This, too.", "More of this"]
    assert said(session) == [
        ["Mend it"],
        begun,
        this[:6],
        [*begun, "Mended.", "No, that"],
        this,
        [*this, "More.", "And"],
        ["All anew"],
        ["This was said so far.", "Go on"],
        ["This was said so far.", "No, further"],
    ]


def item(second: int, **payload: Any) -> Json:
    return {"timestamp": f"2026-03-01T10:00:{second:02}Z", "type": "response_item", "payload": payload}


def test_s13_12_codex(tmp_path: Path) -> None:
    text = [{"type": "input_text", "text": "Mend it"}]
    patch = "*** Begin Patch\n*** Update File: a.py\n@@ def f\n x = 1\n-y = 2\n+y = 3\n*** End Patch"
    path = written(
        tmp_path,
        "rollout.jsonl",
        {
            "timestamp": "2026-03-01T09:59:00Z",
            "type": "session_meta",
            "payload": {"id": "s", "instructions": "Be good"},
        },
        item(0, type="message", role="developer", content=[{"type": "input_text", "text": "Rules"}]),
        item(0, type="message", role="user", content=text),
        {"timestamp": "2026-03-01T10:00:00Z", "type": "event_msg", "payload": {"type": "token_count"}},
        item(1, type="reasoning", summary=[], encrypted_content="x"),
        item(2, type="function_call", name="shell", arguments='{"command": ["ls"]}', call_id="c1"),
        item(3, type="function_call_output", call_id="c1", output="a.py"),
        item(4, type="message", role="assistant", content=[{"type": "output_text", "text": "Patching."}]),
        item(4, type="custom_tool_call", name="apply_patch", input=patch, call_id="c2"),
        item(5, type="custom_tool_call_output", call_id="c2", output={"content": "ok", "success": True}),
        item(6, type="message", role="assistant", content=[{"type": "output_text", "text": "Done."}]),
        {"type": "compacted", "payload": {"message": "Mended a.py."}},
        item(40, type="message", role="user", content=[{"type": "input_text", "text": "More"}]),
        item(50, type="message", role="assistant", content=[{"type": "output_text", "text": "No."}]),
    )
    (session,) = read_sessions(path, "rollout.jsonl")
    first = ["Be good", "Rules", "Mend it"]
    assert said(session) == [
        first,
        [*first, "c1", "=c1"],
        [*first, "c1", "=c1", "c2", "=c2"],
        ["Be good", "Mended a.py.", "More"],
    ]
    assert session.agent == "codex"
    assert session.steps[1].answer["content"] == "Patching."
    assert quoted(session.steps[1].answer) == ["x = 1\ny = 2"]
    assert [step.at for step in session.steps] == [0, 2, 4, 48]


def test_s13_12_codex_goes_back(tmp_path: Path) -> None:
    """Turns begin with what a person said; so many turns are taken back."""

    def says(second: int, role: str, text: str) -> Json:
        return item(second, type="message", role=role, content=[{"type": "text", "text": text}])

    def back(turns: Any) -> Json:
        return {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": turns}}

    path = written(
        tmp_path,
        "rollout.jsonl",
        {"type": "session_meta", "payload": {"id": "s"}},
        says(0, "user", "<environment_context>here</environment_context>"),
        *(says(2 * turn + role, ("user", "assistant")[role], f"{turn}") for turn in (1, 2, 3) for role in (0, 1)),
        *map(back, (0, 9, None, "2", 2)),
        says(10, "user", "Another"),
        says(11, "assistant", "Yes."),
        back(1),
        says(12, "user", "Last"),
        says(13, "assistant", "Yes."),
    )
    (session,) = read_sessions(path, "rollout.jsonl")
    begun = ["<environment_context>here</environment_context>", "1"]
    assert said(session)[2:] == [
        [*begun, "1", "2", "2", "3"],
        [*begun, "1", "Another"],
        [*begun, "1", "Last"],
    ]


CHAT: list[Json] = [
    {"role": "system", "content": "Be good"},
    {"role": "user", "content": "Mend it"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "assistant", "content": "Done."},
]  # fmt: skip


FORMS = ["list", "lines", "body", "bodies", "list in .jsonl", "lines in .json", "lines with a mark", "lines in .gz"]
FORMS += ["lines in utf-16", "lines in utf-16-le"]


@pytest.mark.parametrize("form", FORMS)
def test_s13_12_openais_messages(tmp_path: Path, form: str) -> None:
    """A list of messages, a line for each, the last request's body, or each request's: the same session."""
    tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
    if form == "list":
        path = written(tmp_path, "a.json", CHAT)
    elif form == "list in .jsonl":
        path = written(tmp_path, "a.jsonl", json.dumps(CHAT, indent=1))
    elif form.startswith("lines"):
        path = written(tmp_path, "a.json" if form == "lines in .json" else "a.jsonl", *CHAT)
        if form == "lines with a mark":
            path.write_bytes(codecs.BOM_UTF8 + path.read_bytes().replace(b"\n", b"\r\n"))
        elif form.startswith("lines in utf"):  # as shells of Windows write it
            path.write_text(path.read_text(), form.removeprefix("lines in "))
        elif form == "lines in .gz":
            path = path.with_suffix(".jsonl.gz")
            path.write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    elif form == "body":
        path = written(tmp_path, "a.json", {"model": "m", "messages": CHAT, "tools": tools})
    else:
        bodies = [{"model": "m", "messages": CHAT[:n], "tools": tools} for n in (2, 4)]
        path = written(tmp_path, "a.jsonl", *bodies)
    (session,) = read_sessions(path, "a")
    assert said(session) == [["Be good", "Mend it"], ["Be good", "Mend it", "c1", "=c1"]]
    assert session.steps[0].answer == CHAT[2]
    assert session.steps[1].answer["content"] == (NOT_RECORDED if form == "bodies" else "Done.")
    assert [step.at for step in session.steps] == [STEP_SECONDS, 2 * STEP_SECONDS]
    assert (session.tools == tools) == (form in ("body", "bodies"))


def test_s13_12_bodies_of_several_sessions_with_times(tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "hi"}]
    answer = {"role": "assistant", "content": "hello"}
    path = written(
        tmp_path,
        "a.jsonl",
        {"session": "one", "messages": asked, "answer": answer, "timestamp": 1000},
        {"session": "two", "messages": asked, "answer": answer, "timestamp": "2026-03-01T10:00:00Z"},
        {"session": "one", "messages": [*asked, answer, *asked], "answer": answer, "timestamp": 1400.5},
    )
    one, two = read_sessions(path, "a")
    assert ([step.at for step in one.steps], len(two.steps)) == ([0, 400.5], 1)
    assert (one.name, two.name) == ("one", "two")


ASKS: Json = {"role": "assistant", "content": None}
ODD: list[Json] = [
    item(1, replacement_history=1) | {"type": "compacted"},
    item(1, replacement_history=True) | {"type": "compacted"},
    ASKS | {"tool_calls": 1},
    ASKS | {"tool_calls": [1, {}]},
    ASKS | {"tool_calls": [{"id": [], "function": {"name": "read"}}]},
    ASKS | {"tool_calls": [{"id": "c", "function": {"name": []}}]},
    {"role": "tool", "content": "x"},
    {"role": "tool", "content": "x", "tool_call_id": []},
    line("user", "hi", 1, isSidechain=True, agentId=[1]),
    {"messages": [{"role": "user", "content": "hi"}], "answer": {"content": {}, "tool_calls": 5}},
]


@pytest.mark.parametrize("given", ODD, ids=str)
def test_s13_12_what_has_an_odd_shape_is_left_out(tmp_path: Path, given: Json) -> None:
    """The rest of its transcript is read."""
    known: list[Json] = CHAT
    if "payload" in given:
        known = [
            item(0, type="message", role=who, content=[{"type": "text", "text": "x"}]) for who in ("user", "assistant")
        ]
    elif "sessionId" in given:
        known = [line("user", "hi", 1), line("assistant", [{"type": "text", "text": "x"}], 2)]
    elif "messages" in given:
        known = [{"messages": CHAT[:2], "answer": CHAT[2]}]
    at = 1 if "messages" in given else 2
    with_odd, without = (
        read_sessions(written(tmp_path, "a.jsonl", *lines), "a") for lines in ([*known[:at], given, *known[at:]], known)
    )
    assert said(with_odd[0])[: len(without[0].steps)] == said(without[0])


def test_s13_12_what_is_no_transcript_says_so(tmp_path: Path) -> None:
    for name, text in {"a.json": "{", "b.jsonl": "x\n1\n", "c.json": '{"a": 1}', "d.jsonl": '{"messages": []}'}.items():
        with pytest.raises(ValueError, match=r"JSON|transcript|answered"):
            read_sessions(written(tmp_path, name, text), name)
    (tmp_path / "deep").mkdir()
    written(tmp_path / "deep", "e.jsonl", "")
    written(tmp_path, "f.txt", "")
    assert [path.name for path in transcripts(tmp_path)] == ["a.json", "b.jsonl", "c.json", "d.jsonl", "e.jsonl"]
    assert transcripts(tmp_path / "f.txt") == [tmp_path / "f.txt"]
    with pytest.raises(ValueError, match="no folder"):
        transcripts(tmp_path / "none")


def test_s13_12_quoted_texts_stand_verbatim_or_not() -> None:
    """By the names that editing tools have, nested too; the numbers of lines do not count."""
    arguments = {"edits": [{"old_string": "x = 1\ny = 2", "new_string": "no"}, {"oldText": "}"}], "path": "a.py"}
    call = {"id": "c", "type": "function", "function": {"name": "edit", "arguments": json.dumps(arguments)}}
    broken = {"id": "d", "type": "function", "function": {"name": "edit", "arguments": "{"}}
    assert quoted({"role": "assistant", "tool_calls": [call, broken]}) == ["x = 1\ny = 2"]
    read = {"role": "tool", "tool_call_id": "c", "content": "   10→x = 1\n   11→y = 2\n"}
    parts = {"role": "user", "content": [{"type": "text", "text": "z\nx = 1\ny = 2\n"}]}
    assert [VerbatimTexts().has([each], "x = 1\ny = 2") for each in (read, parts, {**read, "role": "user"})] == [
        True,
        True,
        False,
    ]
    assert VerbatimTexts().has([{"role": "assistant", "tool_calls": [call]}], "x = 1\ny = 2")
