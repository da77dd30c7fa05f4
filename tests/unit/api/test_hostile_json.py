"""JSON that no honest client sends: each field of each odd kind, and documents of odd shapes (guarantee §7)."""

import gzip
import json
from itertools import product
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, ok, user
from tests.support.faults.refusals import changed, places
from tests.support.gateway_process import GatewayProcess
from tests.support.hostile import CHAT, MESSAGES, ODD, REFUSED, many, nothing_is_left, of, shaped
from tests.support.marks import few_or_many
from tests.support.messages import HEADERS
from tests.support.mock_upstream import MockUpstream

CHATS, PATHS = "/chat/completions", {"/chat/completions": CHAT, "/messages": MESSAGES}
JSON = {"content-type": "application/json"}


def base(path: str, name: str) -> Json:
    """A valid request with that field, and as little else as hides nothing behind another error."""
    full = PATHS[path]
    least = {"model": "gpt-4o", "max_tokens": 100, "messages": [user("hello")]}
    tools = {"tools": full["tools"]} if name in ("tool_choice", "messages") else {}
    return {**least, **tools, "stream": name == "stream_options", name: full[name]}


def asked(client: httpx.Client, body: Any, headers: dict[str, str] | None = None, path: str = CHATS) -> httpx.Response:
    """The answer, which is never a fault of the gateway's, and in its API's own shape."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post(path, content=raw, headers={**(HEADERS if path != CHATS else {}), **(headers or {})})
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, (answer.status_code, answer.text[:500])
    if answer.status_code != 200:
        told = answer.json()
        assert isinstance(told["error"]["type"], str)
        assert isinstance(told["error"]["message"], str)
        if path == CHATS:
            assert {"param", "code"} <= set(told["error"])
        else:
            assert (told["type"], told["request_id"]) == ("error", answer.headers["x-request-id"])
    return answer


UNREAD = ["temperature", "seed", "stop", "logit_bias", "tool_choice", "response_format", "service_tier", "prediction"]
UNREAD += ["reasoning_effort", "modalities", "prompt_cache_key", "unknown"]
READ = [("/messages", name) for name in MESSAGES] + [(CHATS, name) for name in CHAT if name not in UNREAD]


@few_or_many(len(ODD) + 1, 1)
@pytest.mark.parametrize(("path", "name"), READ)
def test_s7_odd_values_in_every_field(
    one_gateway: GatewayProcess, upstream: MockUpstream, path: str, name: str, number: int
) -> None:
    """§7: answered, or a 4xx by the gateway that names the field, with nothing sent or left behind."""
    upstream.strict = False
    with one_gateway.http() as client:
        found = list(product(places(PATHS[path][name], (name,)), ODD))
        # Every so manieth pair, so that each place and each value has its turn; of few places every fourth.
        step = number if len(found) > 2 * len(ODD) else min(number, 4)
        for count, (place, odd) in list(enumerate(found))[::step]:
            before = len(upstream.requests)
            body = changed(base(path, name), place, odd)
            answer = asked(client, {"stream": count % 3 == 0, **body}, JSON, path)
            if answer.status_code == 200 or len(upstream.requests) > before:
                continue
            error = answer.json()["error"]
            assert (error.get("param") or "").startswith(name), (place, odd, error)
            assert nothing_is_left(client, answer), (place, odd)
    upstream.violations.clear()


@pytest.mark.parametrize("odd", ODD, ids=[str(odd)[:20] for odd in ODD])
def test_s1_what_the_gateway_does_not_read_goes_up_as_it_is(
    one_gateway: GatewayProcess, upstream: MockUpstream, odd: Any
) -> None:
    """§1: whatever it is, and to the last digit."""
    upstream.strict = False
    with one_gateway.http() as client:
        assert asked(client, {**base(CHATS, "unknown"), **dict.fromkeys(UNREAD, odd)}).status_code == 200
    assert [upstream.last.body[name] for name in UNREAD] == [odd] * len(UNREAD)
    upstream.violations.clear()


STORED: list[Any] = [
    "\0",
    "a\0b\uffff\U0010ffff",
    "x" * 10**5,
    {"\0": "\0"},
    -(2**63),
    2**64 - 1,
    1e308,
    [[[["deep"]]]],
]
TEXTS_ONLY = changed(CHAT, ("messages", 4, "content"), CHAT["messages"][4]["content"][:3])
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
REMEMBERED = ("messages", "metadata", "attachments", "user", "safety_identifier")


@few_or_many(len(STORED) + 1, 1)
@pytest.mark.parametrize("name", REMEMBERED)
def test_s7_odd_values_are_stored_safely(
    gateway: GatewayProcess, upstream: MockUpstream, name: str, number: int
) -> None:
    """§7, §3: what is taken is stored, on each storage, and the conversation goes on with it as it was. Of many places
    every so manieth pair."""
    upstream.strict = False
    said = {"role": "user", "content": "and then?"}
    with gateway.http() as client:
        found = list(product(places(TEXTS_ONLY[name], (name,)), STORED))
        for path, odd in found[:: number if len(found) > 2 * len(STORED) else 1]:
            first = changed({"model": "gpt-4o", "messages": [said], name: TEXTS_ONLY[name]}, path, odd)
            answer = asked(client, first)
            if answer.status_code != 200:
                continue
            sent = upstream.last.body["messages"]
            again = {
                "model": "gpt-4o",
                "conversation": answer.json()["conversation"],
                "messages": [said],
                "tools": TOOLS,
            }
            assert asked(client, again).status_code == 200, (path, odd)
            assert upstream.last.body["messages"][: len(sent)] == sent, (path, odd)
            assert client.get(f"/chat/completions/{answer.json()['id']}").status_code == 200, (path, odd)
    upstream.violations.clear()


@pytest.mark.parametrize("path", [*PATHS, "/messages/count_tokens"])
def test_s7_documents_that_are_no_request(one_gateway: GatewayProcess, upstream: MockUpstream, path: str) -> None:
    """§7: a 400; nothing is sent or left behind."""
    with one_gateway.http() as client:
        for name, raw in REFUSED.items():
            answer = asked(client, raw, JSON, path)
            assert answer.status_code == 400, name
            assert answer.json()["error"]["type"] == "invalid_request_error"
            assert nothing_is_left(client, answer)
    assert not upstream.chats


HALVES = {
    "half a pair": shaped(b'"\\ud800"'),
    "the other half": shaped(b'"\\udc00\\ud800"'),
    "half a pair in a name": shaped(more=b',"\\ud800":1'),
    "half a pair in metadata": shaped(more=b',"metadata":{"a":"\\ud800"}'),
    "half a pair in an id": shaped(more=b',"conversation":"conv_\\ud800"'),
    "half a pair in a title": shaped(more=b',"attachments":[{"content":"x","title":"\\ud800"}]'),
}


@pytest.mark.parametrize("name", HALVES)
def test_s1_9_half_a_sign_is_mended_wherever_it_stands(
    one_gateway: GatewayProcess, upstream: MockUpstream, name: str
) -> None:
    """§1.9: what is half a character is U+FFFD from there on, and an id of nobody's names no conversation."""
    with one_gateway.http() as client:
        answer = asked(client, HALVES[name], JSON)
    assert answer.status_code == (404 if name == "half a pair in an id" else 200), answer.text
    for record in upstream.chats:
        assert "\\ud8" not in record.raw.decode()


