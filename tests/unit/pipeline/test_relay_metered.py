"""What relayed calls cost stands on the ledger, and nothing of them changes for that (guarantee §13.8)."""

import base64
import contextlib
import gzip
import json
import zlib
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, usage_of
from tests.support.command import gateway_command
from tests.support.factory import ClientFactory, GatewayFactory, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.metered_relay import audited, billed, form, post
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import wait_until
from tests.support.relayed import (
    COMPLETION_USAGE,
    before_usage,
    bill,
    completion,
    completion_events,
    events,
    text_choice,
    total,
)

pytestmark = pytest.mark.in_turn("encoding")

TEXT = {"input_cost_per_token": "2e-06", "output_cost_per_token": "8e-06", "cache_read_input_token_cost": "5e-07"}
PRICES: dict[str, Json] = {
    "priced": {**TEXT, "output_cost_per_token_flex": "4e-06", "input_cost_per_token_flex": "1e-06"},
    "embedder": {"input_cost_per_token": "2e-08"},
    "speaker": {"input_cost_per_character": "1.5e-05"},
    "hearer": {"input_cost_per_second": "1e-04"},
    "listener": {**TEXT, "input_cost_per_audio_token": "6e-06"},
    "painter": {
        "input_cost_per_token": "5e-06",
        "input_cost_per_image_token": "1e-05",
        "output_cost_per_image_token": "4e-05",
    },
    "by-piece": {"input_cost_per_image": "0.04"},
    "free": {"input_cost_per_token": 0, "output_cost_per_token": 0},
    "unpriced": {},
}
CACHED_COST = 400 * Decimal("2e-06") + 600 * Decimal("5e-07") + 50 * Decimal("8e-06")


def settings_of_metered(upstream: MockUpstream) -> dict[str, Any]:
    served = {"api_base": upstream.base_url, "api_key": "sk-operator"}
    models = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}-there", **served}, "model_info": info}
        for name, info in PRICES.items()
    ]
    return {"model_list": models, "upstream": {**served, "idle": 1}}


metered = shared_gateway(settings_of_metered)


Case = tuple[str, Json, Any, Decimal | None, tuple[int, int], bool]
SPOKEN = {"type": "tokens", "input_tokens": 14, "output_tokens": 9, "total_tokens": 23}
DRAWN: Json = {"input_tokens": 50, "output_tokens": 4160, "total_tokens": 4210}
IMAGE = {"created": 1, "data": [{"b64_json": base64.b64encode(bytes(300_000)).decode()}]}


def embedded(given: Any, said: Json, tokens: int, *, estimated: bool) -> Case:
    """Embeddings; without a cost where nobody counts tokens."""
    cost = tokens * Decimal("2e-08") if tokens else None
    return "/embeddings", {"model": "embedder", "input": given}, said, cost, (tokens, 0), estimated


def completed(text: str, usage: Json | None, tokens: tuple[int, int], *, estimated: bool) -> Case:
    """A completion of two words, of which so many tokens are billed."""
    said = {"choices": [{"text": text}], **({} if usage is None else {"usage": usage})}
    cost = tokens[0] * Decimal("2e-06") + tokens[1] * Decimal("8e-06")
    return "/completions", {"model": "priced", "prompt": "one two"}, said, cost, tokens, estimated


def of_a_thousand(said: Json, cost: Decimal = CACHED_COST, **body: Any) -> Case:
    """A completion whose usage is that of 1,000 tokens and 50."""
    return "/completions", {"model": "priced", "prompt": "x", **body}, said, cost, (1000, 50), False


def spoken(model: str, text: str, cost: Decimal | None, tokens: int) -> Case:
    """A speech, of which no usage is told."""
    asked = {"model": model, "input": text, "voice": "alloy"}
    return "/audio/speech", asked, b"\xff\xfb\x00sound", cost, (tokens, 0), True


