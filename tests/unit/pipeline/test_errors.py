"""Upstream's errors as the SDK's error classes, and the gateway's own (guarantee §7)."""

import re
from typing import Any

import httpx
import openai
import pytest

from tests.support.answers import Json, http, stored, user
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

ASK: Any = [user("hello")]
CHAT = {"model": "gpt-4o", "messages": ASK}
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
SHAPE = {"message", "type", "param", "code"}


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
        client.chat.completions.create(model="gpt-4o", messages=ASK, stream=streamed)
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


def test_s7_what_is_not_openai_shaped_is_wrapped(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """Wrapped, with the original under `error.upstream`: HTML, plain text, JSON of another shape, nothing at all."""
    client = make_client(one_gateway)
    for body, kind in (
        (b"<html>bad gateway</html>", "text/html"),
        (b"overloaded", "text/plain"),
        (b'{"detail": [{"loc": ["body"], "msg": "nope"}]}', "application/json"),
        (b'{"error": "just a string"}', "application/json"),
        (b"", "text/plain"),
    ):
        upstream.reply(status=503, body=body, content_type=kind)
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model="gpt-4o", messages=ASK)
        assert caught.value.status_code == 503
        error: Any = caught.value.body
        assert set(error) == SHAPE | {"upstream"}
        original = error["upstream"]
        assert original == (httpx.Response(200, content=body).json() if body.startswith(b"{") else body.decode())


def test_s7_the_bill_of_a_refused_call(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Once a model was called there is one ledger row for the request, also when it failed: it cost nothing."""
    upstream.reply(status=429, json=refused(429))
    with http(one_gateway) as client:
        answer = client.post("/chat/completions", json=CHAT)
    bill = stored(one_gateway, answer.headers["x-request-id"])
    assert bill["status"] == "failed"
    assert bill["choices"] == []
    assert bill["response_metadata"]["cost"]["total_cost"] == 0
    assert bill["response_metadata"]["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def test_s7_an_error_with_status_200(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """Some providers answer 200 and an error object: it is an error here."""
    upstream.reply(json=refused(400))
    with pytest.raises(openai.APIStatusError) as caught:
        make_client(one_gateway).chat.completions.create(model="gpt-4o", messages=ASK)
    assert caught.value.status_code >= 400
    assert caught.value.body == refused(400)["error"]


def test_s7_overflow_errors_of_all_providers_become_one(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """Different providers' overflow errors all become `context_length_exceeded`."""
    client = make_client(one_gateway)
    papers = [{"title": "Lamps", "content": "\n\n".join(f"Lamp {i} says hello to the sea." for i in range(100))}]
    for status, body in (
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size (8192 tokens)",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 9000,
                    "n_ctx": 8192,
                }
            },
        ),
        (
            400,
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "prompt is too long: 208310 tokens > 200000 maximum",
                },
            },
        ),
        (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "code": 400}),
        (
            400,
            {
                "error": {
                    "code": 400,
                    "status": "INVALID_ARGUMENT",
                    "message": "The input token count (1200000) exceeds the maximum number of tokens allowed.",
                }
            },
        ),
    ):
        for _ in range(2):
            upstream.reply(status=status, json=body)
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="gpt-4o", messages=ASK, extra_body={"attachments": papers})
        assert caught.value.code == "context_length_exceeded", body
        message = caught.value.body["message"]  # type: ignore[index]
        assert re.match(r"This model's maximum context length is \d+ tokens", message), message
        assert upstream.queued == 0, "one refit, no more"
