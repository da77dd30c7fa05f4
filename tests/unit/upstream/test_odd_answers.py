"""Answers that real providers, and proxies before them, sometimes give: clients get what they can work with."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import product
from typing import Any

import httpx
import pytest

from gateway.core.formats.stream_record import END_SECONDS
from tests.support import odd_answers as odd_wire
from tests.support.answers import Json, stored, user
from tests.support.factory import GatewayFactory
from tests.support.faults.refusals import INSANE, SANE
from tests.support.faults.ways import config
from tests.support.faults.words import ANTHROPIC as ANTHROPIC_WORDS
from tests.support.faults.words import CHAT as CHAT_WORDS
from tests.support.faults.words import RESPONSES as RESPONSES_WORDS
from tests.support.faults.words import Words
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Record
from tests.support.odd_answers import ODD, Odd, chunk, ended, stream_of, thought
from tests.support.odd_clients import CLIENTS, Client, Heard
from tests.support.process import PATIENCE
from tests.support.raw import LAST, SSE_HEAD, End, Forever, event, piece
from tests.support.raw import whole as whole_body
from tests.support.reply import Reply

CHAT: Json = {"model": "gpt-4o", "messages": [user("hello")]}
CHUNK: Json = {"id": "u", "object": "chat.completion.chunk", "created": 1, "model": "m"}
USAGE: Json = {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}
WORD: Json = {**CHUNK, "choices": [{"index": 0, "delta": {"content": "one"}, "finish_reason": None}]}
RATE: Json = {"error": {"message": "slow down", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}}


def ask(gateway: GatewayProcess, **more: Any) -> Any:
    return gateway.post("/chat/completions", json={**CHAT, **more})


# -- the same odd answers at each edge, handed back

PRICES = {
    "input_cost_per_token": 1e-06,
    "output_cost_per_token": 2e-06,
    "cache_read_input_token_cost": 5e-07,
    "cache_creation_input_token_cost": 3e-06,
}


class OddGateway:
    """A gateway before one upstream, which says one odd answer, and then plain ones."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream) -> None:
        self.upstream = upstream
        self.odd: Reply | None = None
        self._root = gateway.url
        self._http = httpx.Client(
            base_url=gateway.base_url, headers={"authorization": "Bearer sk-test"}, trust_env=False, timeout=30
        )
        for words in (CHAT_WORDS, RESPONSES_WORDS, ANTHROPIC_WORDS):
            upstream.routes[f"POST {words.path}"] = lambda _, words=words: self._reply(words)  # type: ignore[misc]

    def _reply(self, words: Words) -> Reply:
        odd, self.odd = self.odd, None
        return odd or Reply(raw=(whole_body(words.body), End.KEEP))

    def ask(self, client: Client, body: Json) -> httpx.Response:
        return self._http.post(client.path, json=body, headers=client.headers)

    def status(self, conversation: str) -> str:
        """Of the last turn."""
        turns = self._http.get(f"/conversations/{conversation}/turns").json()["data"]
        return str(turns[-1]["status"])

    def spent(self) -> Decimal:
        """USD of all bills, as the metrics tell."""
        told = httpx.get(f"{self._root}/metrics", trust_env=False).text
        lines = [line for line in told.splitlines() if line.startswith("gateway_cost_usd_total")]
        return sum((Decimal(line.rpartition(" ")[2]) for line in lines), Decimal(0))

    def close(self) -> None:
        self._http.close()


