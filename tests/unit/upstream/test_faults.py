"""Foreign faults translated once (guarantee §7)."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gateway.core import errors
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.http.mending import fit_headers, refusal, relayed_headers
from gateway.upstream.http_client import NotHttp, translated
from tests.support.faults.overflows import OVERFLOWS

OWN = ModelDeployment("m", "m", "openai/m", "http://x/v1", "sk-secret", operator_key=True)
CLIENTS = ModelDeployment("m", "m", "openai/m", "http://x/v1", "sk-client", operator_key=False)


def saying(message: str, **more: Any) -> Any:
    return {"error": {"message": message, **more}}


RATE: Any = {"type": "tokens", "code": "rate_limit_exceeded"}
OTHERS: dict[str, tuple[int, Any]] = {
    "a bad field": (400, saying("Unknown field 'x'", code=None, param="x")),
    "a rate limit that names tokens": (429, saying("Too many tokens per minute", code="rate_limit")),
    "OpenAI's rate of tokens": (429, saying(
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 31538. The input or output "
        "tokens must be reduced.", **RATE,
    )),
    "Groq's rate of tokens": (413, saying(
        "Request too large for model `llama` on tokens per minute (TPM): Limit 6000, Requested 14368, please reduce "
        "your message size and try again.", **RATE,
    )),
    "a rate that speaks like an overflow": (400, saying("Rate limit: too many tokens per minute")),
    "Bedrock's rate of tokens": (429, {"message": "Too many tokens, please wait before trying again."}),
    "an answer that would be too long": (400, saying(
        "max_tokens is too large: 20000. This model supports at most 16384 completion tokens", param="max_tokens",
    )),
    "another field that is too long": (400, saying(
        "Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length 90 "
        "instead.", param="user", code="string_above_max_length",
    )),
    "a body of too many bytes": (
        413, {"type": "error", **saying("Request exceeds the maximum size", type="request_too_large")},
    ),
    "a filter": (400, saying("The response was filtered", code="content_filter")),
    "overloaded": (529, {"type": "error", **saying("Overloaded", type="overloaded_error")}),
    "a fault": (500, saying("internal")),
    "not found": (404, saying("The model does not exist", code="model_not_found")),
}  # fmt: skip


ALONE = {"Gemini's list": 1048576, "DashScope": 30720, "GitHub Models": 8000}
"""Limits of errors that name no more than that."""
IN_CHARACTERS = ("OpenAI, one long text",)
IN_OPENAIS_WORDS = ("OpenAI", "DeepSeek")


def refused(status: int, original: Any, deployment: ModelDeployment = OWN, **headers: str) -> errors.UpstreamError:
    raw = original.encode() if isinstance(original, str) else json.dumps(original).encode()
    return refusal(status, raw, {k.replace("_", "-"): v for k, v in headers.items()}, deployment)


def test_s7_the_operators_key_is_hidden_and_a_key_that_is_a_word_is_not() -> None:
    """Whatever the status, in what an error quotes. A local server's key is often `none`."""
    for status in (400, 500):
        quoting = refused(status, {"error": {"message": "the key sk-secret may not do this"}})
        assert quoting.body()["error"]["message"] == "the key *** may not do this"
    error = refused(400, {"error": {"message": "say 'none'"}}, replace(OWN, api_key="none", operator_key=True))
    assert error.body()["error"]["message"] == "say 'none'"


@pytest.mark.parametrize(("name", "status", "original", "tokens"), [(n, *row) for n, row in OVERFLOWS.items()])
def test_every_providers_overflow_is_context_length_exceeded(
    name: str, status: int, original: Any, tokens: tuple[int | None, int | None]
) -> None:
    error = refused(status, original)
    assert isinstance(error, errors.UpstreamOverflow)
    assert (error.reported, error.limit or 0) == (tokens[0], tokens[1] or ALONE.get(name, 0))
    assert error.status == 400
    body = error.body()["error"]
    assert (body["code"], body["type"]) == ("context_length_exceeded", "invalid_request_error")
    error.explain(777, 888)
    limit, taken = (777, 888) if name in IN_CHARACTERS else (error.limit or 777, error.reported or 888)
    took = taken if taken > limit else "more"  # 888 is by our count, which is not the provider's
    words = f"This model's maximum context length is {limit} tokens. However, your messages resulted in {took} tokens."
    said = error.body()["error"]["message"]
    assert said == (original["error"]["message"] if name in IN_OPENAIS_WORDS else words)


@pytest.mark.parametrize(("status", "original"), OTHERS.values(), ids=list(OTHERS))
def test_other_errors_keep_status_body_and_retry_after(status: int, original: Any) -> None:
    error = refused(status, original, retry_after="7", x_ratelimit_limit="5", set_cookie="a=b")
    assert type(error) is errors.UpstreamRefused
    assert error.status == status
    told = error.body()
    assert told.get("error", {}).get("upstream", told) == original
    assert error.headers == {"retry-after": "7", "x-ratelimit-limit": "5"}


@pytest.mark.parametrize(
    ("original", "message"),
    [
        ({"error": "just a text"}, "just a text"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"message": "flat"}, "flat"),
        ([{"error": {"message": "in a list"}}], "in a list"),
        ({"error": {"message": ""}}, "The upstream answered with status 503."),
        ({"detail": [{"msg": "x"}]}, "The upstream answered with status 503."),
        ("<html>secret</html>", "The upstream answered with status 503."),
        ([], "The upstream answered with status 503."),
        (None, "The upstream answered with status 503."),
    ],
)
def test_the_message_is_the_providers_wherever_it_stands(original: Any, message: str) -> None:
    assert refused(503, original).message == message


