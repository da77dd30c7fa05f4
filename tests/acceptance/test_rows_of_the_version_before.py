"""Conversations that the version before has stored, or stores meanwhile, are continued (guarantee §3, ADR 10)."""

import json
from typing import Any

import pytest

from tests.chaos.audit import broken_rules
from tests.support.answers import assistant, chat, stored_of, user
from tests.support.continuing import LONG, Talk
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.old_rows import make_old


@pytest.fixture
def talk(gateway: GatewayProcess, upstream: MockUpstream, request: pytest.FixtureRequest) -> Talk:
    """Two turns, stored as the version before did."""
    made = Talk(upstream, request.node.name)
    made.begin(gateway)
    made.ask(gateway, whole=False, by_id=True)
    return made


def check(gateway: GatewayProcess, talk: Talk, storage_url: str) -> None:
    """Every turn once."""
    listed = [each["choices"][0]["message"]["content"] for each in stored_of(gateway, talk.id)]
    assert listed == [each["content"] for each in talk.said[1::2]]
    assert broken_rules(storage_url) == {}


@pytest.mark.parametrize("whole", [False, True])
def test_s3_1_by_id_between_turns_of_the_old_version(
    gateway: GatewayProcess, talk: Talk, module_storage_url: str, whole: bool
) -> None:
    """§3.1: delta and full resend, after rows without digests, and again after the old version wrote more."""
    for _ in range(3):
        make_old(module_storage_url)
        assert talk.ask(gateway, whole=whole, by_id=True) == talk.id
        assert talk.ask(gateway, whole=not whole, by_id=True) == talk.id
    check(gateway, talk, module_storage_url)


def test_s3_2_without_an_id_after_the_first_turn_of_this_version(
    gateway: GatewayProcess, talk: Talk, module_storage_url: str
) -> None:
    """§3.2: the old version left no digest to be recognised by; the first turn here leaves that of the whole chain."""
    make_old(module_storage_url)
    assert talk.ask(gateway, whole=True, by_id=True) == talk.id
    assert talk.ask(gateway, whole=True, by_id=False) == talk.id
    assert talk.ask(gateway, whole=False, by_id=True) == talk.id
    assert talk.ask(gateway, whole=True, by_id=False) == talk.id
    check(gateway, talk, module_storage_url)


def test_s3_2_what_nothing_is_known_of_starts_anew_and_loses_nothing(
    gateway: GatewayProcess, talk: Talk, module_storage_url: str
) -> None:
    """§3.2: without an id and without a digest it is a new conversation, of what was sent."""
    make_old(module_storage_url)
    new = talk.ask(gateway, whole=True, by_id=False)
    assert new != talk.id
    assert talk.ask(gateway, whole=True, by_id=False) == new
    talk.id = new
    assert talk.ask(gateway, whole=False, by_id=True) == new


def test_s3_2_what_was_dropped_is_restored_of_old_rows_too(
    gateway: GatewayProcess, upstream: MockUpstream, module_storage_url: str
) -> None:
    """§3.2: tool steps of a conversation that the old version stored; its client sends only texts."""
    tools: Any = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    upstream.reply(tool_calls=[("look_up", {"x": 1})])
    first = chat(gateway, model="gpt-4o", messages=[user("a tool, please")], tools=tools)
    named = {"conversation": first["conversation"]["id"], "tools": tools}
    call = first["choices"][0]["message"]["tool_calls"][0]
    result = {"role": "tool", "tool_call_id": call["id"], "content": json.dumps({"found": 7})}
    upstream.reply(text=LONG.strip())
    chat(gateway, model="gpt-4o", messages=[result], **named)
    make_old(module_storage_url)
    chat(gateway, model="gpt-4o", messages=[user("a tool, please"), assistant(LONG.strip()), user("more")], **named)
    sent = upstream.last.body["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[2] == result