@pytest.fixture(scope="module")
def odd_gateway(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> Iterator[OddGateway]:
    models = config(module_upstream)["model_list"]
    for model in models:
        model["model_info"] |= PRICES
    found = OddGateway(module_start_gateway({"model_list": models}), module_upstream)
    yield found
    found.close()


CROSSED = (
    "failure: an error in words", "failure: a rate limit before the first word", "failure: a finish reason",
    "failure: of Anthropic's, before the first word", "failure: of Responses, failed",
    "calls: ids of their own", "calls: one function twice under one index", "calls: arguments as an object",
    "calls: of Anthropic's, no ids among blocks that no chat has", "calls: of Responses, one id and an object",
    "signs: a half alone", "text: a refusal", "usage: none", "usage: read, in DeepSeek's words",
    "usage: of Anthropic's, none",
)  # fmt: skip
"""Those that come as a stream where none was asked for, and the other way round."""


def forms() -> Iterator[Any]:
    """Each odd answer in one form to one client in `make test`, in turn; in all of them to all in `make chaos`."""
    for number, (name, odd) in enumerate(ODD.items()):
        found = [(streamed, False) for streamed, told in ((False, odd.whole), (True, odd.events)) if told]
        found += [(False, True), (True, True)] if name in CROSSED else []
        ways = [*product(found, CLIENTS)]
        for place, (form, edge) in enumerate(ways):
            yield pytest.param(name, *form, edge, marks=[] if number % len(ways) == place else pytest.mark.chaos)


@pytest.mark.parametrize(("name", "streamed", "crossed", "edge"), [*forms()])
def test_s1_9_an_odd_answer_is_mended_and_taken_back(
    odd_gateway: OddGateway, name: str, edge: str, streamed: bool, crossed: bool
) -> None:
    """What the client hears is what was meant, in its API's own form; a failure is one. What it sends again, and by
    ids alone, is taken, and goes up as it was handed out."""
    odd, client = ODD[name], CLIENTS[edge]
    comes_whole = streamed is crossed
    odd_gateway.odd = Reply(body=json.dumps(odd.whole).encode()) if comes_whole else Reply(raw_sse=stream_of(odd))
    body = {"model": odd.words, **client.asked(f"{name}, {edge}, {streamed}, {crossed}")}
    include = {"stream_options": {"include_usage": True}} if streamed and edge == "chat" else {}
    answer = odd_gateway.ask(client, {**body, **include, "stream": streamed})
    is_stream = answer.headers["content-type"].startswith("text/event-stream")
    heard = (client.stream if is_stream else client.whole)(answer, strictly=odd.words != "anthropic")
    if odd.fails is not None:
        _check_failure(odd_gateway, odd, heard, begun=streamed and odd.begun and not crossed)
        return
    assert (answer.status_code, heard.error, heard.ended, heard.text) == (200, None, True, odd.text)
    assert [(called, json.loads(given or "{}")) for _, called, given in heard.calls] == _meant(
        odd, wrapped=edge == "messages"
    )
    ids = [call[0] for call in heard.calls]
    assert all(ids)
    assert len({*ids}) == len(ids)
    assert odd.ids is None or (*ids,) == odd.ids
    _check_usage(odd, client, heard)
    for following in (client.delta(body, heard), client.next(body, heard)):
        again = odd_gateway.ask(client, following)
        assert again.status_code == 200, again.text
        assert client.whole(again, strictly=False).conversation == heard.conversation
        sent = odd_gateway.upstream.requests[-1].body
        assert _calls_sent(sent) == [(i, n, json.loads(a or "{}")) for i, n, a in heard.calls], sent


def _meant(odd: Odd, *, wrapped: bool) -> list[tuple[str, Any]]:
    """`wrapped`: arguments that are no object stand in one, as text."""

    def told(given: Any) -> Any:
        return {"arguments": json.dumps(given)} if wrapped and not isinstance(given, dict) else given

    return [(name, told(given)) for name, given in odd.calls]


def test_s1_9_a_failure_amid_a_stream_that_nobody_asked_for_is_charged(odd_gateway: OddGateway) -> None:
    """What the upstream reported before it is on the bill."""
    said = {"id": "c", "choices": [{"index": 0, "delta": {"content": "half"}}]}
    told = {"id": "c", "choices": [], "usage": {"prompt_tokens": 700, "completion_tokens": 5, "total_tokens": 705}}
    failed = {"error": {"message": "broke", "code": "server_error"}}
    events = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in (said, told, failed))
    odd_gateway.odd = Reply(raw_sse=events)
    before = odd_gateway.spent()
    answer = odd_gateway.ask(CLIENTS["chat"], {"model": "chat", "messages": [{"role": "user", "content": "odd"}]})
    assert answer.status_code >= 500, answer.text
    assert odd_gateway.spent() - before == 700 * Decimal("1e-06") + 5 * Decimal("2e-06")


def _check_failure(gateway: OddGateway, odd: Odd, heard: Heard, *, begun: bool) -> None:
    assert (heard.error, heard.ended) == (odd.fails, False)
    if begun:
        assert heard.text == odd.text
        assert heard.conversation is not None
        assert gateway.status(heard.conversation) == "partial"
    else:
        assert heard.status == odd.status


