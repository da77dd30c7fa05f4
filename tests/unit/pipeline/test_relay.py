"""Paths under `/v1/` that the gateway does not serve are relayed, here with the client's own key (guarantee §1)."""

import gzip
from typing import Any

import httpx
import pytest
from openai import NotFoundError, OpenAI

from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply

EVENTS = b'event: response.created\ndata: {"type":"response.created"}\n\nevent: done\ndata: {"n": 1.0}\n\n'


@pytest.fixture
def client(own_key_gateway: GatewayProcess, make_client: ClientFactory) -> OpenAI:
    return make_client(own_key_gateway, api_key="sk-client")


def test_s1_the_sdks_other_resources_work(client: OpenAI, upstream: MockUpstream) -> None:
    """Embeddings, moderations, files, audio: with nothing but the base URL changed, with the client's key."""
    vector = client.embeddings.create(model="text-embedding-3-small", input=["a", "b"]).data
    assert [item.index for item in vector] == [0, 1]
    upstream.routes["POST /v1/files"] = Reply(json={"id": "file-1", "object": "file", "filename": "a.txt"})
    assert client.files.create(file=("a.txt", b"text of the file"), purpose="user_data").id == "file-1"
    sent = upstream.requests[-1]
    assert sent.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b"text of the file" in sent.raw
    upstream.routes["POST /v1/audio/speech"] = Reply(body=bytes(range(256)) * 999, content_type="audio/mpeg")
    speech = client.audio.speech.create(model="tts-1", voice="alloy", input="hello")
    assert speech.content == bytes(range(256)) * 999
    assert speech.response.headers["content-type"] == "audio/mpeg"
    upstream.files["file-1"] = b"\x00\xffcontent"
    assert client.files.content("file-1").content == b"\x00\xffcontent"
    upstream.routes["DELETE /v1/models/ft:gpt-4o:mine"] = Reply(json={"id": "x", "object": "model", "deleted": True})
    assert client.models.delete("ft:gpt-4o:mine").deleted
    upstream.routes["POST /v1/models/apply"] = Reply(json={"uuid": "job"})
    assert client.post("/models/apply", body={"id": "a"}, cast_to=object) == {"uuid": "job"}
    assert {record.headers["authorization"] for record in upstream.requests} == {"Bearer sk-client"}


def test_s1_streams_of_other_apis(client: OpenAI, upstream: MockUpstream) -> None:
    """Named events come through as they are; nothing of the gateway's is added."""
    upstream.routes["POST /v1/threads/runs"] = Reply(raw_sse=EVENTS)
    with http_to(client) as plain:
        answer = plain.post("/threads/runs", json={"model": "gpt-4o", "stream": True})
    assert answer.content == EVENTS
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-request-id"].startswith("req_")
    assert "mock" not in answer.headers["x-request-id"]


def http_to(client: OpenAI) -> httpx.Client:
    headers = {"authorization": f"Bearer {client.api_key}"}
    return httpx.Client(base_url=str(client.base_url), headers=headers, trust_env=False, timeout=30)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_s1_every_method_and_its_answer(own_key_gateway: GatewayProcess, upstream: MockUpstream, method: str) -> None:
    """Method, path, query, body and headers go up; status, body and headers come down."""
    headers = {"x-ratelimit-remaining-requests": "7", "openai-version": "v", "x-any": "kept", "set-cookie": "a=b"}
    upstream.routes[f"{method} /v1/any/thing"] = Reply(status=207, body=b"as it is\x00", headers=headers)
    content = b'{"b": 1.0,  "a": [1e2]}' if method not in ("GET", "OPTIONS") else b""
    sent = {"openai-beta": "assistants=v2", "x-stainless-lang": "python", "cookie": "c=d", "x-context-mode": "off"}
    query = "after=a%2Cb&q=a+b%20c&empty=&x=%F0%9F%8C%8A&a=2&a=1"
    answer = own_key_gateway.request(method, f"/any/thing?{query}", content=content, headers=sent)
    assert (answer.status_code, answer.content) == (207, b"as it is\x00")
    assert {name: answer.headers[name] for name in list(headers)[:3]} == dict(list(headers.items())[:3])
    assert "set-cookie" not in answer.headers
    record = upstream.requests[-1]
    assert (record.method, record.path, record.query, record.raw) == (method, "/v1/any/thing", query, content)
    assert record.headers["authorization"] == "Bearer sk-test"
    assert record.headers["host"] == upstream.url.removeprefix("http://")
    assert (record.headers["openai-beta"], record.headers["x-stainless-lang"]) == ("assistants=v2", "python")
    assert not {"cookie", "x-context-mode", "transfer-encoding"} & set(record.headers)
    assert record.headers.get("content-length", "0") == str(len(content))


def test_s1_answers_without_a_body(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """HEAD with the length of what is not sent, 204, 304, and an empty 200; the connection stays usable."""
    upstream.routes["HEAD /v1/files/f/content"] = Reply(body=b"12345")
    upstream.routes["DELETE /v1/files/f"] = Reply(status=204, body=b"")
    upstream.routes["GET /v1/files/f"] = Reply(status=304, body=b"", headers={"etag": '"1"'})
    upstream.routes["GET /v1/files/e"] = Reply(body=b"")
    head = own_key_gateway.request("HEAD", "/files/f/content")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "5", b"")
    assert own_key_gateway.delete("/files/f").status_code == 204
    unchanged = own_key_gateway.get("/files/f", headers={"if-none-match": '"1"'})
    assert (unchanged.status_code, unchanged.headers["etag"]) == (304, '"1"')
    assert upstream.requests[-1].headers["if-none-match"] == '"1"'
    assert own_key_gateway.get("/files/e").content == b""
    assert own_key_gateway.get("/files/none").status_code == 404


