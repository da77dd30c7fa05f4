"""Upstreams that speak Responses and keep no protocol: as those that speak chat completions (guarantee §7, §10.4).

The tables are those of `test_hostile_upstream`, in the words of Responses: answers of the same length, so that they may
stand in any framing.
"""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.acceptance import test_hostile_upstream as chats
from tests.acceptance.test_hostile_upstream import CUT, FLOODS, NO_ANSWER, NOTHING_YET, ODD, checked_failure, error_of
from tests.support.answers import Json, exact, http, stored
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, wait_until
from tests.support.raw import LAST, SSE_HEAD, End, Forever, Step, event, head, piece, whole
from tests.support.reply import Reply

BOTH = chats.BOTH
USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
PART = {"type": "output_text", "text": "one two"}
ITEM: Json = {"type": "message", "content": [PART]}
ANSWER: Json = {"id": "up-1", "status": "completed", "output": [ITEM], "usage": USAGE}
BODY = json.dumps(ANSWER, separators=(",", ":")).encode().ljust(len(chats.BODY))
PATH = "/v1/responses"


def said(text: str) -> Json:
    """An event of a stream."""
    return {"type": "response.output_text.delta", "output_index": 0, "delta": text}


ENDED = {"type": "response.completed", "response": ANSWER}
BEGUN = SSE_HEAD + event(said("one")) + event(said(" two"))
FINISH = event(ENDED) + LAST
STREAM = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in (said("one"), said(" two"), ENDED))
WORDS = {
    chats.BODY: BODY,
    chats.BEGUN: BEGUN,
    chats.FINISH: FINISH,
    event(chats.said(" three")): event(said(" three")),
    json.dumps(chats.said("one two")).encode(): json.dumps(said("one two")).encode(),
}


