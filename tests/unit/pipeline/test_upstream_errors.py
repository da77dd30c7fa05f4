"""Errors of providers as they really come: wherever they stand, with whatever headers (guarantee §7)."""

import json
from typing import Any

import pytest

from tests.support.answers import Json, stored, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.raw import LAST, SSE_HEAD, End, event

pytestmark = pytest.mark.in_turn("streamed")

BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
CHAT: Json = {"model": "gpt-4o", "messages": [user("hello")]}
PAPERS = [{"title": "Lamps", "content": "\n\n".join(f"Lamp {i} says hello to the sea." for i in range(100))}]
OVERFLOW = {
    "error": {
        "message": "This endpoint's maximum context length is 32768 tokens. However, you requested about 41000 tokens.",
        "code": 400,
    }
}


def ask(gateway: GatewayProcess, streamed: bool, **more: Any) -> Any:
    return gateway.post("/chat/completions", json={**CHAT, "stream": streamed, **more})


@BOTH
@pytest.mark.parametrize("inside", [False, True], ids=["status 400", "status 200"])
def test_s4_one_refit_after_an_overflow(
    one_gateway: GatewayProcess, upstream: MockUpstream, inside: bool, streamed: bool
) -> None:
    """If upstream says overflow all the same, one refit with less, and its answer is the client's."""
    if streamed and inside:
        upstream.reply(raw=[SSE_HEAD, event(OVERFLOW), LAST, End.KEEP])
    else:
        upstream.reply(status=200 if inside else 400, json=OVERFLOW)
    upstream.reply(text="it fits")
    answer = ask(one_gateway, streamed, attachments=PAPERS)
    assert answer.status_code == 200
    assert " fits" in answer.text
    first, second = upstream.chats
    assert len(second.raw) < len(first.raw)
    bill = stored(one_gateway, answer.headers["x-request-id"])["response_metadata"]
    assert "refitted_after_upstream_overflow" in bill["context_utilization"]["warnings"]
    assert bill["cost"]["estimated"] is False


@BOTH
def test_s4_mode_off_is_never_refitted(one_gateway: GatewayProcess, upstream: MockUpstream, streamed: bool) -> None:
    """A plain proxy: the overflow is the client's, in OpenAI's words."""
    upstream.reply(status=400, json=OVERFLOW)
    answer = ask(one_gateway, streamed, context={"mode": "off"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["upstream"]) == (400, "context_length_exceeded", OVERFLOW)
    assert len(upstream.chats) == 1


ODD_TEXT = "a\x00b \ud800 c"


@BOTH
def test_s7_text_that_no_database_takes(gateway: GatewayProcess, upstream: MockUpstream, streamed: bool) -> None:
    """NUL and lone surrogates in an answer: it comes through or is refused as the upstream's fault, never a 500."""
    choice = {"index": 0, "finish_reason": "stop"}
    named = {"id": "u", "created": 1, "model": "m"}
    said = {"role": "assistant", "content": ODD_TEXT}
    if streamed:
        chunk = {**named, "object": "chat.completion.chunk", "choices": [{**choice, "delta": said}]}
        upstream.reply(raw=[SSE_HEAD, event(chunk), event(b"[DONE]"), LAST, End.KEEP])
    else:
        upstream.reply(body=json.dumps({**named, "choices": [{**choice, "message": said}]}).encode())
    answer = ask(gateway, streamed)
    assert answer.status_code in (200, 502)
    assert "internal_error" not in answer.text
    assert stored(gateway, answer.headers["x-request-id"])["status"] in ("complete", "failed")


@pytest.mark.parametrize(
    ("streamed", "end"), [(False, None), (True, None), (True, b"data: [DONE]\n\n"), (True, b"")],
    ids=["whole", "whole in place of a stream", "streamed", "broken off"],
)  # fmt: skip
@pytest.mark.parametrize(
    "choices", [[], None, [{"index": 0, "finish_reason": "stop"}]], ids=["no choices", "null", "no message"]
)
def test_s6_what_an_answer_without_choices_used_is_on_the_bill(
    one_gateway: GatewayProcess, upstream: MockUpstream, choices: Any, streamed: bool, end: bytes | None
) -> None:
    """A filter, or thoughts that took all the room: the provider charges what it reports, not what is counted here."""
    usage = {"prompt_tokens": 50, "completion_tokens": 700, "total_tokens": 750}
    answer = {"id": "x", "model": "m", "choices": choices, "usage": usage}
    if end is not None:
        upstream.reply(raw_sse=b"data: %s\n\n%b" % (json.dumps({**answer, "choices": []}).encode(), end))
    else:
        upstream.reply(json={**answer, "object": "chat.completion"})
    failed = ask(one_gateway, streamed)
    code = "upstream_interrupted" if end == b"" else "upstream_invalid_response"
    assert (failed.status_code, failed.json()["error"]["code"]) == (502, code)
    billed = stored(one_gateway, failed.headers["x-request-id"])["response_metadata"]
    assert (billed["usage"], billed["cost"]["estimated"]) == (usage, False)


@BOTH
def test_s7_a_clients_own_key_is_refused_in_its_upstreams_words(
    own_key_gateway: GatewayProcess, upstream: MockUpstream, streamed: bool
) -> None:
    """§7.3: what else upstreams refuse, and with an operator's key, is in `tests/support/faults`."""
    error = {"error": {"message": "no", "type": "some_type", "param": None, "code": "nobody", "innererror": {"x": 1}}}
    upstream.reply(status=401, json=error)
    answer = ask(own_key_gateway, streamed)
    assert (answer.status_code, answer.json()) == (401, error)