VECTOR = {"object": "list", "data": [{"embedding": [0.1] * 20_000}]}
NO_VECTOR: Json = {"object": "list", "data": []}
EIGHT, NONE = ({"usage": {"prompt_tokens": count, "total_tokens": count}} for count in (8, 0))
WORDS = "three small words"
CASES: dict[str, Case] = {
    "embeddings": embedded("x", {**VECTOR, **EIGHT}, 8, estimated=False),
    "usage before much else": embedded("x", {**EIGHT, **VECTOR}, 8, estimated=False),
    "embeddings without usage": embedded(["one two", "three"], NO_VECTOR, 3, estimated=True),
    "embeddings of a server that does not count": embedded(
        ["one two", "three"], {**NO_VECTOR, **NONE}, 3, estimated=True
    ),
    "embeddings of a picture that nobody counts": embedded(
        [{"type": "image_url", "image_url": "data:,"}], {**NO_VECTOR, **NONE}, 0, estimated=True
    ),
    "free moderations": (
        "/moderations",
        {"model": "free", "input": WORDS},
        {"id": "modr-1", "results": []},
        Decimal(0),
        (3, 0),
        True,
    ),
    "moderations without a price": ("/moderations", {"model": "unpriced", "input": "a b"}, {}, None, (2, 0), True),
    "completions": completed("y", usage_of(5, 7), (5, 7), estimated=False),
    "completions without usage": completed(WORDS, None, (2, 3), estimated=True),
    "completions of a server that does not count what it reads": completed("y", usage_of(0, 7), (2, 7), estimated=True),
    "completions of a server that does not count what it writes": completed(
        WORDS, {"prompt_tokens": 5, "completion_tokens": 0}, (5, 3), estimated=True
    ),
    "completions of a server that tells what it reads alone": completed(
        WORDS, {"prompt_tokens": 5, "total_tokens": 5}, (5, 3), estimated=True
    ),
    "completions of a server that tells what it writes alone": completed(
        "y", {"prompt_tokens": None, "completion_tokens": 7}, (2, 7), estimated=True
    ),
    "completions that wrote nothing, of a server that tells what it reads alone": completed(
        "", {"prompt_tokens": 5}, (5, 0), estimated=True
    ),
    "completions that wrote nothing": completed("", usage_of(5, 0), (5, 0), estimated=False),
    "partly cached completions": of_a_thousand(completion()),
    "a long completion": of_a_thousand(completion(choices=[text_choice('a "b" \\ {' * 50_000)])),
    "completions of another tier": of_a_thousand(
        completion(service_tier="flex", usage={**COMPLETION_USAGE, "prompt_tokens_details": {}}),
        1000 * Decimal("1e-06") + 50 * Decimal("4e-06"),
        service_tier="flex",
    ),
    "a completion of a prompt that is no text": (
        "/completions",
        {"model": "priced", "prompt_embeds": "AAAA"},
        completion(usage=None),
        None,
        (0, 11),
        True,
    ),
    "speech by characters": spoken("speaker", "hällo", 5 * Decimal("1.5e-05"), 3),
    "speech by tokens that nobody tells": spoken("priced", "hello there", None, 2),
    "images": (
        "/images/generations",
        {"model": "painter", "prompt": "a lamp"},
        {**IMAGE, "usage": {**DRAWN, "input_tokens_details": {"text_tokens": 10, "image_tokens": 40}}},
        10 * Decimal("5e-06") + 40 * Decimal("1e-05") + 4160 * Decimal("4e-05"),
        (50, 4160),
        False,
    ),
    "images by the piece": (
        "/images/generations",
        {"model": "by-piece", "prompt": "a lamp", "n": 3},
        IMAGE,
        3 * Decimal("0.04"),
        (2, 0),
        True,
    ),
}


@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate"])
@pytest.mark.parametrize("name", CASES)
def test_s13_8_each_api_by_its_own_usage(
    metered: GatewayProcess, upstream: MockUpstream, name: str, encoding: str
) -> None:
    """Bytes pass unchanged, compressed or not; the bill has model, tokens and the price to the last digit. What is not
    reported is counted, or has no price; it is never 0."""
    path, body, said, cost, tokens, estimated = CASES[name]
    plain = said if isinstance(said, bytes) else json.dumps(said).encode()
    packed = {"identity": plain, "gzip": gzip.compress(plain), "deflate": zlib.compress(plain)}[encoding]
    named = {} if encoding == "identity" else {"content-encoding": encoding}
    upstream.routes[f"POST /v1{path}"] = Reply(body=packed, headers=named)
    with metered.http() as client, client.stream("POST", path, json={**body, "user": "ann"}) as answer:
        assert b"".join(answer.iter_raw()) == packed
    found = billed(metered, answer)
    metadata = found["response_metadata"]
    assert total(found) == cost
    assert metadata["cost"]["priced"] == (cost is not None)
    assert metadata["cost"]["estimated"] is estimated
    assert (metadata["usage"]["prompt_tokens"], metadata["usage"]["completion_tokens"]) == tokens
    assert metadata["routing_path"] == [body["model"], f"openai/{body['model']}-there"]
    assert metadata["endpoint"] == path.split("/")[1]
    assert found["status"] == "complete"