def _check_usage(odd: Odd, client: Client, heard: Heard) -> None:
    cost, told = heard.bill["cost"], json.dumps(heard.usage, default=str)
    assert cost["estimated"] is (odd.usage is None)
    assert "999" not in told
    assert ": -" not in told
    if odd.usage is None:
        assert heard.bill["usage"]["prompt_tokens"] > 0
        assert heard.bill["usage"]["completion_tokens"] > 0
        return
    prompt, completion, read, written = (odd.usage[name] for name in ("prompt", "completion", "read", "written"))
    assert (heard.bill["usage"]["prompt_tokens"], heard.bill["usage"]["completion_tokens"]) == (prompt, completion)
    cents = (prompt - read - written) * Decimal("1e-06") + read * Decimal("5e-07") + written * Decimal("3e-06")
    assert cost["total_cost"] == cents + completion * Decimal("2e-06")
    cache = client.cache(heard.usage)
    assert cache is None or cache == (read, written)


def _calls_sent(body: Any) -> list[tuple[str, str, Any]]:
    """The calls that go up, in the words of any API."""
    found: list[tuple[str, str, Any]] = []
    for each in body.get("messages") or body.get("input"):
        if each.get("type") == "function_call":
            found.append((each["call_id"], each["name"], json.loads(each["arguments"] or "{}")))
        for call in each.get("tool_calls") or ():
            function = call["function"]
            found.append((call["id"], function["name"], json.loads(function["arguments"] or "{}")))
        blocks = each.get("content") if isinstance(each.get("content"), list) else []
        found += [(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"]
    return found


# -- thoughts as parts of contents


SHOWN: dict[str, Json] = {
    "chat": {"reasoning_content": "hm, well"},
    "responses": {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm, well"}]},
    "messages": {"type": "thinking", "thinking": "hm, well"},
}


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("calls", [False, True], ids=["words", "calls"])
@pytest.mark.parametrize("edge", CLIENTS)
def test_s1_9_thoughts_in_parts_are_thoughts_and_go_up_in_parts(
    odd_gateway: OddGateway, edge: str, calls: bool, streamed: bool
) -> None:
    """Mistral's: each API shows them as its own, and their model gets them back as it said them, from a client that
    keeps them, from one that names the conversation, and of a text as it was. A stream comes first: it tells, too, that
    the model thinks so."""
    client = CLIENTS[edge]
    message: Json = {"content": [thought("hm, "), thought("well"), {"type": "text", "text": "so it is"}]}
    pieces: list[Json] = [{"content": [thought(piece)]} for piece in ("hm, ", "well")]
    pieces += [{"content": [{"type": "text", "text": "so "}]}, {"content": "it is"}]
    made = odd_wire.call("abcdefgh1", "f", "{}")
    if calls:
        message["tool_calls"] = [made]
        pieces.append({"tool_calls": [{"index": 0, **made}]})
    finish = "tool_calls" if calls else "stop"
    events = [*map(chunk, pieces), *ended(finish)]
    odd = Odd(whole=odd_wire.answer(message, finish), events=events)
    odd_gateway.odd = Reply(raw_sse=stream_of(odd)) if streamed else Reply(body=json.dumps(odd.whole).encode())
    body = {"model": "chat", **client.asked(f"think, {edge}, {calls}, {streamed}")}
    got = odd_gateway.ask(client, {**body, "stream": streamed})
    heard = (client.stream if streamed else client.whole)(got)
    assert (heard.text, len(heard.calls)) == ("so it is", calls)
    if not streamed:
        shown = heard.said if edge == "chat" else heard.said[0]
        assert shown.items() >= SHOWN[edge].items()
    is_kept = not streamed or edge == "responses"  # the others' clients keep of a stream what they know
    for following in (client.delta(body, heard), *([client.next(body, heard)] if is_kept else [])):
        assert odd_gateway.ask(client, following).status_code == 200
        sent = odd_gateway.upstream.requests[-1].body["messages"][1]
        assert sent["content"] == [thought("hm, well"), {"type": "text", "text": "so it is"}]
        assert "reasoning_content" not in sent
        assert len(sent.get("tool_calls") or ()) == calls


# -- no choices


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "x", "object": "chat.completion"},
        {"choices": None},
        {"choices": []},
        {"choices": {}},
        {"choices": "x"},
        {"choices": True},
        {"choices": [{"index": 0, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "message": None, "finish_reason": "stop"}]},
    ],
    ids=json.dumps,
)
def test_s7_an_answer_without_choices(one_gateway: GatewayProcess, upstream: MockUpstream, body: Json) -> None:
    """Not an empty success: 502 `upstream_invalid_response`, whatever the client speaks."""
    upstream.reply(json=body)
    told = one_gateway.post("/responses", json={"model": "gpt-4o", "input": "hello"})
    assert (told.status_code, told.json()["error"]["code"]) == (502, "upstream_invalid_response")
    upstream.reply(json=body)
    answer = ask(one_gateway)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid_response")
    assert stored(one_gateway, answer.headers["x-request-id"])["status"] == "failed"


