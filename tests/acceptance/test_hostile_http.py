"""Bytes that no honest client sends: a clear 4xx within two seconds, and a gateway that serves on (guarantee §7)."""

import json

import pytest

from tests.support.answers import ok, user
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.raw import SSE_HEAD
from tests.support.sockets import RawClient, get, post

CHAT = json.dumps({"model": "gpt-4o", "messages": [user("hello")]}).encode()
CHUNKED = "transfer-encoding: chunked"
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
MAX_BODY = 100_000


limited = shared_gateway({"server": {"max_body_bytes": MAX_BODY}, "files": {"serve": "on"}})
"""A gateway that takes bodies of 100 KB."""


def raw(head: str, body: bytes = b"") -> bytes:
    return head.encode("latin-1") + b"\r\n" + body


def serves_on(gateway: GatewayProcess) -> bool:
    return gateway.post("/chat/completions", content=CHAT).status_code == 200


SMUGGLED = get("/v1/models")
AMBIGUOUS = {
    "length and chunks": post(b"0\r\n\r\n" + SMUGGLED, CHUNKED),
    "chunks and length": raw(HEAD + CHUNKED + "\r\ncontent-length: 5\r\n", b"0\r\n\r\n" + SMUGGLED),
    "two lengths": post(CHAT, "content-length: 5"),
    "a list of lengths": raw(HEAD + f"content-length: {len(CHAT)}, 5\r\n", CHAT),
    "a negative length": raw(HEAD + "content-length: -1\r\n", CHAT),
    "a length with a sign": raw(HEAD + f"content-length: +{len(CHAT)}\r\n", CHAT),
    "a length in hex": raw(HEAD + "content-length: 0x10\r\n", CHAT),
    "a length in words": raw(HEAD + "content-length: many\r\n", CHAT),
    "a length beyond 64 bits": raw(HEAD + f"content-length: {10**30}\r\n", CHAT),
    "chunked, not last": post(b"0\r\n\r\n", "transfer-encoding: chunked, identity", length=False),
    "chunked twice, disguised": post(b"0\r\n\r\n", "transfer-encoding: xchunked", length=False),
    "a space before the colon": raw(HEAD + "content-length : 5\r\n", b"hello"),
    "a line without a colon": raw(HEAD + "nonsense\r\n"),
    "a folded header": raw(HEAD + "x-a: b\r\n c: d\r\ncontent-length: 0\r\n"),
    "a NUL in a header": raw(HEAD + "x-a: b\0c\r\ncontent-length: 0\r\n"),
    "a bare CR in a header": raw(HEAD + "x-a: b\rx-context-session: c\r\ncontent-length: 0\r\n"),
    "a chunk size in words": post(b"zz\r\nhello\r\n0\r\n\r\n", CHUNKED, length=False),
    "a negative chunk size": post(b"-5\r\nhello\r\n0\r\n\r\n", CHUNKED, length=False),
    "a chunk size beyond 64 bits": post(b"f" * 40 + b"\r\nhello\r\n0\r\n\r\n", CHUNKED, length=False),
    "a chunk longer than said": post(b"2\r\nhello\r\n0\r\n\r\n", CHUNKED, length=False),
    "two hosts": raw(HEAD + f"host: other\r\ncontent-length: {len(CHAT)}\r\n", CHAT),
    "the same host twice": raw(HEAD + f"Host: gateway\r\ncontent-length: {len(CHAT)}\r\n", CHAT),
    "two hosts in one": raw(HEAD.replace("host: gateway", "host: gateway, other") + "content-length: 0\r\n"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3": b"GET / HTTP/3.0\r\n\r\n",
    "TLS": bytes.fromhex("16030100f1010000ed0303") + bytes(230),
    "an unknown method": raw("HACK / HTTP/1.1\r\nhost: gateway\r\n"),
    "CONNECT": raw("CONNECT example.org:443 HTTP/1.1\r\nhost: example.org\r\n"),
    "no path": raw("GET HTTP/1.1\r\nhost: gateway\r\n"),
    "a path in UTF-8": "GET /v1/médels HTTP/1.1\r\nhost: gateway\r\n\r\n".encode(),
    "nothing but noise": bytes(range(128, 256)) * 4 + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_s7_what_is_not_clearly_one_request_is_refused(
    one_gateway: GatewayProcess, upstream: MockUpstream, name: str
) -> None:
    """§7: one answer, 400 in OpenAI's shape, then the end: nothing behind it is taken for a request of its own."""
    with RawClient(one_gateway) as client:
        answer = client.ask(AMBIGUOUS[name])
        assert answer.status == 400, answer.body
        assert answer.error["type"] == "invalid_request_error"
        assert answer.headers["x-request-id"].startswith("req_")
        assert answer.headers["connection"] == "close"
        with pytest.raises(EOFError):
            client.answer()
    assert not upstream.chats
    assert serves_on(one_gateway)


def test_s7_rubbish_after_a_request_does_not_spoil_its_answer(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """§7: a body longer than its declared length: the request is answered, the rest is not, the connection ends."""
    upstream.reply(text="still here", delay_first=0.2)
    with RawClient(one_gateway) as client:
        answer = client.ask(post(CHAT) + b"}}}} rubbish\r\n\r\n")
        assert answer.status == 200
        assert json.loads(answer.body)["choices"][0]["message"]["content"] == "still here"
        with pytest.raises(EOFError):
            client.answer()


def test_s7_pipelined_requests_are_answered_in_order(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§7: HTTP/1.1 allows them."""
    upstream.handler = None
    with RawClient(one_gateway) as client:
        client.send(post(CHAT) + get("/health/live") + get("/v1/nothing") + post(CHAT))
        assert [client.answer().status for _ in range(4)] == [200, 200, 404, 200]


def test_s7_old_and_odd_http_is_answered(one_gateway: GatewayProcess) -> None:
    """§1: HTTP/1.0 and absolute-form targets are HTTP as well."""
    with RawClient(one_gateway) as client:
        assert client.ask(b"GET /health/live HTTP/1.0\r\n\r\n").status == 200
        client.wait_for_end()
    with RawClient(one_gateway) as client:
        assert client.ask(get("http://gateway/health/live")).status == 200
        upgrade = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAoAAAAAIAAAAA")
        assert client.ask(get("/health/live", *upgrade)).status == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"], ids=["served here", "relayed"])
def test_s1_an_http_1_0_client_gets_no_chunks(one_gateway: GatewayProcess, upstream: MockUpstream, path: str) -> None:
    """§1: it does not know them (RFC 9112 §6.1); a body of unknown length ends with the connection."""
    event = b'data: {"id": "1", "choices": []}\n\n'
    upstream.routes["POST /v1/completions"] = Reply(raw=[SSE_HEAD, b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event)])
    upstream.handler = lambda _: Reply(text="one two three", chunk_delay=0.02)
    body = json.dumps({"model": "gpt-4o", "stream": True, "messages": [user("hello")], "prompt": "hello"}).encode()
    with RawClient(one_gateway) as client:
        client.send(post(body, path=path).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, came = client.read_all().partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    lines = came.decode().splitlines()
    assert lines
    assert [line for line in lines if line and not line.startswith(("data: ", ":"))] == []


H2C = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAoAAAAAIAAAAA")
WEBSOCKET = ("connection: keep-alive, Upgrade", "upgrade: websocket", "sec-websocket-key: eA==")


@pytest.mark.parametrize("offer", [H2C, WEBSOCKET], ids=["h2c", "websocket"])
@pytest.mark.parametrize("size", [1, 50, 10**6], ids=["bytes", "pieces", "whole"])
def test_s1_a_request_that_offers_another_protocol_is_read(
    one_gateway: GatewayProcess, upstream: MockUpstream, offer: tuple[str, ...], size: int
) -> None:
    """§1: Java's HTTP client offers HTTP/2 with each request, its body behind it. What follows is no second one."""
    upstream.handler = None
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)
    for request in (post(CHAT, *offer), post(body, CHUNKED, *offer, length=False)):
        with RawClient(one_gateway) as client:
            sent = request + SMUGGLED
            for start in range(0, len(sent), size):
                client.send(sent[start : start + size])
            answer = client.answer()
            assert answer.status == 200, answer.body
            assert json.loads(answer.body)["choices"]
            with pytest.raises(EOFError):
                client.answer()
    assert [chat.body["messages"] for chat in upstream.chats] == [[user("hello")]] * 2


PATHS = [
    "/v1/models/../../etc/passwd",
    "/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "/v1/models/%00",
    "/v1/models/%ff%fe",
    "/v1/models/%zz",
    "/v1/models/%",
    "/v1/models/%ed%a0%80",
    "/v1/chat/completions/%00",
    "/v1/chat/completions/chatcmpl-%ed%a0%80",
    "/v1/chat/completions/%ff",
    "/v1/chat/completions/..%2f..%2fetc",
    "/v1/chat/completions/%25",
    "/v1/chat/completions/_%25_",
    "/v1/chat/completions/'%20OR%201=1%20--",
    "/v1/chat/completions/req_'%3bDROP%20TABLE%20ledger%3b--",
    "/v1/chat/completions?conversation='%20OR%20'1'='1",
    "/v1/chat/completions?conversation=conv_%25",
    "/v1/chat/completions?conversation=%00",
    "/v1/chat/completions?conversation=conv_%00",
    "/v1/chat/completions?conversation=%ff%fe",
    "/v1/chat/completions?conversation=%ed%a0%80",
    "/v1/chat/completions?conversation=" + "a" * 20_000,
    "/v1/chat/completions/" + "a" * 20_000,
    "/v1/models/" + "a/" * 10_000,
    "//v1//models",
    "/v1/chat/completions/x/../../../",
]


@pytest.mark.parametrize("path", PATHS, ids=[p[:50] for p in PATHS])
def test_s7_odd_paths_find_nothing(gateway: GatewayProcess, path: str) -> None:
    """§7, §8: 404 whatever the path or id holds: SQL, wildcards, zero bytes, half characters, `..`."""
    assert gateway.post("/chat/completions", content=CHAT).status_code == 200  # there is a row to be found
    with RawClient(gateway) as raw_client:
        answer = raw_client.ask(get(path, "authorization: Bearer sk-test"))
        assert answer.status == 404, answer.body
        assert answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize("query", ["agent=%00", "agent=a%00b", "model=%00", "metadata[a%00]=%00"])
def test_s7_a_zero_byte_in_a_filter_finds_nothing(gateway: GatewayProcess, query: str) -> None:
    """§7: on PostgreSQL, too, which takes none."""
    answer = ok(gateway.get(f"/chat/completions?{query}"))
    assert answer["data"] == []


HEADERS = {
    "10,000 headers": [f"x-{i}: a" for i in range(10_000)],
    "300 headers": [f"x-{i}: a" for i in range(300)],
    "one of 64 KB": ["x-a: " + "a" * 2**16],
    "one of 8 MB": ["x-a: " + "a" * 2**23],
    "a name of 100 KB": ["x" * 100_000 + ": a"],
}


@pytest.mark.parametrize("path", ["conversations", "memory"])
@pytest.mark.parametrize("asked", ["%00", "a%0d%0ax-own: 1", "zz", "%E6%97%A5"])
def test_s7_a_parameter_that_is_no_conversation_is_in_no_header(
    one_gateway: GatewayProcess, path: str, asked: str
) -> None:
    answer = one_gateway.get(f"/{path}?conversation={asked}")
    assert answer.status_code == 200
    assert "x-conversation-id" not in answer.headers
    assert "x-own" not in answer.headers


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("piece", [1_000, 10**8])
def test_s7_huge_heads_are_refused(one_gateway: GatewayProcess, upstream: MockUpstream, name: str, piece: int) -> None:
    """§7: 431, however the bytes come; the client sees it though it was still sending."""
    data = post(CHAT, *HEADERS[name])
    with RawClient(one_gateway) as client:
        for start in range(0, min(len(data), 400 * piece), piece):
            client.send(data[start : start + piece])
        answer = client.answer()
        assert answer.status == 431
        assert answer.error["code"] == "headers_too_large"
    assert not upstream.chats
    assert serves_on(one_gateway)


def test_s7_a_long_url_is_refused(one_gateway: GatewayProcess) -> None:
    """§7: the request line counts as part of the head."""
    with RawClient(one_gateway) as client:
        assert client.ask(get("/v1/models?" + "a" * 70_000)).status == 431


def test_s7_trailers_are_no_headers(one_gateway: GatewayProcess) -> None:
    """§7: what follows a chunked body names no conversation and no mode."""
    body = (
        f"{len(CHAT):x}\r\n".encode() + CHAT + b"\r\n0\r\nx-context-mode: rubbish\r\nx-conversation-id: conv_x\r\n\r\n"
    )
    with RawClient(one_gateway) as client:
        assert client.ask(post(body, CHUNKED, length=False)).status == 200


def test_s7_a_declared_length_is_refused_before_the_body(limited: GatewayProcess) -> None:
    """§7: 413 by the header alone, with and without `Expect`, and no `100 Continue` before it."""
    for expect in ((), ("expect: 100-continue",)):
        with RawClient(limited) as client:
            answer = client.ask(post(b"", f"content-length: {MAX_BODY + 1}", *expect, length=False))
            assert answer.status == 413
            assert answer.error["code"] == "request_too_large"
            assert answer.headers["connection"] == "close"
            client.wait_for_end()
    assert serves_on(limited)


def test_s7_who_goes_on_sending_still_sees_the_413(limited: GatewayProcess) -> None:
    """§7: the connection is not reset under the answer."""
    with RawClient(limited) as client:
        client.send(post(b"", "content-length: 30000000", length=False))
        for _ in range(300):
            client.send(b"x" * 100_000)
        assert client.answer().status == 413


def test_s7_an_endless_chunked_body_is_refused_as_soon_as_it_is_too_long(limited: GatewayProcess) -> None:
    """§7: 413 without waiting for an end; in large chunks, in tiny ones, in chunk extensions, in trailers."""
    head = post(b"", CHUNKED, length=False)
    endless = {
        "large": b"4000\r\n" + b"x" * 0x4000 + b"\r\n",
        "tiny": b"1\r\nx\r\n" * 2000,
        "extensions": b"1;" + b"x" * 50_000 + b"\r\nx\r\n",
    }
    for name, piece in endless.items():
        with RawClient(limited) as client:
            client.send(head)
            for _ in range(3_000_000 // len(piece)):
                client.send(piece)
            assert client.answer().status == 413, name
    with RawClient(limited) as client:
        client.send(head + b"2\r\n{}\r\n0\r\n")
        for _ in range(60):
            client.send(b"x-a: " + b"x" * 50_000 + b"\r\n")
        assert client.answer().status in (400, 413)
    assert serves_on(limited)


def test_s7_trailers_of_an_upload_end_it(limited: GatewayProcess) -> None:
    """§7: an upload may be larger than other requests, but what follows its file may not."""
    head = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n" + CHUNKED.encode()
    part = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.bin"\r\n\r\n'
    with RawClient(limited) as client:
        client.send(head + b"\r\n\r\n" + b"%x\r\n" % len(part) + part + b"\r\n")
        for _ in range(100):  # far more than a chat may have
            client.send(b"c800\r\n" + b"x" * 0xC800 + b"\r\n")
        client.send(b"7\r\n\r\n--b--\r\n0\r\n")
        for _ in range(60):
            client.send(b"x-a: " + b"x" * 50_000 + b"\r\n")
        answer = client.answer()
        assert (answer.status, b"The request is too large." in answer.body) == (413, True)
    assert serves_on(limited)


def test_s1_expect_is_honoured(one_gateway: GatewayProcess) -> None:
    """§1: who waits for `100 Continue` gets it, and then the answer."""
    with RawClient(one_gateway) as client:
        client.send(post(b"", f"content-length: {len(CHAT)}", "expect: 100-continue", length=False))
        assert client.answer().status == 100
        assert client.ask(CHAT).status == 200
        assert client.ask(post(CHAT)).status == 200  # and the connection lives on


INJECTIONS = [
    "conv_x\r\nset-cookie: a=b",
    "conv_\u00e9\u00ff",
    "'; DROP TABLE turns; --",
    "../../x",
    "%0d%0aa: b",
    "x" * 9_000,
]


@pytest.mark.parametrize("value", INJECTIONS)
@pytest.mark.parametrize("field", ["conversation", "model", "session"])
def test_s7_nothing_of_a_body_becomes_a_header(
    one_gateway: GatewayProcess, upstream: MockUpstream, field: str, value: str
) -> None:
    """§7: line ends in ids and names reach no header of the answer, and none of the request upstream."""
    more = {"context": {"session": value}} if field == "session" else {field: value}
    body = {"model": "gpt-4o", "messages": [user("hello")], **more}
    answer = one_gateway.post("/chat/completions", json=body)
    assert answer.status_code in (200, 400, 404), answer.text
    assert "set-cookie" not in answer.headers
    assert "set-cookie" not in str([chat.headers for chat in upstream.chats])


ODD_HEADERS = [
    "x-conversation-id: ' OR 1=1 --",
    "x-conversation-id: conv_%",
    "x-conversation-id: conv_\xff\xfe",
    "x-conversation-id: " + "c" * 50_000,
    "x-context-session: \xe9\xff",
    "x-context-session: " + "s" * 50_000,
    "x-context-mode: \xff",
    "x-context-max-input-tokens: 1e309",
    "x-context-max-input-tokens: \xb2",
    "x-context-max-input-tokens: " + "9" * 5_000,
    "openai-organization: \xff\xfe",
    "openai-project: a\tb",
    "openai-beta: " + "b" * 20_000,
    "authorization: Bearer \xff\xfe\x80",
    "authorization: Bearer " + "k" * 50_000,
    "authorization: Basic dXNlcjpwYXNz",
    "authorization:",
    "range: bytes=0-10",
    "if-match: *",
    'if-none-match: "x"',
    "if-modified-since: yesterday",
    "accept: image/png",
    "accept-encoding: x-nothing",
    "cookie: " + "a=b; " * 2_000,
    "content-type: multipart/form-data",
    "content-type: application/json; charset=utf-16",
    "te: trailers",
    'forwarded: for="_gateway"',
    "host: evil.example",
]


@pytest.mark.parametrize("field", ODD_HEADERS, ids=[f[:50] for f in ODD_HEADERS])
@pytest.mark.parametrize("stream", [False, True])
def test_s7_odd_headers(gateway: GatewayProcess, upstream: MockUpstream, field: str, stream: bool) -> None:
    """§7: an answer or a 4xx in OpenAI's shape, whatever a header holds."""
    body = json.dumps({"model": "gpt-4o", "stream": stream, "messages": [user("hello")]}).encode()
    with RawClient(gateway) as client:
        answer = client.ask(post(body, field))
        assert answer.status in (200, 400, 401, 403, 404, 415), answer.body
        if answer.status != 200:
            assert answer.error["message"]
        else:
            assert upstream.chats


@pytest.mark.parametrize("token", ["\xff\xfe", "a b", "k" * 50_000, "\x80", "{}"])
def test_s7_odd_keys_go_up_or_are_refused(own_key_gateway: GatewayProcess, token: str) -> None:
    """§7, §8: where the client's own key goes upstream, what can be no key is a 401."""
    with RawClient(own_key_gateway) as client:
        answer = client.ask(post(CHAT, f"authorization: Bearer {token}"))
        assert answer.status == (200 if token.isascii() else 401)


def test_s8_3_files_of_callers_without_a_key_are_listed_on_this_machine_alone(limited: GatewayProcess) -> None:
    """They are one tenant, and a file's id is all that keeps it from the others. A client's own key is a tenant."""
    beyond = {"x-forwarded-for": "10.0.0.9"}
    for token, headers, expected in ((None, {}, 200), (None, beyond, 401), ("sk-own", beyond, 200)):
        answer = limited.get("/files", headers=headers, key=token)
        assert answer.status_code == expected, answer.text