@pytest.mark.parametrize("files_first", [False, True])
def test_s13_8_recordings_by_tokens_or_by_seconds(
    metered: GatewayProcess, own_key_gateway: GatewayProcess, upstream: MockUpstream, files_first: bool
) -> None:
    """Also where the form only flows through, with its fields before the file or behind it."""
    heard = {**SPOKEN, "input_token_details": {"text_tokens": 4, "audio_tokens": 10}}
    upstream.routes["POST /v1/audio/transcriptions"] = Reply(json={"text": "hi", "usage": heard})
    found = billed(metered, form(metered, "/audio/transcriptions", files_first, model="listener"))
    assert total(found) == 4 * Decimal("2e-06") + 10 * Decimal("6e-06") + 9 * Decimal("8e-06")
    upstream.routes["POST /v1/audio/transcriptions"] = Reply(
        json={"text": "hi", "usage": {"type": "duration", "seconds": 12.5}}
    )
    found = billed(metered, form(metered, "/audio/transcriptions", files_first, model="hearer"))
    assert total(found) == Decimal("12.5") * Decimal("1e-04")
    found = billed(own_key_gateway, form(own_key_gateway, "/audio/transcriptions", files_first, model="whisper-1"))
    assert (found["model"], total(found)) == ("whisper-1", Decimal("12.5") * Decimal("0.0001"))
    segments = [{"id": 0, "start": 0.0, "end": 12.5, "text": "h" * 300_000}]
    for verbose in ({"duration": 12.5, "text": "hi"}, {"duration": 12.5, "segments": segments}):
        upstream.routes["POST /v1/audio/transcriptions"] = Reply(json={"task": "transcribe", **verbose})
        found = billed(metered, form(metered, "/audio/transcriptions", files_first, model="hearer"))
        assert (total(found), found["response_metadata"]["cost"]["estimated"]) == (Decimal("0.00125"), False)
    for unknown in (Reply(body=b"hi", content_type="text/plain"), Reply(json={"text": "hi", "duration": "12.5"})):
        upstream.routes["POST /v1/audio/transcriptions"] = unknown
        found = billed(metered, form(metered, "/audio/transcriptions", files_first, model="hearer"))
        assert total(found) is None


COMPLETION = [
    {"id": "cmpl-1", "choices": [{"text": "one two", "index": 0}], "usage": None},
    {"id": "cmpl-1", "choices": [], "usage": usage_of(5, 7)},
]
CHUNKS = b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in COMPLETION)
COMPLETION_COST = 5 * Decimal("2e-06") + 7 * Decimal("8e-06")
PICTURE = {"type": "image_generation.completed", "b64_json": "A" * 400_000, "usage": DRAWN}
COUNTED: Json = {"model": "priced", "prompt": "x", "stream_options": {"include_usage": True}}
STREAMS: dict[str, tuple[str, Json, bytes, Decimal, bool]] = {
    "partly cached completions": ("/completions", COUNTED, completion_events(), CACHED_COST, False),
    "long completions": ("/completions", COUNTED, completion_events("w " * 9000), CACHED_COST, False),
    "a last chunk that is long": (
        "/completions",
        COUNTED,
        completion_events(choices=[text_choice('say "{usage' * 30_000, "stop")]),
        CACHED_COST,
        False,
    ),
    "completions": ("/completions", COUNTED, CHUNKS + b"data: [DONE]\n\n", COMPLETION_COST, False),
    "completions without usage": (
        "/completions",
        {"model": "priced", "prompt": "one two"},
        CHUNKS.split(b"\n\n")[0] + b"\n\ndata: [DONE]\n\n",
        2 * Decimal("2e-06") + 2 * Decimal("8e-06"),
        True,
    ),
    "images": (
        "/images/generations",
        {"model": "painter", "prompt": "a lamp"},
        events({"type": "image_generation.partial_image", "b64_json": "B" * 300_000}, PICTURE),
        50 * Decimal("5e-06") + 4160 * Decimal("4e-05"),
        False,
    ),
    "transcriptions": (
        "/audio/transcriptions",
        {"model": "priced"},
        events({"type": "transcript.text.delta", "delta": "h"}, {"type": "transcript.text.done", "usage": SPOKEN}),
        14 * Decimal("2e-06") + 9 * Decimal("8e-06"),
        False,
    ),
}