@pytest.mark.parametrize(
    "events",
    [
        (),
        ({**CHUNK, "choices": []},),
        ({**CHUNK, "choices": [], "usage": USAGE},),
        ({**CHUNK, "choices": None},),
        ({},),
    ],
    ids=["nothing", "empty choices", "usage alone", "choices of null", "no fields"],
)
def test_s7_a_stream_without_choices(one_gateway: GatewayProcess, upstream: MockUpstream, events: Any) -> None:
    """The same before anything was streamed, so that the client gets a status: no made-up answer."""
    upstream.reply(raw=[SSE_HEAD, *map(event, events), event(b"[DONE]"), LAST, End.KEEP])
    answer = ask(one_gateway, stream=True)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid_response")
    assert stored(one_gateway, answer.headers["x-request-id"])["status"] == "failed"


# -- when to try again


@pytest.mark.parametrize("name", [*SANE, *INSANE])
@pytest.mark.parametrize("path", ["/chat/completions", "/embeddings"])
def test_s7_only_a_sane_wait_is_relayed(
    one_gateway: GatewayProcess, upstream: MockUpstream, name: str, path: str
) -> None:
    """Seconds or a date within seven days; all else is dropped, and the error comes without it. Relayed paths alike."""
    value = (SANE | INSANE)[name].encode().decode("latin-1")
    upstream.reply(status=429, json=RATE, headers={"retry-after": value})
    upstream.routes["POST /v1/embeddings"] = upstream.reply(status=429, json=RATE, headers={"retry-after": value})
    answer = one_gateway.post(path, json={**CHAT, "input": "x"})
    assert (answer.status_code, answer.json()) == (429, RATE)
    assert answer.headers.get("retry-after") == (value if name in SANE else None)


@pytest.mark.parametrize(("value", "kept"), [("1500", True), ("-5", False), ("NaN", False), ("999999999999", False)])
def test_s7_only_sane_milliseconds_are_relayed(
    one_gateway: GatewayProcess, upstream: MockUpstream, value: str, kept: bool
) -> None:
    upstream.reply(status=429, json=RATE, headers={"retry-after-ms": value})
    assert ask(one_gateway).headers.get("retry-after-ms") == (value if kept else None)


# -- what ends a line

SIGNS = "\u2028 \u2029 \x85 \x0b \x0c \x1c \x1d \x1e \x7f \x9f – é 漢 \U0001f600"


