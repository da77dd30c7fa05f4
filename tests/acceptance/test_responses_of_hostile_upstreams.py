"""Upstreams that keep no protocol, behind `/v1/responses`: the same errors as behind a chat, in its words (§10.2)."""

from collections.abc import Iterator

import httpx
import pytest

from tests.acceptance.test_hostile_upstream import (
    ANSWER,
    BOTH,
    CUT,
    NO_ANSWER,
    NOTHING_YET,
    ODD,
    ODD_STREAMS,
    STREAMS_CUT,
    USAGE,
    times,
)
from tests.support.answers import Json, http, stored
from tests.support.factory import SMALL_MODEL_INFO, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.strict_responses import check_response, read_events

ASK: Json = {"model": "small", "input": "hello"}


@pytest.fixture(scope="module")
def module_hasty(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    settings = times(module_upstream)
    chats = {**SMALL_MODEL_INFO, "supported_endpoints": ["/v1/chat/completions"]}
    (small,) = (each for each in settings["model_list"] if each["model_name"] == "small")
    return module_start_gateway({**settings, "model_list": [{**small, "model_info": chats}]})


@pytest.fixture
def hasty(module_hasty: GatewayProcess, upstream: MockUpstream) -> Iterator[GatewayProcess]:
    """A gateway that waits 0.3 s for anything, and is as good as before after the test."""
    logged = len(module_hasty.log_text())
    yield module_hasty
    wait_until(lambda: upstream.in_flight == 0, "the end of all upstream calls")
    assert "Traceback" not in module_hasty.log_text()[logged:], "it was no fault of our own"


def ask(gateway: GatewayProcess, streamed: bool) -> httpx.Response:
    with http(gateway) as client:
        return client.post("/responses", json={**ASK, "stream": streamed})


def check_refused(gateway: GatewayProcess, answer: httpx.Response, status: int, code: str) -> None:
    """An error in OpenAI's shape, and its row in the ledger."""
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert stored(gateway, answer.headers["x-request-id"])["status"] == "failed"


@BOTH
@pytest.mark.parametrize("name", NO_ANSWER)
def test_s10_2_no_answer_at_all(hasty: GatewayProcess, upstream: MockUpstream, name: str, streamed: bool) -> None:
    """The status still says it: nothing has been sent."""
    steps, calls, status, code, _ = NO_ANSWER[name]
    for _ in range(calls):
        upstream.reply(raw=steps)
    check_refused(hasty, ask(hasty, streamed), status, code)


@pytest.mark.parametrize("name", CUT)
def test_s10_2_an_answer_cut_off(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    steps, code = CUT[name]
    upstream.reply(raw=steps)
    check_refused(hasty, ask(hasty, False), 504 if code == "timeout" else 502, f"upstream_{code}")


@pytest.mark.parametrize("name", NOTHING_YET)
def test_s10_2_a_stream_that_never_says_anything(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """Before its first event an error is a plain one; behind the head it is an event, alone."""
    steps, status, code = NOTHING_YET[name]
    upstream.reply(raw=steps)
    answer = ask(hasty, True)
    if answer.headers["content-type"].startswith("text/event-stream"):
        (event,) = read_events(answer.text)
        assert (event["type"], event["code"]) == ("error", code)
    else:
        check_refused(hasty, answer, status, code)


@pytest.mark.parametrize("name", STREAMS_CUT)
def test_s10_2_a_stream_that_does_not_end_well(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """`error`, then `response.failed` with what was delivered; the turn is `partial`."""
    steps, code = STREAMS_CUT[name]
    upstream.reply(raw=steps)
    events = read_events(ask(hasty, True).text)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["code"] == f"upstream_{code}"
    response = events[-1]["response"]
    assert response["output"][0]["content"][0]["text"] == "one two"
    assert stored(hasty, response["id"].replace("resp_", "chatcmpl-"))["status"] == "partial"


@pytest.mark.parametrize("name", ODD)
def test_s10_2_odd_but_an_answer(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """What can be understood is understood."""
    upstream.reply(raw=ODD[name])
    found = check_response(ask(hasty, False).json())
    assert found.output_text == ANSWER["choices"][0]["message"]["content"]
    assert found.usage is not None
    assert found.usage.input_tokens == USAGE["prompt_tokens"]


@pytest.mark.parametrize("name", ODD_STREAMS)
def test_s10_2_odd_but_a_stream(hasty: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """What can be understood is understood."""
    upstream.reply(raw=ODD_STREAMS[name])
    last = read_events(ask(hasty, True).text)[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["output"][0]["content"][0]["text"] == "one two"