@pytest.mark.parametrize("split", [None, 7, 1000])
@pytest.mark.parametrize("name", STREAMS)
def test_s13_8_streams_by_their_last_events(
    metered: GatewayProcess, upstream: MockUpstream, name: str, split: int | None
) -> None:
    """Every byte as it came, however it is split; the bill by the usage of the last event."""
    path, body, stream, cost, estimated = STREAMS[name]
    if split == 7 and len(stream) > 50_000:
        pytest.skip("long streams are not sent in tiny pieces")
    upstream.routes[f"POST /v1{path}"] = Reply(raw_sse=stream, split_bytes=split)
    answer = post(metered, path, {**body, "stream": True})
    assert answer.content == stream
    found = billed(metered, answer)
    assert (total(found), found["response_metadata"]["cost"]["estimated"]) == (cost, estimated)
    assert found["status"] == "complete"


@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n", CHUNKS.split(b"\n\n")[1] + b"\n\ndata: [DONE]\n\n"])
@pytest.mark.parametrize("failure", [{"error": {"message": "boom"}}, completion(choices=[text_choice("", "error")])])
def test_s1_13_a_stream_that_reports_a_failure_is_not_complete(
    metered: GatewayProcess, upstream: MockUpstream, failure: Json, end: bytes
) -> None:
    """Whatever follows: what came before it is billed."""
    stream = CHUNKS.split(b"\n\n")[0] + b"\n\ndata: %s\n\n" % json.dumps(failure).encode() + end
    upstream.routes["POST /v1/completions"] = Reply(raw_sse=stream)
    answer = post(metered, "/completions", {**COUNTED, "stream": True})
    assert answer.content == stream
    found = billed(metered, answer)
    assert found["status"] == "partial"
    assert total(found)


