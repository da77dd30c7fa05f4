"""§14.5: once a file is deleted, nothing of its words is anywhere: not beside later questions, not in exports, not in
the database or the files beside it. Here documents are large from 100,000 characters on."""

import json
from collections.abc import Callable
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.chaos.audit import all_rows, rows
from tests.support.answers import Json, chat, user
from tests.support.documents import docx, prose
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.pdfs import with_photos
from tests.support.process import wait_until

CANARY = "zanzibar"
FACT = f"The keeper of the {CANARY} lamp is called Name7x."
SMALL = f"{FACT}\n\n{prose(1, 600)}"
LARGE = "\n\n".join(f"## Lamp {n}\n\n{FACT} {prose(n, 90)}" for n in range(200))
FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "text": ("notes.txt", SMALL.encode),
    "docx": ("notes.docx", lambda: docx(SMALL.split("\n\n"))),
    "pdf": ("notes.pdf", lambda: with_photos([FACT, prose(2, 60)])),
    "large": ("lamps.txt", LARGE.encode),
}


def by_part(file_id: str) -> Json:
    part = {"type": "file", "file": {"file_id": file_id}}
    return {"messages": [user([part, {"type": "text", "text": "Who keeps the lamp?"}])]}


def by_attachment(file_id: str) -> Json:
    return {"messages": [user("Who keeps the lamp?")], "attachments": [{"file_id": file_id}]}


@pytest.fixture(scope="module")
def keeping(module_start_gateway: GatewayFactory, module_storage_url: str) -> GatewayProcess:
    """A gateway that keeps files for everybody."""
    files, documents = {"serve": "on", "store": "database"}, {"index_chars": 100_000}
    return module_start_gateway({"files": files, "documents": documents, "storage": {"url": module_storage_url}})


def asked(gateway: GatewayProcess, **body: Any) -> Json:
    return chat(gateway, **body)


def in_database(url: str) -> list[str]:
    """Columns that hold the canary, and files of SQLite."""
    found = []
    for table, each in all_rows(url).items():
        found += [f"{table}.{name}" for row in each for name, value in row.items() if CANARY in _text(value)]
    if url.startswith("sqlite"):
        folder = Path(url.partition("///")[2]).parent
        found += [each.name for each in folder.glob("gateway.db*") if CANARY.encode() in each.read_bytes()]
    return sorted(set(found))


def _text(value: Any) -> str:
    return bytes(value).decode("latin-1") if isinstance(value, bytes | memoryview) else str(value)


@pytest.mark.each_storage
@pytest.mark.parametrize(
    ("kind", "model", "ask"),
    [*zip(FILES, repeat("small"), cycle((by_part, by_attachment)), strict=False), ("pdf", "gpt-4o", by_attachment)],
)
def test_s14_5_nothing_of_a_deleted_file_is_left(
    keeping: GatewayProcess,
    module_storage_url: str,
    upstream: MockUpstream,
    kind: str,
    ask: Callable[[str], Json],
    model: str,
) -> None:
    """In either of two conversations that hold it. What it cost stays."""
    name, content = FILES[kind]
    with OpenAI(base_url=keeping.base_url, api_key="sk-test") as client:
        made = client.files.create(file=(name, content()), purpose="user_data")
    limits = {"context": {"max_input_tokens": 3000}}
    conversations = [asked(keeping, model=model, **ask(made.id), **limits)["conversation"]["id"] for _ in range(2)]
    for conversation in conversations:
        asked(keeping, model=model, messages=[user("Is it bright?")], conversation=conversation, **limits)
        assert CANARY in json.dumps(upstream.last.body) or kind == "pdf"
    bills = len(rows(module_storage_url, "SELECT * FROM ledger"))
    with OpenAI(base_url=keeping.base_url, api_key="sk-test") as client:
        client.files.delete(made.id)
    wait_until(lambda: in_database(module_storage_url) == [], "the end of its words")
    for conversation in conversations:
        asked(keeping, model=model, messages=[user("And now?")], conversation=conversation, **limits)
        assert CANARY not in json.dumps(upstream.last.body)
        assert "file_data" not in json.dumps(upstream.last.body)
        assert '"file_id"' not in json.dumps(upstream.last.body)
        assert ("(This document was deleted.)" in json.dumps(upstream.last.body)) == (ask is by_part)
        exported = keeping.get(f"/conversations/{conversation}/export")
        assert exported.status_code == 200
        assert CANARY not in exported.text
    assert in_database(module_storage_url) == []
    assert len(rows(module_storage_url, "SELECT * FROM ledger")) == bills + 2