@pytest.mark.parametrize(
    ("original", "status"),
    [
        ({"error": {"message": "slow down", "code": 429}}, 429),
        ({"error": {"message": "slow down", "code": "429"}}, 429),
        ({"error": {"message": "x", "status": 503}}, 503),
        ({"error": {"message": "x", "code": "server_error"}}, 502),
        ({"error": {"message": "x", "code": 200}}, 502),
        ({"error": {"message": "x", "code": True}}, 502),
        ({"error": "x"}, 502),
    ],
)
def test_an_error_in_a_good_answer_names_its_status_or_is_a_502(original: Any, status: int) -> None:
    assert refused(200, original).status == status
    assert refused(500, original).status == 500, "a status that is an error stands"


def test_an_overflow_in_a_good_answer_is_one() -> None:
    original = {"error": {"message": "This endpoint's maximum context length is 32768 tokens.", "code": 400}}
    assert isinstance(refused(200, original), errors.UpstreamOverflow)


@pytest.mark.parametrize(
    "original",
    [
        *("<html>down</html>", "", {"detail": "no"}, ["x"], {"error": "text"}, {"error": {"errors": ["no"]}}),
        *({"error": {"message": {"a": 1}, "type": "x"}}, {"error": {"message": None, "code": "c"}}),
    ],
)
def test_a_body_that_is_not_openai_shaped_is_wrapped_with_the_original(original: Any) -> None:
    body = refused(503, original).body()["error"]
    assert set(body) == {"message", "type", "param", "code", "upstream"}
    assert body["upstream"] == original
    assert body["message"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_operators_key_is_a_502_without_the_body_and_a_clients_own_is_passed_on(status: int) -> None:
    original = {"error": {"message": "Incorrect API key provided: sk-secret", "code": "invalid_api_key"}}
    error = refused(status, original)
    assert isinstance(error, errors.UpstreamAuth)
    assert (error.status, error.code) == (502, "upstream_auth")
    assert "sk-" not in json.dumps(error.body())
    own = refused(status, original, CLIENTS)
    assert (own.status, own.body()) == (status, original)


def fault(kind: type[httpx.RequestError]) -> httpx.RequestError:
    return kind(
        "sk-secret at http://internal", request=httpx.Request("POST", "http://sk-user@internal/hidden?hidden=1")
    )


def faults() -> Iterator[tuple[Exception, bool, type[errors.UpstreamError], int]]:
    yield fault(httpx.ConnectError), False, errors.UpstreamUnreachable, 502
    yield fault(httpx.ConnectTimeout), False, errors.UpstreamUnreachable, 502
    yield fault(httpx.RemoteProtocolError), False, errors.UpstreamUnreachable, 502
    yield fault(httpx.ReadError), False, errors.UpstreamUnreachable, 502
    yield fault(httpx.UnsupportedProtocol), False, errors.UpstreamUnreachable, 502
    yield fault(httpx.DecodingError), True, errors.UpstreamInvalidResponse, 502
    yield httpx.InvalidURL("bad"), False, errors.UpstreamUnreachable, 502
    yield fault(httpx.ReadTimeout), False, errors.UpstreamTimeout, 504
    yield fault(httpx.ReadTimeout), True, errors.UpstreamTimeout, 504
    yield fault(httpx.PoolTimeout), False, errors.UpstreamTimeout, 504
    yield fault(httpx.ReadError), True, errors.UpstreamInterrupted, 502
    yield fault(httpx.RemoteProtocolError), True, errors.UpstreamInterrupted, 502


@pytest.mark.parametrize(("error", "begun", "expected", "status"), list(faults()))
def test_a_fault_of_the_connection_is_told_without_its_insides(
    error: Exception, begun: bool, expected: type[errors.UpstreamError], status: int
) -> None:
    with pytest.raises(expected) as raised, translated(begun=begun):
        raise error
    assert raised.value.status == status
    assert raised.value.__cause__ is error
    assert "hidden" not in raised.value.message
    assert "sk-" not in raised.value.message


def test_an_answer_that_is_not_http_is_no_fault_of_our_own() -> None:
    for begun in (False, True):
        with pytest.raises(errors.UpstreamInvalidResponse), translated(begun=begun):
            raise NotHttp("rubbish")


def test_only_the_headers_of_the_contract_come_back() -> None:
    kept = {"x-ratelimit-remaining-tokens": "1", "openai-version": "2", "retry-after": "3", "retry-after-ms": "4"}
    others = {"set-cookie": "a", "x-request-id": "b", "server": "c", "content-length": "9", "x-other": "d"}
    assert relayed_headers({**kept, **others}, OWN) == kept
    assert relayed_headers({"X-RateLimit-Limit": "5"}, OWN) == {"x-ratelimit-limit": "5"}


def test_s7_a_header_that_quotes_the_operators_key_does_not_come_back() -> None:
    """Neither from a call nor from a relayed one."""
    quoting = {"openai-debug": "used sk-secret now", "x-ratelimit-key": "sk-secret"}
    operators = replace(OWN, api_key="sk-secret", operator_key=True)
    assert relayed_headers({**quoting, "openai-version": "2"}, operators) == {"openai-version": "2"}
    raw = [(b"x-debug", b"sk-secret"), (b"x-other", b"1")]
    assert fit_headers(raw, operators) == [(b"x-other", b"1")]
    clients = replace(OWN, api_key="sk-secret", operator_key=False)
    assert relayed_headers(quoting, clients) == quoting, "a client knows its own key"
