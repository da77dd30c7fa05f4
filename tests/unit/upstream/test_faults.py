"""Foreign faults translated once (contract §7)."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.errors import (
    UpstreamAuth,
    UpstreamError,
    UpstreamInterrupted,
    UpstreamOverflow,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.models.exchange import Deployment
from gateway.upstream.faults import refusal, relayed_headers, translated

OWN = Deployment("m", "m", "openai/m", "http://x/v1", "sk-secret", operator_key=True)
CLIENTS = Deployment("m", "m", "openai/m", "http://x/v1", "sk-client", operator_key=False)

OVERFLOWS: dict[str, tuple[int, Any, tuple[int | None, int | None]]] = {
    "OpenAI": (400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages "
               "resulted in 9000 tokens.", "type": "invalid_request_error", "code": "context_length_exceeded"}},
               (9000, 8192)),
    "Anthropic": (400, {"type": "error", "error": {"type": "invalid_request_error",
                  "message": "prompt is too long: 213400 tokens > 200000 maximum"}}, (213400, 200000)),
    "Gemini": (400, {"error": {"code": 400, "status": "INVALID_ARGUMENT",
               "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}},
               (1200000, 1048576)),
    "llama.cpp": (400, {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9000,
                  "n_ctx": 8192, "message": "the request exceeds the available context size"}}, (9000, 8192)),
    "Groq": (413, {"error": {"message": "Please reduce the length of the messages or completion.",
             "type": "invalid_request_error", "code": "context_length_exceeded"}}, (None, None)),
    "Mistral": (400, {"object": "error", "message": "Prompt contains 40000 tokens, too large for model "
                "with 32768 maximum context length"}, (None, None)),
    "vLLM, numbers with commas": (400, {"error": {"message": "maximum context length is 4,096 tokens, "
                                  "requested 5,000"}}, (5000, 4096)),
    "plain text": (400, "context window exceeded", (None, None)),
}  # fmt: skip
OTHERS: dict[str, tuple[int, Any]] = {
    "a bad field": (400, {"error": {"message": "Unknown field 'x'", "code": None, "param": "x"}}),
    "a rate limit that names tokens": (429, {"error": {"message": "Too many tokens per minute", "code": "rate_limit"}}),
    "a fault": (500, {"error": {"message": "internal"}}),
    "not found": (404, {"error": {"message": "The model does not exist", "code": "model_not_found"}}),
}


def refused(status: int, original: Any, deployment: Deployment = OWN, **headers: str) -> UpstreamError:
    raw = original.encode() if isinstance(original, str) else json.dumps(original).encode()
    return refusal(status, raw, {k.replace("_", "-"): v for k, v in headers.items()}, deployment)


@pytest.mark.parametrize(("status", "original", "tokens"), OVERFLOWS.values(), ids=list(OVERFLOWS))
def test_every_providers_overflow_is_context_length_exceeded(
    status: int, original: Any, tokens: tuple[int | None, int | None]
) -> None:
    error = refused(status, original)
    assert isinstance(error, UpstreamOverflow)
    assert (error.reported, error.limit) == tokens
    assert error.status == 400
    body = error.body()["error"]
    assert (body["code"], body["type"]) == ("context_length_exceeded", "invalid_request_error")
    assert body["message"]


@pytest.mark.parametrize(("status", "original"), OTHERS.values(), ids=list(OTHERS))
def test_other_errors_keep_status_body_and_retry_after(status: int, original: Any) -> None:
    error = refused(status, original, retry_after="7", x_ratelimit_limit="5", set_cookie="a=b")
    assert type(error) is UpstreamRefused
    assert (error.status, error.body()) == (status, original)
    assert error.headers == {"retry-after": "7", "x-ratelimit-limit": "5"}


@pytest.mark.parametrize("original", ["<html>down</html>", {"detail": "no"}, ["x"], {"error": "text"}])
def test_a_body_that_is_not_openai_shaped_is_wrapped_with_the_original(original: Any) -> None:
    body = refused(503, original).body()["error"]
    assert set(body) == {"message", "type", "param", "code", "upstream"}
    assert body["upstream"] == original
    assert body["message"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_operators_key_is_a_502_without_the_body_and_a_clients_own_is_passed_on(status: int) -> None:
    original = {"error": {"message": "Incorrect API key provided: sk-secret", "code": "invalid_api_key"}}
    error = refused(status, original)
    assert isinstance(error, UpstreamAuth)
    assert (error.status, error.code) == (502, "upstream_auth")
    assert "sk-" not in json.dumps(error.body())
    own = refused(status, original, CLIENTS)
    assert (own.status, own.body()) == (status, original)


def fault(kind: type[httpx.RequestError]) -> httpx.RequestError:
    return kind("sk-secret at http://internal", request=httpx.Request("POST", "http://internal"))


def faults() -> Iterator[tuple[Exception, bool, type[UpstreamError], int]]:
    yield fault(httpx.ConnectError), False, UpstreamUnreachable, 502
    yield fault(httpx.ConnectTimeout), False, UpstreamUnreachable, 502
    yield fault(httpx.RemoteProtocolError), False, UpstreamUnreachable, 502
    yield fault(httpx.ReadError), False, UpstreamUnreachable, 502
    yield fault(httpx.UnsupportedProtocol), False, UpstreamUnreachable, 502
    yield httpx.InvalidURL("bad"), False, UpstreamUnreachable, 502
    yield fault(httpx.ReadTimeout), False, UpstreamTimeout, 504
    yield fault(httpx.ReadTimeout), True, UpstreamTimeout, 504
    yield fault(httpx.PoolTimeout), False, UpstreamTimeout, 504
    yield fault(httpx.ReadError), True, UpstreamInterrupted, 502
    yield fault(httpx.RemoteProtocolError), True, UpstreamInterrupted, 502


@pytest.mark.parametrize(("error", "begun", "expected", "status"), list(faults()))
def test_a_fault_of_the_connection_is_told_without_its_insides(
    error: Exception, begun: bool, expected: type[UpstreamError], status: int
) -> None:
    with pytest.raises(expected) as raised, translated(begun=begun):
        raise error
    assert raised.value.status == status
    assert raised.value.__cause__ is error
    assert "internal" not in raised.value.message
    assert "sk-" not in raised.value.message


def test_only_the_headers_of_the_contract_come_back() -> None:
    kept = {"x-ratelimit-remaining-tokens": "1", "openai-version": "2", "retry-after": "3", "retry-after-ms": "4"}
    others = {"set-cookie": "a", "x-request-id": "b", "server": "c", "content-length": "9", "x-other": "d"}
    assert relayed_headers({**kept, **others}) == kept
    assert relayed_headers({"X-RateLimit-Limit": "5"}) == {"x-ratelimit-limit": "5"}
