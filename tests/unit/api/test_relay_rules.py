"""What may be relayed, and with which headers (guarantee §1)."""

import pytest

from gateway.api.passthrough.relay_rules import (
    RelayPattern,
    headers_down,
    headers_up,
    is_plain_path,
    named_calls,
    query_up,
)
from gateway.billing.relayed_usage import RELAYED_ENDPOINTS

FITS = [
    ("POST /v1/batches", "POST", "/v1/batches", True),
    ("POST /v1/batches", "GET", "/v1/batches", False),
    ("POST /v1/batches", "POST", "/v1/batches/b", False),
    ("POST /v1/batches", "POST", "/v1/batches/", False),
    ("batches", "PATCH", "/v1/batches", True),
    ("/batches/*", "GET", "/v1/batches/b/results", True),
    ("v1/batches/*", "GET", "/v1/batches", False),
    ("batches/*", "GET", "/v1/batches/", False),
    ("batches/*", "GET", "/v1/batches/%2e%2e", False),
    ("threads/*/messages", "GET", "/v1/threads/t/messages", True),
    ("threads/*/messages", "GET", "/v1/threads/t/u/messages", False),
    ("threads/*/messages", "GET", "/v1/threads//messages", False),
    ("*", "GET", "/v1/any/thing", True),
    ("files", "GET", "/v1/Files", False),
    *(("*", "POST", f"/v1/{path}", False) for path in ("a;b", "a/b;c=1", "a%62", "a/..b", "a//b", "a/", "a\\b")),
]


@pytest.mark.parametrize(("line", "method", "path", "fits"), FITS)
def test_a_line_of_server_relay(line: str, method: str, path: str, fits: bool) -> None:
    assert RelayPattern.of(line).fits(method, path) is fits


def named(method: str, path: str) -> bool:
    return any(pattern.fits(method, path) for pattern in named_calls(()))


@pytest.mark.parametrize("path", RELAYED_ENDPOINTS)
def test_s1_an_operators_key_pays_for_what_is_metered_by_its_exact_name(path: str) -> None:
    assert named("POST", f"/v1/{path}")
    odd = (
        f"{path}/",
        f"{path};a",
        f"{path};a=b/c",
        f"{path}/x",
        path.title(),
        f"{path}%20",
        f"./{path}",
        f"x/../{path}",
    )
    assert [each for each in odd if named("POST", f"/v1/{each}")] == []
    assert not named("GET", f"/v1/{path}")


def test_an_operators_key_pays_for_posts_alone() -> None:
    assert not named("POST", "/v1/images/later")
    assert not named("POST", "/v1/audio/voices")
    assert not named("POST", "/v1/responses"), "it is served here"
    assert not named("GET", "/v1/responses")
    assert not named("POST", "/v1/responses/resp_1/cancel")
    assert not named("POST", "/v1/audio")


PLAIN = ["/v1/files", "/v1/files/", "/v1/ft:gpt-4o:org::1/x", "/v1/a%2Fb", "/v1/a%20b", "/v1/x...", "/v1/.well-known/x"]
NOT_PLAIN = ["/v1/", "/v1//x", "/v1/x//y", "/v1/..", "/v1/x/.", "/v1/x/%2E./y", "/v1/x%2F..%2Fy", "/v1/%25252e%2e/x"]
NOT_PLAIN += [
    "/v1/x\\..\\y",
    "/v1/x%5Cy",
    "/v1/x%0Ay",
    "/v1/x%zz",
    "/v1/x y",
    "/v1/ü",
    "/v1/x#y",
    "/v1/..;/x",
    "/v1/x?y",
]


def test_a_path_means_one_thing() -> None:
    assert [path for path in PLAIN if not is_plain_path(path)] == []
    assert [path for path in NOT_PLAIN if is_plain_path(path)] == []