def test_s1_a_range_of_a_file(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """`Range` goes up, 206 and `Content-Range` come down."""
    part = Reply(status=206, body=b"234", headers={"content-range": "bytes 2-4/9"})
    upstream.routes["GET /v1/files/f/content"] = part
    answer = own_key_gateway.get("/files/f/content", headers={"range": "bytes=2-4"})
    assert upstream.requests[-1].headers["range"] == "bytes=2-4"
    assert (answer.status_code, answer.content, answer.headers["content-range"]) == (206, b"234", "bytes 2-4/9")


def test_s1_encoded_bodies_stay_encoded(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """What is compressed is passed on compressed, up and down, errors too."""
    packed, wrong = gzip.compress(b'{"object": "list"}'), gzip.compress(b'{"error": {"message": "no", "code": null}}')
    encoded = {"content-encoding": "gzip"}
    upstream.routes["POST /v1/batches"] = Reply(body=packed, headers=encoded)
    upstream.routes["GET /v1/batches/b"] = Reply(status=404, body=wrong, headers=encoded)
    with own_key_gateway.http() as plain:
        with plain.stream("POST", "/batches", content=packed, headers=encoded) as answer:
            assert b"".join(answer.iter_raw()) == packed
        assert (upstream.requests[-1].raw, upstream.requests[-1].headers["content-encoding"]) == (packed, "gzip")
        with plain.stream("GET", "/batches/b") as answer:
            assert (answer.status_code, b"".join(answer.iter_raw())) == (404, wrong)


def test_s1_an_upload_of_unknown_length(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """`Transfer-Encoding: chunked` goes up chunked, megabytes of it."""
    upstream.routes["POST /v1/uploads"] = Reply(json={"id": "up"})
    pieces = [bytes([n]) * 100_000 for n in range(60)]
    assert own_key_gateway.post("/uploads", content=iter(pieces)).json() == {"id": "up"}
    assert upstream.requests[-1].raw == b"".join(pieces)
    assert upstream.requests[-1].headers["transfer-encoding"] == "chunked"


def test_s1_no_key_at_all(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A local upstream without keys: nothing is sent as one."""
    upstream.routes["POST /v1/rerank"] = Reply(json={"results": []})
    assert own_key_gateway.post("/rerank", json={}, key=None).json() == {"results": []}
    assert "authorization" not in upstream.requests[-1].headers


ERRORS: dict[str, tuple[Reply, Any]] = {
    "OpenAI's shape": (
        Reply(status=429, body=b'{ "error": {"message": "slow", "code": "rate_limit_exceeded", "x": 1.0} }'),
        None,
    ),
    "refused key": (Reply(status=401, body=b'{"error": {"message": "Incorrect API key", "code": null}}'), None),
    "another shape": (Reply(status=422, json={"detail": "no"}), {"detail": "no"}),
    "HTML": (Reply(status=503, body=b"<html>busy</html>", content_type="text/html"), "<html>busy</html>"),
    "nothing": (Reply(status=500, body=b""), ""),
}


@pytest.mark.parametrize("name", ERRORS)
def test_s7_upstreams_errors(own_key_gateway: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """Status, `Retry-After` and body are kept; what is not in OpenAI's shape is wrapped in it."""
    reply, original = ERRORS[name]
    reply = Reply(**{**vars(reply), "headers": {"retry-after": "3", "x-ratelimit-limit-tokens": "9"}})
    upstream.routes["POST /v1/embeddings"] = reply
    answer = own_key_gateway.post("/embeddings", json={"model": "m", "input": "x"})
    assert answer.status_code == reply.status
    assert (answer.headers["retry-after"], answer.headers["x-ratelimit-limit-tokens"]) == ("3", "9")
    if original is None:
        assert answer.content == reply.body
    else:
        assert answer.json()["error"]["upstream"] == original
        assert set(answer.json()["error"]) == {"message", "type", "param", "code", "upstream"}


def test_s1_what_the_gateway_serves_is_not_relayed(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Its own paths stay its own, whatever the method; nothing outside `/v1/` goes up."""
    assert own_key_gateway.request("PUT", "/chat/completions", json={}).json()["error"]["code"] == "method_not_allowed"
    assert own_key_gateway.get("/chat/completions/chatcmpl-none").json()["error"]["code"] == "completion_not_found"
    assert own_key_gateway.request("PUT", "/chat/completions/chatcmpl-none", json={}).status_code == 405
    assert own_key_gateway.get(f"{own_key_gateway.url}/v2/files").json()["error"]["code"] == "not_found"
    assert own_key_gateway.get(f"{own_key_gateway.url}/admin").status_code == 404
    assert not upstream.requests


def test_s6_a_relayed_call_is_logged(client: OpenAI, own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """One line with its id, path and status; neither key nor content."""
    upstream.routes["GET /v1/vector_stores/missing"] = Reply(status=404)
    with pytest.raises(NotFoundError) as caught:
        client.vector_stores.retrieve("missing")
    request_id = caught.value.response.headers["x-request-id"]
    line = own_key_gateway.logged(request_id)
    assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/vector_stores/missing", 404)
    assert "sk-client" not in own_key_gateway.log_text()
