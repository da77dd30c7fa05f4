"""Errors of providers as they really come: wherever they stand, with whatever headers (guarantee §7)."""

import json
import re
from typing import Any

import openai
import pytest

from tests.support.answers import Json, stored, user
from tests.support.factory import ClientFactory
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


@BOTH
@pytest.mark.parametrize("where", ["status", "body"])
def test_s7_the_operators_key_is_never_told(
    one_gateway: GatewayProcess, upstream: MockUpstream, where: str, streamed: bool
) -> None:
    """401/403 for an operator's key, in the status or in the body: 502 `upstream_auth`, without the body."""
    error = {"error": {"message": "Incorrect API key provided: sk-upstream", "code": 401}}
    upstream.reply(status=401 if where == "status" else 200, json=error)
    answer = ask(one_gateway, streamed)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_auth")
    assert "sk-upstream" not in answer.text
    assert "Incorrect" not in answer.text
    assert "sk-upstream" not in one_gateway.log_text()


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


@BOTH
@pytest.mark.parametrize(
    "script",
    [
        {"body": b'{"id": "x", "choices": ['},
        {"body": b"<html>login</html>", "content_type": "text/html"},
        {"body": b""},
        {"body": b"[1]"},
        {"json": {"id": "x", "object": "chat.completion"}},
    ],
    ids=["malformed JSON", "HTML with status 200", "an empty body", "JSON that is no object", "no choices"],
)
def test_s7_answers_that_are_none(
    one_gateway: GatewayProcess, upstream: MockUpstream, script: Json, streamed: bool
) -> None:
    """Not what an OpenAI-compatible server sends: 502 in OpenAI's shape, never a 500."""
    upstream.reply(**script)
    answer = ask(one_gateway, streamed)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid_response")
    assert stored(one_gateway, answer.headers["x-request-id"])["status"] == "failed"


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
def test_s7_a_connection_that_breaks_before_any_byte_is_tried_once_more(
    one_gateway: GatewayProcess, upstream: MockUpstream, streamed: bool
) -> None:
    """Twice is 502 `upstream_unreachable`."""
    upstream.reply(cut_after=-1)
    upstream.reply(text="last")
    assert '"last"' in ask(one_gateway, streamed).text
    assert len(upstream.chats) == 2
    upstream.reply(cut_after=-1)
    upstream.reply(cut_after=-1)
    answer = ask(one_gateway, streamed)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert len(upstream.chats) == 4


CLASSES: list[tuple[int, type[openai.APIStatusError]]] = [
    (400, openai.BadRequestError),
    (401, openai.AuthenticationError),
    (403, openai.PermissionDeniedError),
    (404, openai.NotFoundError),
    (409, openai.ConflictError),
    (413, openai.APIStatusError),
    (422, openai.UnprocessableEntityError),
    (429, openai.RateLimitError),
    (500, openai.InternalServerError),
    (503, openai.InternalServerError),
]


def refused(status: int) -> Json:
    """What a provider says, with a field of its own."""
    error = {"message": f"no: {status}", "type": "some_type", "param": "messages", "code": f"code_{status}"}
    return {"error": {**error, "innererror": {"x": 1}}}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("own_key", [True, False], ids=["own key", "operator's key"])
@pytest.mark.parametrize(("status", "kind"), CLASSES)
def test_s7_upstream_errors_keep_status_body_and_retry_after(
    one_gateway: GatewayProcess,
    own_key_gateway: GatewayProcess,
    upstream: MockUpstream,
    make_client: ClientFactory,
    status: int,
    kind: type[openai.APIStatusError],
    own_key: bool,
    streamed: bool,
) -> None:
    """Upstream errors keep status, `Retry-After` and body; 401/403 for an operator's key: 502 without the body."""
    upstream.reply(
        status=status, json=refused(status), headers={"retry-after": "17", "x-ratelimit-limit-requests": "3"}
    )
    client = make_client(own_key_gateway if own_key else one_gateway)
    withheld = status in (401, 403) and not own_key
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=[user("hello")], stream=streamed)
    error = caught.value
    assert len(upstream.chats) == 1, "nothing is retried"
    if withheld:
        assert isinstance(error, openai.InternalServerError)
        assert error.status_code == 502
        assert error.code == "upstream_auth"
        assert f"code_{status}" not in error.response.text
        assert f"no: {status}" not in error.response.text
    else:
        assert type(error) is kind
        assert error.status_code == status
        assert error.body == refused(status)["error"]
        assert error.response.headers["retry-after"] == "17"
        assert error.response.headers["x-ratelimit-limit-requests"] == "3"
    assert error.response.headers["x-request-id"].startswith("req_")


def test_s7_a_second_overflow_is_told(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """An overflow that comes again after the one refit is the client's, in OpenAI's words."""
    overflow = {"message": "prompt is too long: 208310 tokens > 200000 maximum", "type": "invalid_request_error"}
    for _ in range(2):
        upstream.reply(status=400, json={"type": "error", "error": overflow})
    with pytest.raises(openai.BadRequestError) as caught:
        make_client(one_gateway).chat.completions.create(
            model="gpt-4o", messages=[user("hello")], extra_body={"attachments": PAPERS}
        )
    assert caught.value.code == "context_length_exceeded"
    message = caught.value.body["message"]  # type: ignore[index]
    assert re.match(r"This model's maximum context length is \d+ tokens", message), message
    assert upstream.queued == 0, "one refit, no more"