def test_headers_go_up_without_what_is_the_hops() -> None:
    given = [
        (b"host", b"h"),
        (b"authorization", b"Bearer key-of-mine"),
        (b"connection", b"X-Own, keep-alive"),
        (b"x-own", b"1"),
        *((name, b"x") for name in (b"keep-alive", b"te", b"upgrade")),
        (b"x-api-key", b"key-of-mine"),
        (b"x-debug", b"<key-of-mine>"),
        (b"x-name", "ü".encode()),
        (b"x-latin", b"\xfc"),
        (b"accept", b"a"),
        (b"accept", b"b"),
    ]
    assert headers_up(given, operator=True) == given[11:]
    assert headers_up(given, operator=False) == given[8:]


@pytest.mark.parametrize(
    ("name", "goes_up"),
    [
        *(
            (name, False)
            for name in ("x-api-key", "api-key", "apikey", "X-Goog-Api-Key", "anthropic-version", "cookie")
        ),
        *((name, False) for name in ("x-auth-token", "x-amz-security-token", "proxy-authorization", "x-litellm-key")),
        *((name, False) for name in ("ocp-apim-subscription-key", "cf-access-client-secret", "x-functions-key")),
        *((name, True) for name in ("idempotency-key", "openai-project", "x-stainless-lang", "accept", "x-author")),
        *((name, True) for name in ("x-tokens-left", "content-type", "x-monkey", "traceparent", "x-keyboard")),
    ],
)
def test_s8_a_header_is_a_credential_by_its_name(name: str, goes_up: bool) -> None:
    assert bool(headers_up([(name.lower().encode(), b"v")], operator=False)) is goes_up


def test_s8_a_query_goes_up_without_credentials() -> None:
    assert query_up("a=1&key=k&API_KEY=k&b=%3D&access%5Ftoken=t&keys=2") == "a=1&b=%3D&keys=2"
    assert query_up("key=k") == query_up("") == ""


def test_headers_come_down_without_what_is_the_upstreams() -> None:
    kept = [(b"etag", b"e"), (b"x", b""), (b"x-latin", b"\xfc")]
    given = [(b"connection", b"X-Own"), (b"x-own", b"1"), (b"set-cookie", b"a"), (b"x-bad", b"a\x00b"), *kept]
    given.append((b"x-conversation-id", b"conv_1"))
    given.append((b"alt-svc", b"h3"))
    assert headers_down(given, operator=True) == kept
    places = [(b"location", b"/v1/files/f"), (b"content-location", b"/"), (b"refresh", b"0"), (b"link", b"</>")]
    assert headers_down([*places, *kept], operator=True) == kept
    assert headers_down([*places, *kept], operator=False) == [*places, *kept], "it is the client's own account"


UP_WITH_ANY = ("accept", "content-type", "idempotency-key", "openai-project", "x-stainless-lang", "traceparent")
ODD_NAMES = ("x-debug", "x-user", "range", "if-match", "prefer", "x-http-version", "origin", "openai_project")


@pytest.mark.parametrize(("name", "goes_up"), [*((n, True) for n in UP_WITH_ANY), *((n, False) for n in ODD_NAMES)])
def test_s1_with_an_operators_key_only_listed_headers_go_up(name: str, goes_up: bool) -> None:
    assert bool(headers_up([(name.encode(), b"v")], operator=True)) is goes_up


@pytest.mark.parametrize(
    "name",
    [
        *("x-original-url", "x-rewrite-url", "x-http-method-override", "x_original_url", "x_http_method_override"),
        *("x-forwarded-for", "x-forwarded-user", "x_forwarded_email", "x-forwarded-prefix", "content_length"),
        *("transfer_encoding", "proxy_authorization", "x_real_ip", "x_api_key"),
    ],
)
def test_s8_no_header_makes_another_call_of_one_that_was_checked(name: str) -> None:
    """Header smuggling: names that some servers take for others, and headers that override method, path or identity."""
    assert headers_up([(name.encode(), b"v")], operator=True) == []
