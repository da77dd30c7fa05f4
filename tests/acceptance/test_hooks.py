"""Hooks and assemblers of third parties, as installed packages have them (guarantee §11)."""

import json
import textwrap
from pathlib import Path

import pytest

from tests.support.answers import Json, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until

PACKAGE = """
    import json, os, time
    from gateway.models.agents import AssemblerOutput  # as packages for 0.1 do

    def note(event):
        with open(os.environ["HOOKED"], "a") as file:
            file.write(json.dumps(event, default=str) + "\\n")

    def slow(event):
        time.sleep(1)

    def broken(event):
        event["message"].clear()
        event.clear()
        raise SystemExit("not today")

    def shout(given):
        return AssemblerOutput(given.current_message.upper(), system_flag="LOUD")

    def fail(given):
        raise RuntimeError("not today")
"""
BUDGETS = {"limits": {"users": {"spender": {"budgets": [{"usd": "0.000001", "period": "day", "hard": False}]}}}}
ENTRY_POINTS = """
    [context_gateway.hooks]
    message_added.broken = third_party:broken
    message_added.note = third_party:note
    team_task_changed = third_party:note
    request_settled.slow = third_party:slow
    request_settled.note = third_party:note
    budget_exceeded = third_party:note
    no_such_event = third_party:note
    message_added.missing = third_party:missing

    [context_gateway.assemblers]
    shouter = third_party:shout
    failing = third_party:fail
    absent = third_party:absent
"""


@pytest.fixture
def hooked(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture
def gateway(start_gateway: GatewayFactory, tmp_path: Path, hooked: Path) -> GatewayProcess:
    """A process of its own, with a package of a third party on its path."""
    package = tmp_path / "packages"
    info = package / "third_party-1.0.dist-info"
    info.mkdir(parents=True)
    (package / "third_party.py").write_text(textwrap.dedent(PACKAGE))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(ENTRY_POINTS))
    return start_gateway(BUDGETS, {"PYTHONPATH": str(package), "HOOKED": str(hooked)})


def events(hooked: Path, name: str) -> list[Json]:
    found = [json.loads(line) for line in hooked.read_text().splitlines()] if hooked.exists() else []
    return [event for event in found if event["event"] == name]


def test_s11_6_hooks_are_told_and_hold_nobody_up(gateway: GatewayProcess, upstream: MockUpstream, hooked: Path) -> None:
    """§11.6: a hook that is slow, and one that ends in any way, cost the answer nothing, and other hooks only time."""
    with gateway.http("sk-hooks") as client:
        team = client.post("/conversations", json={"team_task": "Ship it."}).json()
        upstream.reply(text="Hello!")
        body = {"model": "gpt-4o", "messages": [user("Hi")], "agent": "max", "conversation": team["id"]}
        answer = client.post("/chat/completions", json=body).json()
        item = {"type": "message", "role": "user", "content": "Bye"}
        added = client.post(f"/conversations/{team['id']}/items", json={"items": [item]}).json()["data"]
        for _ in range(4):
            upstream.reply(text="ok")
            assert client.post("/chat/completions", json={**body, "store": False}).status_code == 200
        assert len(events(hooked, "request_settled")) < 5, "the answers waited for a hook of a second each"
        wait_until(lambda: len(events(hooked, "request_settled")) == 5, "five settled requests")
        items = client.get(f"/conversations/{team['id']}/items?order=asc").json()["data"]
    (changed,) = events(hooked, "team_task_changed")
    assert (changed["conversation_id"], changed["team_task"]) == (team["id"], "Ship it.")
    told = events(hooked, "message_added")
    assert [(each["message"]["content"], each["agent"]) for each in told] == [
        ("Hi", None),
        ("Hello!", "max"),
        ("Bye", None),
    ]
    assert [each["id"] for each in told] == [each["id"] for each in items]
    assert told[2]["id"] == added[0]["id"]
    settled = events(hooked, "request_settled")[0]
    assert (settled["agent"], settled["status"]) == ("max", "complete")
    assert settled["response_metadata"]["request_id"] == answer["response_metadata"]["request_id"]
    log = gateway.log_text()
    assert "hook_failed" in log
    assert "hook_unknown" in log


def test_s13_8_hooks_are_told_of_relayed_calls(gateway: GatewayProcess, hooked: Path) -> None:
    """§13.8: by their bill alone."""
    answer = gateway.post("/embeddings", json={"model": "gpt-4o", "input": "x"}, key="sk-hooks")
    wait_until(lambda: len(events(hooked, "request_settled")) == 1, "the relayed call")
    (told,) = events(hooked, "request_settled")
    assert told["request_id"] == answer.headers["x-request-id"]
    assert (told["response_metadata"]["endpoint"], told["completion_id"]) == ("embeddings", None)


def test_s11_2_assemblers_of_third_parties(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§11.2: they are found by their type; one that fails, or cannot be loaded, costs its wording alone."""
    with gateway.http("sk-types") as client:

        def read(agent_type: str) -> tuple[list[Json], list[str]]:
            agent = {"id": "max", "type": agent_type}
            body = {"model": "gpt-4o", "messages": [user("Hi")], "agent": agent}
            answer = client.post("/chat/completions", json=body).json()
            return upstream.last.body["messages"], answer["response_metadata"]["context_utilization"]["warnings"]

        assert read("shouter") == ([{"role": "system", "content": "LOUD"}, user("HI")], [])
        assert read("failing") == ([user("Hi")], ["agent_assembler_failed"])
        assert read("absent") == ([user("Hi")], ["agent_type_unknown"])


def test_s12_3_a_hook_is_told_once_of_a_budget_that_is_used_up(
    gateway: GatewayProcess, upstream: MockUpstream, hooked: Path
) -> None:
    """Each process tells it once in a period."""
    with gateway.http("sk-hooks") as client:
        body = {"model": "gpt-4o", "messages": [user("Hi")], "user": "spender", "store": False}
        for _ in range(3):
            upstream.reply(text="ok")
            assert client.post("/chat/completions", json=body).status_code == 200
    wait_until(lambda: bool(events(hooked, "budget_exceeded")), "the hook")
    (told,) = events(hooked, "budget_exceeded")
    assert (told["holder"], told["name"], told["period"], told["hard"]) == ("user", "spender", "day", False)
    assert float(told["spent_usd"]) > float(told["budget_usd"]) == 0.000001
    assert told["resets_at"].endswith("T00:00:00+00:00")
