"""Token counts are stored with messages: after a restart they are what a fresh count gives (guarantee §4 I1)."""

from typing import Any

from tests.support.answers import Json, assistant, chat, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

TEXT = "The river rose at the bridge near the old mill. "


def test_s4_i1_stored_counts_are_what_a_fresh_count_gives(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§4 I1: by id with a delta, after a restart: the same figures as for the whole sent as a conversation of its own.
    The first turns are too small to be counted, later ones must be."""
    talk: list[Json] = []
    named: dict[str, Any] = {}
    for number in range(6):
        new = user(f"{number}: {TEXT * 20}")
        upstream.reply(text=f"Answer {number}. {TEXT * 20}")
        answer = chat(gateway, model="small", messages=[new], **named)
        named = {"conversation": answer["conversation"]["id"]}
        talk += [new, assistant(answer["choices"][0]["message"]["content"])]
    gateway.restart()
    found = [
        chat(gateway, model="small", messages=messages, **more)["response_metadata"]["context_utilization"]
        for messages, more in (([user("And?")], named), ([*talk, user("And?")], {"user": "somebody else"}))
    ]
    assert found[0]["tokens_used"] == found[1]["tokens_used"] > 1500
    assert found[0]["breakdown"] == found[1]["breakdown"]
    assert upstream.chats[-1].body["messages"] == upstream.chats[-2].body["messages"]
