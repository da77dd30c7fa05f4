"""`store: false`: nothing that the user or the model wrote is kept beyond the request (guarantee §2)."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.answers import Json, assistant, read_stream, stored, tool_call, tool_result, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres

pytestmark = pytest.mark.each_storage
ASKED, ANSWERED, ATTACHED, TITLED, CALLED = (
    "zyzzyva-asked",
    "zyzzyva-said",
    "zyzzyva-paper",
    "zyzzyva-title",
    "zyzzyva-arg",
)
SECRETS = (ASKED, ANSWERED, ATTACHED, TITLED, CALLED)
BODY: Json = {
    "model": "small",
    "store": False,
    "messages": [
        user(f"what of {ASKED}?"),
        assistant(None, tool_calls=[tool_call("c", "f", f'"{CALLED}"')]),
        tool_result("c", ATTACHED),
    ],
    "attachments": [{"title": TITLED, "content": f"{ATTACHED}\n\n" * 2000}],
    "metadata": {"topic": ASKED},
    "user": "someone",
}


def everything_stored(gateway: GatewayProcess, url: str, request: pytest.FixtureRequest) -> bytes:
    """All that the storage holds, as bytes to search in."""
    if url.startswith("sqlite"):
        return b"".join(file.read_bytes() for file in Path(url.removeprefix("sqlite:///")).parent.glob("gateway.db*"))
    postgres: Postgres = request.getfixturevalue("postgres")
    tables = postgres.query(
        url, "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'public'"
    )
    assert tables
    rows: list[Any] = [postgres.query(url, f'SELECT t::text AS row FROM "{table["name"]}" t') for table in tables]
    return repr(rows).encode()


@pytest.mark.parametrize("ending", ["json", "stream", "failed", "broken stream"])
def test_s2_store_false_keeps_no_content(
    gateway: GatewayProcess,
    module_storage_url: str,
    upstream: MockUpstream,
    request: pytest.FixtureRequest,
    ending: str,
) -> None:
    """The bill is kept, and of the content nothing: not in the database, not in the log; no conversation is named."""
    if ending == "failed":
        upstream.reply(status=400, json={"error": {"message": ANSWERED, "type": "x", "param": None, "code": None}})
    else:
        upstream.reply(text=f"of {ANSWERED} I know", cut_after=3 if ending == "broken stream" else None)
    if ending in ("stream", "broken stream"):
        wire = read_stream(gateway, BODY)
        assert ANSWERED in wire.text
        assert not any("conversation" in chunk for chunk in wire.chunks)
        headers, completion_id = wire.headers, wire.chunks[0]["id"]
    else:
        answer = gateway.post("/chat/completions", json=BODY)
        headers, completion_id = answer.headers, answer.json().get("id")
        assert "conversation" not in answer.json()
    assert "x-conversation-id" not in headers
    found = stored(gateway, headers["x-request-id"])
    assert found["choices"] == []
    assert "conversation" not in found
    assert found["status"] == {"failed": "failed", "broken stream": "partial"}.get(ending, "complete")
    assert found["response_metadata"]["conversation_id"] is None
    assert found["response_metadata"]["cost"]["priced"] is True
    assert (found["response_metadata"]["cost"]["total_cost"] > 0) == (ending != "failed")
    if completion_id:
        assert stored(gateway, completion_id) == found
    data = everything_stored(gateway, module_storage_url, request)
    assert headers["x-request-id"].encode() in data, "the bill is there, so this looks in the right place"
    gateway.logged(headers["x-request-id"])
    for secret in SECRETS:
        assert secret.encode() not in data
        assert secret not in gateway.log_text()


def test_s2_store_false_may_read_a_conversation(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Stored history is put in front; what is said now is not kept."""
    upstream.reply(text="one")
    conversation = gateway.post("/chat/completions", json={"model": "small", "messages": [user("first")]}).json()[
        "conversation"
    ]
    body = {"model": "small", "conversation": conversation}
    answer = gateway.post("/chat/completions", json={**body, "messages": [user("second")], "store": False})
    assert [m["content"] for m in upstream.last.body["messages"]] == ["first", "one", "second"]
    assert "conversation" not in answer.json()
    gateway.post("/chat/completions", json={**body, "messages": [user("third")]})
    assert [m["content"] for m in upstream.last.body["messages"]] == ["first", "one", "third"]