def test_s13_8_the_sdks_own_methods(
    own_key_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """With the client's own key and no configuration: models by their public names at their public prices."""
    client = make_client(own_key_gateway, api_key="sk-test")
    upstream.routes["POST /v1/audio/speech"] = Reply(body=b"sound", content_type="audio/mpeg")
    upstream.routes["POST /v1/images/generations"] = Reply(json={**IMAGE, "usage": DRAWN})
    done = CASES["completions"][2]
    upstream.routes["POST /v1/completions"] = Reply(json={"id": "cmpl-1", "object": "text_completion", **done})
    calls: list[tuple[Any, Json, Decimal]] = [
        (client.embeddings, {"model": "text-embedding-3-small", "input": "one two"}, 2 * Decimal("2e-08")),
        (client.completions, {"model": "gpt-3.5-turbo-instruct", "prompt": "hi"}, Decimal("0.0000215")),
        (client.audio.speech, {"model": "tts-1", "voice": "alloy", "input": "hello"}, Decimal("0.000075")),
    ]
    for resource, asked, cost in calls:
        answer = resource.with_raw_response.create(**asked)
        found = bill(own_key_gateway, answer.headers["x-request-id"])
        assert (found["model"], total(found)) == (asked["model"], cost)
    drawn = client.images.with_raw_response.generate(model="gpt-image-1", prompt="a lamp")
    assert total(bill(own_key_gateway, drawn.headers["x-request-id"])) == Decimal("0.16665")


@pytest.mark.parametrize("begun", [False, True])
def test_s13_8_a_client_that_leaves(metered: GatewayProcess, upstream: MockUpstream, begun: bool) -> None:
    """Its prompt, and what it got, are counted."""
    stream = completion_events("one two three")
    stall = before_usage(stream)
    script: Json = {"raw_sse": stream, "stall_after": stall} if begun else {"raw_sse": stream, "delay_first": 30.0}
    upstream.routes["POST /v1/completions"] = Reply(**script)
    body = {**COUNTED, "prompt": "hello there", "stream": True}
    asked, before = len(upstream.requests), len(left_rows(metered))
    with contextlib.suppress(httpx.TimeoutException), metered.http() as client:
        timeout = httpx.Timeout(30, read=0.8)
        with client.stream("POST", "/completions", json=body, timeout=timeout) as answer:
            for piece in answer.iter_raw():
                if b"three" in piece:
                    break
    assert len(upstream.requests) == asked + 1
    wait_until(lambda: len(left_rows(metered)) > before, "the bill")
    (row,) = left_rows(metered)[before:]
    status, written = ("partial", "4") if begun else ("failed", "0")
    assert (row["status"], row["prompt_tokens"], row["estimated"]) == (status, "2", "true")
    assert row["completion_tokens"] == written


def left_rows(gateway: GatewayProcess) -> list[Json]:
    return [row for row in audited(gateway) if row["endpoint"] == "completions" and row["status"] != "complete"]


def test_s13_8_upstreams_faults(metered: GatewayProcess, upstream: MockUpstream) -> None:
    """An upstream that refuses charges nothing and leaves no bill. One that breaks off, or says nothing in time, may
    have charged: what was sent and what came is counted."""
    before = len(audited(metered))
    for status in (400, 401, 429, 500):
        upstream.routes["POST /v1/embeddings"] = Reply(status=status)
        refused = post(metered, "/embeddings", {"model": "embedder", "input": "x"})
        assert refused.is_error
        assert refused.headers["x-gateway-managed"] == "false"
    stream = completion_events("one two three")
    cut = before_usage(stream)
    for reply in (Reply(raw_sse=stream, cut_after=cut), Reply(raw_sse=stream, stall_after=cut)):
        upstream.routes["POST /v1/completions"] = reply
        body, lines = {**COUNTED, "prompt": "hello there", "stream": True}, list[str]()
        broken = pytest.raises(httpx.RemoteProtocolError)
        with broken, metered.http() as client, client.stream("POST", "/completions", json=body) as answer:
            lines.extend(answer.iter_lines())
        assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"].startswith("upstream_")  # guarantee §7
    upstream.routes["POST /v1/embeddings"] = Reply(body=b'{"data": [1, 2, 3], "usage"', cut_after=20)
    with pytest.raises(httpx.RemoteProtocolError):
        post(metered, "/embeddings", {"model": "embedder", "input": "one two"})
    wait_until(lambda: len(audited(metered)) >= before + 3, "the bills")
    rows = audited(metered)[before:]
    assert sorted((r["endpoint"], r["status"], r["prompt_tokens"], r["completion_tokens"]) for r in rows) == [
        ("completions", "partial", "2", "4"),
        ("completions", "partial", "2", "4"),
        ("embeddings", "partial", "2", "0"),
    ]
    assert {row["estimated"] for row in rows} == {"true"}


def test_s13_8_what_asks_no_model_has_no_bill(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Files, lists and lookups say that they are relayed, and that is all."""
    upstream.routes["POST /v1/files"] = Reply(json={"id": "file-1", "usage": {"prompt_tokens": 1}})
    upstream.routes["GET /v1/batches/batch_1"] = Reply(json=completion(), headers={"x-gateway-managed": "true"})
    upstream.routes["DELETE /v1/files/file-1"] = Reply(json={"deleted": True})
    before = len(audited(own_key_gateway))
    answers = [
        own_key_gateway.post("/files", content=b"x"),
        own_key_gateway.get("/batches/batch_1"),
        own_key_gateway.delete("/files/file-1"),
    ]
    answers.append(own_key_gateway.post("/embeddings", json={"model": "text-embedding-3-small", "input": "x"}))
    assert [answer.headers.get_list("x-gateway-managed") for answer in answers] == [["false"]] * 4
    bill(own_key_gateway, answers[-1].headers["x-request-id"])
    for answer in answers[:-1]:
        assert own_key_gateway.get(f"/chat/completions/{answer.headers['x-request-id']}").status_code == 404
    assert len(audited(own_key_gateway)) == before + 1


def test_s13_8_a_bill_is_its_tenants(own_key_gateway: GatewayProcess) -> None:
    """It names the user and stands in no list of completions; another tenant has no such bill."""
    answer = post(own_key_gateway, "/embeddings", {"model": "text-embedding-3-small", "input": "x", "user": "ann"})
    request_id = answer.headers["x-request-id"]
    assert bill(own_key_gateway, request_id)["id"] == request_id
    assert (
        own_key_gateway.get(f"/chat/completions/{request_id}", key="sk-another").json()["error"]["code"]
        == "completion_not_found"
    )
    assert request_id not in own_key_gateway.get("/chat/completions").text
    row = next(row for row in audited(own_key_gateway, "--user", "ann") if row["request_id"] == request_id)
    assert (row["endpoint"], row["model"], row["stream"]) == ("embeddings", "text-embedding-3-small", "false")


@pytest.mark.parametrize(
    ("offered", "sent"),
    [
        ("gzip, deflate, br, zstd", "gzip, deflate"),
        ("br;q=1.0, gzip;q=0.5", "gzip;q=0.5"),
        ("br", "identity"),
        ("gzip", "gzip"),
    ],
)
def test_s13_8_only_what_can_be_read_is_asked_for(
    own_key_gateway: GatewayProcess, upstream: MockUpstream, offered: str, sent: str
) -> None:
    """Of what a client takes, where a model is asked; elsewhere the header goes up as it came. What comes in another
    encoding all the same passes as it is, and its output has no price."""
    upstream.routes["POST /v1/completions"] = Reply(body=b"\x0b\x02\x80{}\x03", headers={"content-encoding": "br"})
    upstream.routes["POST /v1/batches"] = Reply(json={})
    asked = {"model": "gpt-3.5-turbo-instruct", "prompt": "one two"}
    with own_key_gateway.http() as client:
        headers = {"accept-encoding": offered}
        with client.stream("POST", "/completions", json=asked, headers=headers) as answer:
            assert b"".join(answer.iter_raw()) == b"\x0b\x02\x80{}\x03"
        assert upstream.requests[-1].headers["accept-encoding"] == sent
        client.post("/batches", json={}, headers=headers)
        assert upstream.requests[-1].headers["accept-encoding"] == offered
    found = billed(own_key_gateway, answer)
    assert (total(found), found["response_metadata"]["usage"]["prompt_tokens"]) == (None, 2)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"usage": {"prompt_tokens": -1}}', b'"usage": {}' * 50_000, bytes(9)]
)
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_s13_8_no_answer_can_fail_its_meter(
    own_key_gateway: GatewayProcess, upstream: MockUpstream, body: bytes, kind: str, encoding: str
) -> None:
    """Whatever an upstream sends passes, and leaves a bill."""
    named = {"content-encoding": "gzip"} if encoding == "gzip" else {}
    upstream.routes["POST /v1/completions"] = Reply(body=body, content_type=kind, headers=named)
    asked = {"model": "gpt-3.5-turbo-instruct", "prompt": "hi"}
    with own_key_gateway.http() as client, client.stream("POST", "/completions", json=asked) as answer:
        assert b"".join(answer.iter_raw()) == body
    billed(own_key_gateway, answer)
    assert "bill_not_recorded" not in own_key_gateway.log_text()


def test_s13_8_long_requests_flow_and_are_named(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Of a body of megabytes its ends are read: model and user, before and behind the rest; its tokens nobody knows."""
    upstream.routes["POST /v1/completions"] = Reply(json=completion(usage=None))
    long, named = {"prompt": ["word " * 500_000]}, {"model": "gpt-3.5-turbo-instruct", "user": "bob"}
    for body in ({**named, **long}, {**long, **named}):
        found = billed(own_key_gateway, post(own_key_gateway, "/completions", body))
        assert (found["model"], total(found)) == ("gpt-3.5-turbo-instruct", None)
        assert upstream.requests[-1].body == body
    assert len(audited(own_key_gateway, "--user", "bob")) == 2


def test_s13_8_a_long_text_is_estimated(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """By samples, where nobody reports it."""
    upstream.routes["POST /v1/moderations"] = Reply(json={"results": []})
    asked = {"model": "omni-moderation-latest", "input": "some words of a text " * 10_000}
    found = billed(own_key_gateway, post(own_key_gateway, "/moderations", asked))
    assert total(found) == 0
    assert found["response_metadata"]["usage"]["prompt_tokens"] == pytest.approx(50_000, rel=0.1)


def test_s13_8_bills_are_counted_and_added_up(metered: GatewayProcess) -> None:
    """In `/metrics`, and by API in an audit."""
    billed(metered, post(metered, "/embeddings", {"model": "free", "input": "x"}))
    page = metered.get(f"{metered.url}/metrics").text
    assert 'gateway_bills_total{model="free",status="complete"} ' in page
    options = ("audit", "--config", str(metered.config_path), "--by", "endpoint")
    done = gateway_command(*options, directory=metered.directory)
    assert done.returncode == 0, done.stdout
    names = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert "embeddings" in names


def test_s13_8_an_end_waits_for_bills(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """What was answered just before is on the ledger afterwards."""
    gateway = start_gateway({"model_list": [], "upstream": {"api_base": upstream.base_url}})
    for _ in range(20):
        post(gateway, "/embeddings", {"model": "text-embedding-3-small", "input": "one two"})
    gateway.terminate()
    assert len(audited(gateway)) == 20