def in_words_of_responses(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Steps of an upstream that speaks chats, with what they say said otherwise."""
    return tuple(_translated(step) if isinstance(step, bytes) else step for step in steps)


def _translated(step: bytes) -> bytes:
    for chat, other in WORDS.items():
        step = step.replace(chat, other)
    return step


@pytest.fixture(scope="module")
def module_hasty(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    config = chats.times(module_upstream)
    for entry in config["model_list"]:
        entry["model_info"] = {**entry.get("model_info", {}), "mode": "responses"}
    return module_start_gateway(config)


class Line:
    """The queue of a mock's answers to requests for a response."""

    def __init__(self, upstream: MockUpstream) -> None:
        self.upstream = upstream
        self.steps: list[tuple[Step, ...]] = []
        upstream.routes[f"POST {PATH}"] = lambda record: Reply(
            raw=self.steps.pop(0) if self.steps else (whole(BODY), End.KEEP)
        )

    @property
    def calls(self) -> int:
        """How often it was asked."""
        return sum(record.path == PATH for record in self.upstream.requests)


@pytest.fixture
def line(upstream: MockUpstream) -> Line:
    return Line(upstream)


@pytest.fixture
def hasty(module_hasty: GatewayProcess, line: Line) -> Iterator[GatewayProcess]:
    """A gateway that waits 0.3 s for anything, and is as good as before after the test."""
    logged = len(module_hasty.log_text())
    yield module_hasty
    wait_until(lambda: line.upstream.in_flight == 0, "the end of all upstream calls")
    after = ask(module_hasty, False)
    assert (after.status_code, after.json()["choices"][0]["message"]["content"]) == (200, "one two")
    assert "Traceback" not in module_hasty.log_text()[logged:], "it was no fault of our own"


def ask(gateway: GatewayProcess, streamed: bool) -> httpx.Response:
    with http(gateway) as client:
        return client.post("/chat/completions", json={**chats.CHAT, "stream": streamed})


@BOTH
@pytest.mark.parametrize("name", NO_ANSWER)
def test_s7_no_answer_at_all(hasty: GatewayProcess, line: Line, name: str, streamed: bool) -> None:
    steps, calls, status, code, charged = NO_ANSWER[name]
    line.steps = [in_words_of_responses(steps)] * calls
    answer = ask(hasty, streamed)
    assert answer.status_code == status
    checked_failure(hasty, answer, status, code, charged=charged)
    assert (line.calls, line.steps) == (calls, [])


@pytest.mark.parametrize("name", CUT)
def test_s7_an_answer_cut_off(hasty: GatewayProcess, line: Line, name: str) -> None:
    steps, code = CUT[name]
    line.steps = [in_words_of_responses(steps)]
    status = 504 if code == "timeout" else 502
    checked_failure(hasty, ask(hasty, False), status, f"upstream_{code}", charged=True)
    assert line.calls == 1


OF_CHATS_ALONE = ("choices that are none",)
STREAMS_CUT: dict[str, tuple[tuple[Step, ...], str]] = {
    **{name: value for name, value in chats.STREAMS_CUT.items() if name not in OF_CHATS_ALONE},
}


@pytest.mark.parametrize("name", STREAMS_CUT)
def test_s7_a_stream_that_does_not_end_well(hasty: GatewayProcess, line: Line, name: str) -> None:
    steps, code = STREAMS_CUT[name]
    line.steps = [in_words_of_responses(steps)]
    answer = ask(hasty, True)
    assert answer.status_code == 200, answer.text
    events = [exact(each.removeprefix("data: ")) for each in answer.text.removesuffix("\n\n").split("\n\n")]
    text = "".join(each["choices"][0]["delta"].get("content") or "" for each in events[:-1])
    assert text == "one two"
    assert error_of(answer)["code"] == f"upstream_{code}"
    bill = stored(hasty, events[0]["id"])
    assert (bill["status"], bill["choices"][0]["message"]["content"]) == ("partial", "one two")
    assert bill["response_metadata"]["cost"]["estimated"] is True
    assert line.calls == 1


@pytest.mark.parametrize("name", NOTHING_YET)
def test_s7_a_stream_that_never_says_anything(hasty: GatewayProcess, line: Line, name: str) -> None:
    steps, status, code = NOTHING_YET[name]
    line.steps = [in_words_of_responses(steps)]
    checked_failure(hasty, ask(hasty, True), status, code, charged=True)
    assert line.calls == 1


BYTEWISE = ("byte by byte", "chunk extensions and trailers", "compressed although identity was asked")
"""Answers that are not whole in one step."""


@pytest.mark.parametrize("name", [name for name in ODD if name not in BYTEWISE])
def test_s7_odd_but_an_answer(hasty: GatewayProcess, line: Line, name: str) -> None:
    line.steps = [in_words_of_responses(ODD[name])]
    answer = ask(hasty, False)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "one two"
    assert answer.json()["response_metadata"]["usage"] == chats.USAGE


ODD_STREAMS: dict[str, tuple[Step, ...]] = {
    "silence after the end": (BEGUN, event(ENDED), End.HANG),
    "more and more after the end": (BEGUN, event(ENDED), Forever(event(said("no!")))),
    "[DONE] after the end": (BEGUN, event(ENDED), event(b"[DONE]"), LAST, End.KEEP),
    "[DONE] in place of the end": (BEGUN, event(b"[DONE]"), LAST, End.KEEP),
    "a close after the end": (head(kind="text/event-stream"), STREAM, End.CLOSE),
    "a wrong content type": (whole(STREAM, kind="text/plain"), End.KEEP),
    "no content type": (whole(STREAM, kind=None), End.KEEP),
    "byte by byte": (head(kind="text/event-stream"), *(b"%c" % byte for byte in STREAM), End.CLOSE),
    "named events": (BEGUN, piece(b"event: response.completed\n"), FINISH, End.KEEP),
    "comments for a while": (
        *(
            SSE_HEAD,
            piece(b": ping\n\n"),
            0.1,
            piece(b": ping\n\n"),
            0.1,
            BEGUN.removeprefix(SSE_HEAD),
            FINISH,
            End.KEEP,
        ),
    ),
}


@pytest.mark.parametrize("name", ODD_STREAMS)
def test_s7_odd_but_a_stream(hasty: GatewayProcess, line: Line, name: str) -> None:
    line.steps = [ODD_STREAMS[name]]
    answer = ask(hasty, True)
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n"), answer.text
    events = [exact(each.removeprefix("data: ")) for each in answer.text.split("\n\n")[:-2]]
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in events) == "one two"


@pytest.mark.parametrize("name", FLOODS)
def test_s7_a_flood(hasty: GatewayProcess, line: Line, name: str) -> None:
    streamed, steps = FLOODS[name]
    line.steps = [in_words_of_responses(steps)]
    before = hasty.rss_mb()
    answer = ask(hasty, streamed)
    expected = {"upstream_500"} if "error" in name else {"upstream_invalid_response", "upstream_timeout"}
    assert error_of(answer)["code"] in expected
    assert line.upstream.requests[-1].disconnected.wait(PATIENCE)
    assert hasty.peak_mb() - before < 260, "memory is bounded"