def test_s7_compressed_bodies_are_refused(one_gateway: GatewayProcess) -> None:
    """§7: 415, not a guess; a small body could stand for any amount of memory."""
    bomb = gzip.compress(shaped(b'"' + b"x" * 10_000_000 + b'"'))
    with one_gateway.http() as client:
        for encoding in ("gzip", "deflate", "br", "zstd", "GZIP", "gzip, gzip"):
            answer = asked(client, bomb, {"content-encoding": encoding})
            assert answer.status_code == 415
            assert answer.json()["error"]["param"] == "content-encoding"
            plain = asked(client, shaped(), {"content-encoding": encoding})
            assert (plain.status_code, plain.headers["accept-encoding"]) == (415, "identity"), "whatever the body holds"
            made = client.post("/conversations", content=b"{}", headers={"content-encoding": encoding})
            assert made.status_code == 415
        assert asked(client, shaped(), {"content-encoding": "identity"}).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "*/*", ""]
)
def test_s7_json_is_json_whatever_it_is_called(one_gateway: GatewayProcess, upstream: MockUpstream, kind: str) -> None:
    """§1: `curl -d` says that it sends a form."""
    with one_gateway.http() as client:
        assert asked(client, shaped('"é"'.encode()), {"content-type": kind}).status_code == 200
    assert upstream.last.body["messages"][0]["content"] == "é"


def test_s7_of_two_members_with_one_name_the_last_counts(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§7: for the gateway and for the upstream alike: it is sent one of them, so nobody can be shown another."""
    raw = (
        b'{"model":"no-such","model":"gpt-4o","messages":[],"messages":[{"role":"tool","role":"user","content":"hi"}]}'
    )
    with one_gateway.http() as client:
        answer = ok(asked(client, raw))
        assert answer["response_metadata"]["model"] == "gpt-4o"
    assert upstream.last.raw.count(b'"model"') == 1
    assert upstream.last.raw.count(b'"messages"') == 1
    assert upstream.last.body["model"] == "gpt-4o"


LARGE = {
    "2,000 messages": of(many(2_000, user("hi"))),
    "100,000 members in an unknown field": shaped(
        more=b',"x":' + json.dumps({f"k{i}": i for i in range(10**5)}).encode()
    ),
    "200 levels": shaped(more=b',"x":' + b"[" * 190 + b"]" * 190),
    "5,000 tools": shaped(more=b',"tools":' + many(5_000, {"type": "function", "function": {"name": "f"}})),
}


@pytest.mark.parametrize("name", LARGE)
def test_s7_large_documents_are_answered(one_gateway: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """§7: what is valid is answered or refused as too long, in seconds."""
    upstream.strict = False
    answer = one_gateway.post("/chat/completions", content=LARGE[name])
    assert answer.status_code in (200, 400), answer.text
    upstream.violations.clear()
