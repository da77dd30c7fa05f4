"""A history told in one request is stored as the same history grown turn by turn: what the bench of long conversations
begins with is what it says it is (ADR 8)."""

import json
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.history.forms import FORMS
from benchmarks.history.talk import TOOLS, Client, Talk, answering
from benchmarks.traffic import MODEL
from tests.chaos.audit import WHOLE, rows
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

TURNS = 6
COLUMNS = ("sequence_number", "role", "status", "body", "digest", "weight", "plain")
DIGESTS = ("path_digest", "said_digest")


@pytest.mark.in_turn("form")
@pytest.mark.parametrize("form", [form for form in FORMS if form.name in ("id", "id-all", "agent-id", "agent-all")])
def test_a_history_told_at_once_is_stored_as_one_that_grew(
    gateway: GatewayProcess, upstream: MockUpstream, module_storage_url: str, form: Any
) -> None:
    """§3.4: messages, digests and links are the same, whichever way they came."""
    upstream.handler = answering
    client = Client(gateway.port)
    talk = Talk(replace(form, window=None), 1)
    for _ in range(TURNS):
        talk.turn(client)
    client.close()
    body = {"model": MODEL, "messages": talk.messages[:-1], **({"tools": TOOLS} if form.agent else {})}
    told = gateway.post("/chat/completions", json=body, key="sk-another-tenant").json()
    assert told["choices"][0]["message"]["content"] == talk.messages[-1]["content"]
    grown, at_once = (_stored(module_storage_url, each) for each in (talk.conversation_id, told["conversation"]["id"]))
    assert len(grown[0]) == len(talk.messages)
    assert at_once[0] == grown[0]
    assert at_once[1] == grown[1]


def _stored(storage_url: str, conversation_id: Any) -> tuple[list[dict[str, Any]], dict[bytes, int]]:
    """The messages of a conversation without what names them, and where its links lead to."""
    where = f"WHERE conversation_id = '{conversation_id}'"
    found = rows(storage_url, f"{WHOLE} WHERE m.conversation_id = '{conversation_id}' ORDER BY m.sequence_number")
    numbers = {row["id"]: row["sequence_number"] for row in found}
    links = rows(storage_url, f"SELECT * FROM message_links {where}")
    kept = []
    for row in found:
        digests = {name: bytes(row[name]) for name in DIGESTS}
        parent = numbers.get(row["parent_id"])
        kept.append(
            {**{name: row[name] for name in COLUMNS}, **digests, "parent": parent, "body": json.loads(row["body"])}
        )
    return kept, {bytes(link["digest"]): numbers[link["message_id"]] for link in links}