@pytest.mark.parametrize("written", ["escaped", "raw"])
def test_s6_nothing_in_an_event_ends_a_line(one_gateway: GatewayProcess, upstream: MockUpstream, written: str) -> None:
    """Clients split streams by every line end that Unicode knows: whatever the upstream wrote, these are escaped."""
    word = {**CHUNK, "choices": [{"index": 0, "delta": {"content": SIGNS}, "finish_reason": None}]}
    last = {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    data = [json.dumps(chunk, ensure_ascii=written == "escaped").encode() for chunk in (word, last)]
    upstream.reply(raw=[SSE_HEAD, *map(event, data), event(b"[DONE]"), LAST, End.KEEP])
    text = ask(one_gateway, stream=True).content.decode()
    assert not set(text) & set("\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\x7f\x9f")
    assert "é 漢 \U0001f600" in text, "what is harmless stays as it is"
    lines = [line for line in text.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line != "data: [DONE]"]
    said = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert said == SIGNS


# -- upstreams that drip

IDLE = 0.8
"""Longer than a loaded machine lets a process wait, so that a steady drip never looks like silence."""
COMMENT = piece(b": OPENROUTER PROCESSING\n\n")
DRIPS: dict[str, tuple[Any, bool]] = {
    "a line that never ends": (Forever(piece(b"x"), 0.05), True),
    "an event that never ends": (Forever(piece(b"data: x\n"), 0.05), True),
    "a comment that never ends": (Forever(piece(b":"), 0.05), True),
    "blanks": (Forever(piece(b" "), 0.05), True),
    "comments": (Forever(COMMENT, 0.05), False),
    "comments in halves": (Forever(piece(b" x\n\n:"), 0.05), False),
    "empty lines": (Forever(piece(b"\n"), 0.05), False),
}


SILENT: Json = {"server": {"keepalive": 0}}
"""No signs of life: on a busy machine one may go out before the status that is expected."""


@pytest.fixture(scope="module")
def module_dripped(module_start_gateway: GatewayFactory) -> GatewayProcess:
    return module_start_gateway({**SILENT, "upstream": {"first_byte": 600, "idle": IDLE}})


def asked_at_once(
    gateway: GatewayProcess, upstream: MockUpstream, cases: Mapping[str, tuple[list[Any], Json]]
) -> Iterator[tuple[str, httpx.Response]]:
    """The answer in each case, which is what upstream does, and what is asked for: time runs for all alike. An upstream
    that keeps no connection has been left."""

    def steps(record: Record) -> list[Any]:
        return cases[record.body["messages"][0]["content"]][0]

    upstream.handler = lambda record: Reply(raw=steps(record))
    with ThreadPoolExecutor(len(cases)) as pool:
        answers = {name: pool.submit(ask, gateway, messages=[user(name)], **more) for name, (_, more) in cases.items()}
        yield from ((name, answer.result()) for name, answer in answers.items())
    assert len(upstream.chats) == len(cases)
    assert all(each.disconnected.wait(PATIENCE) for each in upstream.chats if steps(each)[-1] is not End.KEEP)


@pytest.mark.parametrize("begun", [False, True], ids=["from the first byte on", "in the middle"])
def test_s7_an_event_that_is_never_finished_is_given_up(
    module_dripped: GatewayProcess, upstream: MockUpstream, begun: bool
) -> None:
    """After `idle`, although bytes keep coming; by `first_byte` the client would have left. Whole comments keep a
    stream alive: providers send them while a model thinks."""
    start = [SSE_HEAD, *([event(WORD)] if begun else [])]
    answered = [piece(b"\n\n"), *([] if begun else [event(WORD)]), event(b"[DONE]"), LAST, End.KEEP]
    cases: dict[str, tuple[list[Any], Json]] = {
        name: ([*start, *([drip] if given_up else [drip.data, drip.pause] * 30 + answered)], {"stream": True})
        for name, (drip, given_up) in DRIPS.items()
    }
    for name, answer in asked_at_once(module_dripped, upstream, cases):
        given_up = DRIPS[name][1]
        assert answer.status_code == (504 if given_up and not begun else 200), name
        assert ("upstream_timeout" in answer.text) == given_up, name
        assert answer.text.endswith("data: [DONE]\n\n") != given_up, name


@pytest.fixture(scope="module")
def hasty_gateway(module_start_gateway: GatewayFactory) -> GatewayProcess:
    return module_start_gateway({**SILENT, "upstream": {"first_byte": 2, "idle": IDLE}})


def whole(status: bytes) -> bytes:
    """The head of an answer in JSON."""
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    return head % status


GZIPPED = SSE_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
NAMED = b"\x1f\x8b\x08\x08\0\0\0\0\0\xff"
"""gzip's header may name a file, and the name may go on for ever."""
ENDLESS: dict[str, tuple[list[Any], bool, int]] = {
    "blanks before an answer": ([whole(b"200 OK"), Forever(piece(b" "), 0.05)], False, 504),
    "no stream": ([whole(b"200 OK"), Forever(piece(b"{"), 0.05)], True, 504),
    "an error": ([whole(b"500 Oh"), Forever(piece(b"x"), 0.05)], False, 500),
    "an error instead of a stream": ([whole(b"429 Wait"), Forever(piece(b" "), 0.05)], True, 429),
    "compressed bytes that become nothing": ([GZIPPED, piece(NAMED), Forever(piece(b"x"), 0.05)], True, 504),
    "digits of a piece's length": ([SSE_HEAD, Forever(b"0", 0.05)], True, 504),
    "such digits behind a word": ([SSE_HEAD, event(WORD), Forever(b"0", 0.05)], True, 200),
}


def test_s7_what_is_never_finished_is_given_up(hasty_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Blanks, which some providers send while they think, are no beginning of an answer. Of an error the status is
    told; its words are waited for no longer than `idle`. Bytes that are none of the answer's break no silence."""
    cases: dict[str, tuple[list[Any], Json]] = {
        name: (steps, {"stream": streamed}) for name, (steps, streamed, _) in ENDLESS.items()
    }
    for name, answer in asked_at_once(hasty_gateway, upstream, cases):
        status = ENDLESS[name][2]
        code = f"upstream_{status if status in (429, 500) else 'timeout'}"
        assert answer.status_code == status, name
        assert code in answer.text if status == 200 else answer.json()["error"]["code"] == code, name


def test_s7_blanks_keep_an_answer_alive_that_comes(hasty_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    blanks = [step for _ in range(20) for step in (piece(b"\n"), 0.05)]
    done = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}
    upstream.reply(raw=[whole(b"200 OK"), *blanks, piece(json.dumps(done).encode()), LAST, End.KEEP])
    answer = ask(hasty_gateway)
    assert answer.json()["choices"][0]["message"]["content"] == "hi"


def chunk_of(index: int, text: str | None, usage: Json | None = None) -> bytes:
    """The event of a word of a choice, or of its end."""
    choice = {"index": index, "delta": {"content": text} if text else {}, "finish_reason": None if text else "stop"}
    return event({**CHUNK, "choices": [choice], **({"usage": usage} if usage else {})})


TOLD: Json = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
FINISHED = [chunk_of(0, "hi"), chunk_of(0, None, TOLD)]
MESSAGE: Json = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
SAID = json.dumps({"id": "u", "choices": [MESSAGE], "usage": TOLD}).encode()


WHOLE: dict[str, tuple[list[Any], bool]] = {
    "a stream": ([SSE_HEAD, *FINISHED], False),
    "a stream called JSON": ([whole(b"200 OK"), piece(b"\n"), *FINISHED], False),
    "JSON": ([whole(b"200 OK"), piece(SAID)], False),
    "a stream as asked": ([SSE_HEAD, *FINISHED], True),
    "JSON for a stream": ([whole(b"200 OK"), piece(SAID)], True),
    "JSON called a stream": ([SSE_HEAD, piece(SAID)], True),
}


def test_s7_an_answer_that_is_whole_does_not_wait_for_its_connection(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """What says its finish and its usage is over, as asked or not, though the upstream neither says so nor leaves:
    its time-outs are minutes."""
    cases: dict[str, tuple[list[Any], Json]] = {
        name: ([*steps, End.HANG], {"stream": streamed}) for name, (steps, streamed) in WHOLE.items()
    }
    for name, answer in asked_at_once(one_gateway, upstream, cases):
        assert answer.status_code == 200, name
        if WHOLE[name][1]:
            assert '"hi"' in answer.text, name
            assert answer.text.endswith("data: [DONE]\n\n"), name
        else:
            said = answer.json()
            assert said["choices"][0]["message"]["content"] == "hi", name
            assert {each: said["usage"][each] for each in TOLD} == TOLD, name


def test_s7_a_pause_is_no_end(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Of several choices in a stream that nobody asked for the first may be over long before the second. JSON that is
    not whole is waited for, wherever it pauses."""
    second, cut = [chunk_of(1, "ho"), chunk_of(1, None, TOLD)], SAID.index(b"}") + 1
    halves = [whole(b"200 OK"), piece(SAID[:cut]), 2 * END_SECONDS, piece(SAID[cut:]), End.HANG]
    cases: dict[str, tuple[list[Any], Json]] = {
        "between choices": ([SSE_HEAD, *FINISHED, 2 * END_SECONDS, *second, End.HANG], {"n": 2}),
        "behind a bracket": (halves, {}),
    }
    said = {
        name: [choice["message"]["content"] for choice in answer.json()["choices"]]
        for name, answer in asked_at_once(one_gateway, upstream, cases)
    }
    assert said == {"between choices": ["hi", "ho"], "behind a bracket": ["hi"]}
