"""Documents of many megabytes: answered from what bears on the question, within bounds of memory (guarantee §7)."""

import json

import httpx
import orjson
import pytest

from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

MEGABYTES = 50
LINE = "The lamp of row {n} was trimmed by the keeper, who wrote it down in the book of the harbour office.\n"
FACT = "The spare key of the Skerrow station is kept under the third bollard."
MAX_AT_ONCE_MB = 400
"""What a process may take on the way, in which everything that a first request loads is loaded already."""
MAX_AFTER_MB = 100


@pytest.fixture(scope="module")
def document() -> str:
    lines = [LINE.format(n=n) for n in range(MEGABYTES * 1_000_000 // len(LINE))]
    lines.insert(len(lines) // 3, FACT + "\n")
    return "".join(lines)


@pytest.fixture
def warm_gateway(start_gateway: GatewayFactory) -> GatewayProcess:
    """A gateway that has loaded what a reduced context needs."""
    gateway = start_gateway()
    assert _ask(gateway, "".join(LINE.format(n=n) for n in range(20_000))).status_code == 200
    return gateway


def _ask(gateway: GatewayProcess, document: str) -> httpx.Response:
    body = {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "Where is the spare key of the Skerrow station kept?"}],
        "attachments": [{"title": "The book", "content": document}],
    }
    return gateway.post("/chat/completions", content=orjson.dumps(body), timeout=120)


@pytest.mark.chaos
def test_s7_a_document_of_fifty_megabytes(warm_gateway: GatewayProcess, upstream: MockUpstream, document: str) -> None:
    """What answers goes up; the memory is given back."""
    before = warm_gateway.rss_mb()
    answer = _ask(warm_gateway, document)
    assert answer.status_code == 200, answer.text[:300]
    assert FACT in json.dumps(upstream.last.body)
    assert warm_gateway.peak_mb() - before < MAX_AT_ONCE_MB
    _ask(warm_gateway, "short")  # by now what was given back is back
    assert warm_gateway.rss_mb() - before < MAX_AFTER_MB


@pytest.mark.chaos
def test_s7_a_streamed_answer_has_a_limit_of_its_size(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """As a whole one has: 64 million characters; what came until then is kept, and it ends with an error."""
    gateway = start_gateway()
    piece = {"index": 0, "delta": {"content": "word " * 200_000}}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": [piece]}
    upstream.reply(chunks=[chunk] * 70)
    body = {"model": "gpt-4o", "stream": True, "store": False, "messages": [{"role": "user", "content": "much"}]}
    with gateway.http() as client, client.stream("POST", "/chat/completions", json=body, timeout=120) as answer:
        size, tail = 0, ""
        for text in answer.iter_text():
            size += len(text)
            tail = (tail + text)[-2000:]
    assert "upstream_invalid_response" in tail
    assert "[DONE]" not in tail
    assert size < 70_000_000
