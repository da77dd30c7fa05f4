"""Prompt profiles: the system message that a conversation's mode needs (guarantee §11.7)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.answers import Json, user
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.team import Team

MODES = {name: f"How to {name}. " + "More. " * 20 for name in ("creation", "search", "modification", "analysis")}
PROFILES: Json = {
    "core": "You keep lamps.",
    "modes": {"general": "Be kind.", **MODES},
    "tools": "You have tools.",
    "error_handling": "Say what failed.",
}


profiled = shared_gateway({"prompt_profiles": PROFILES}, on_each_storage=True)


@pytest.fixture
def team(profiled: GatewayProcess, upstream: MockUpstream) -> Iterator[Team]:
    found = Team(profiled, upstream)
    with found.client:
        yield found


def system(mode: str) -> Json:
    guidance = PROFILES["modes"][mode].strip()
    return {"role": "system", "content": f"You keep lamps.\n\n{guidance}\n\nYou have tools.\n\nSay what failed."}


def asked(team: Team, *messages: Json, **fields: Any) -> tuple[Json, Json]:
    """The first message that was forwarded, and what the bill says of the profile."""
    body = {"model": "gpt-4o", "messages": list(messages), "conversation": team.conversation, **fields}
    answer = team.post("/chat/completions", body).json()
    team.conversation = answer.get("conversation", {}).get("id", team.conversation)
    return team.sent[0], answer["response_metadata"]["context_utilization"].get("profile")


def test_s11_7_the_mode_is_that_of_the_message_and_stays(team: Team) -> None:
    """§11.7: what a message calls for; then the mode stays until another message calls for another."""
    own = {"role": "system", "content": "House rules."}
    first, told = asked(team, own, user("Hello there"))
    assert first == system("general")
    assert team.sent[1:] == [own, user("Hello there")]
    assert (told["mode"], told["source"]) == ("general", "default")
    first, told = asked(team, user("Please create a lamp"))
    assert (first, told["mode"], told["source"]) == (system("creation"), "creation", "message")
    assert 0 < told["tokens"] < told["saved_tokens"]
    first, told = asked(team, user("Thank you"))
    assert (first, told["mode"], told["source"]) == (system("creation"), "creation", "conversation")
    first, told = asked(team, user("Now rename it"))
    assert told["mode"] == "modification"
    items = [item["content"][0]["text"] for item in team.items()]
    assert items[0] == "House rules."
    assert not any("You keep lamps" in text for text in items)


def test_s11_7_each_step_of_a_turn_has_one_mode(team: Team) -> None:
    """§11.7, §4 I7: tools of the turn itself change nothing; those of the turn before count where the words say
    nothing."""
    tools = [{"type": "function", "function": {"name": "search_lamps", "parameters": {"type": "object"}}}]
    call = {"id": "call_1", "type": "function", "function": {"name": "search_lamps", "arguments": "{}"}}
    team.upstream.reply(message={"role": "assistant", "content": None, "tool_calls": [call]})
    first, told = asked(team, user("Hello"), tools=tools)
    assert told["mode"] == "general"
    step, told = asked(team, {"role": "tool", "tool_call_id": "call_1", "content": "a lamp"}, tools=tools)
    assert step == first
    _, told = asked(team, user("And then?"))
    assert (told["mode"], told["source"]) == ("search", "tools")


def test_s11_7_a_request_pins_its_mode_or_wants_none(team: Team) -> None:
    """§11.7: `context.profile`; mode `off` sends nothing of it, either."""
    first, told = asked(team, user("Create a lamp"), context={"profile": "analysis"})
    assert (first, told["source"]) == (system("analysis"), "request")
    assert asked(team, user("Create a lamp"), context={"profile": "off"})[1] is None
    assert all(message["role"] != "system" for message in team.sent)
    assert asked(team, user("Create a lamp"), context={"mode": "off"})[0]["role"] == "user"
    body = {"model": "gpt-4o", "messages": [user("Hi")], "context": {"profile": "poetry"}}
    response = team.post("/chat/completions", body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "context.profile")


def test_s11_7_agents_read_it_in_front(team: Team) -> None:
    """§11.7: before the instruction of an agent."""
    agent = {"id": "max", "type": "claude-code", "instruction": "Be brief."}
    first, _ = asked(team, user("Create a lamp"), agent=agent)
    own = {"role": "system", "content": "Be brief."}
    assert (first, team.sent[1:]) == (system("creation"), [own, user("[MESSAGE]\nCreate a lamp")])


def test_s11_7_what_is_not_stored_is_the_same_in_each_request(team: Team) -> None:
    """§11.7, §2.5, §4 I7: with `store: false` the mode comes from what was sent alone, and stays as well."""
    sent = [user("Create a lamp"), {"role": "assistant", "content": "Done."}, user("Thanks")]
    for _ in range(2):
        first, told = asked(team, *sent, store=False)
        assert (first, told["source"]) == (system("creation"), "conversation")


def test_s11_7_a_branch_keeps_its_own_mode(team: Team) -> None:
    """§11.7, §4 I7: who edits an old message is not sent the mode of what was said after it."""
    said = [user("Create a lamp"), {"role": "assistant", "content": ""}]
    for number, words in enumerate(("Thanks", "Find the lamp")):
        asked(team, *said[: 2 * number + 1])
        said[2 * number + 1]["content"] = team.items()[-1]["content"][0]["text"]
        said += [user(words), {"role": "assistant", "content": ""}]
    first, _ = asked(team, *said[:5])
    assert first == system("search")
    first, told = asked(team, *said[:2], user("Thanks a lot"))
    assert (first, told["source"]) == (system("creation"), "conversation")
