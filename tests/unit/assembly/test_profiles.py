"""Which mode a conversation has, and what its system message is (guarantee §11.7)."""

from typing import Any

import pytest

from gateway.assembly.profiles import MODES, composed, inferred, monolith
from gateway.config.settings import PromptModes, PromptProfiles

Json = dict[str, Any]
TOLD: Json = {"role": "tool", "tool_call_id": "update_task", "content": "done"}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def used(*tools: str) -> Json:
    calls = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in tools]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@pytest.mark.parametrize(
    ("messages", "before", "found"),
    [
        ([], None, ("general", "default")),
        ([user("Hello")], None, ("general", "default")),
        ([user("Hello")], "search", ("search", "conversation")),
        ([user("CREATE a workflow")], "search", ("creation", "message")),
        ([user("find and list what to update")], None, ("search", "message")),
        ([user("Re-analyze the creation of it")], None, ("analysis", "message")),
        ([user("a"), used("update_task"), user("ok")], "search", ("modification", "tools")),
        ([user("a"), used("update_task"), user("explain")], None, ("analysis", "message")),
        ([user("a"), used("update_task")], None, ("general", "default")),
        ([user("a"), used("update_task"), user("b"), user("c")], None, ("general", "default")),
        ([user("analyze"), used("update_task"), TOLD, user("create")], None, ("analysis", "message")),
        ([user("a"), used("update_task"), TOLD, user("b"), user("c")], None, ("general", "default")),
        ([user("a"), used("update_task"), TOLD, user("b"), used(), user("c")], None, ("modification", "tools")),
        ([user("x" * 5000 + " create")], None, ("general", "default")),
    ],
)
def test_the_mode(messages: list[Json], before: str | None, found: tuple[str, str]) -> None:
    assert inferred(messages, before) == found


def test_the_system_message() -> None:
    modes = PromptModes(general=" Be kind.\n", search="Look.")
    profiles = PromptProfiles(core="You keep lamps.", modes=modes, error_handling="Say so.")
    assert composed(profiles, "search") == "You keep lamps.\n\nLook.\n\nSay so."
    assert composed(profiles, "analysis") == "You keep lamps.\n\nSay so."
    assert monolith(profiles) == "You keep lamps.\n\nBe kind.\n\nLook.\n\nSay so."
    assert set(MODES) == set(PromptModes.model_fields)
