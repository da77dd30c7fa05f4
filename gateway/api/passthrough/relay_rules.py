"""Decides as pure functions what may be relayed: which paths, and which headers go with them (guarantee §1, §8)."""

import re
from urllib.parse import unquote

from gateway.api.request.validation import GATEWAY_HEADERS
from gateway.billing import relayed_usage
from gateway.core import names
from gateway.core.frozen_records import record
from gateway.core.types import keys
from gateway.core.types.chat import Headers

PREFIX = "/v1/"
OWN = ("/v1/conversations/", "/v1/gateway/", "/v1/v1/")
"""Prefixes that are never relayed: the gateway's ids mean nothing to an upstream."""
ODD = re.compile(r"[%;\\]|\.\.|//|/\Z")
"""Characters that make some servers read another path: an operator's key is never used for such a path."""
PATH = re.compile(r"/v1/(?:[\w\-.~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})+", re.ASCII)
QUERY = re.compile(r"[!-~]*", re.ASCII)
RELAY_CONTROL_CHAR = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
HOP_BY_HOP_HEADERS = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings"),
    }
)
DROPPED_REQUEST_HEADERS = HOP_BY_HOP_HEADERS | {
    *(b"host", b"authorization", b"cookie", b"expect", b"content-length", b"forwarded", b"x-real-ip", b"via"),
    *GATEWAY_HEADERS,
}
UP = frozenset(
    {
        *(b"accept", b"accept-encoding", b"accept-language", b"content-type", b"content-encoding", b"user-agent"),
        *(b"digest", b"content-digest", b"content-md5", b"idempotency-key", b"x-client-request-id"),
        *(b"openai-organization", b"openai-project", b"openai-beta", b"traceparent", b"tracestate", b"baggage"),
    }
)
"""The headers sent upstream with an operator's key, beside those of `UP_BY_START`. Any other could make some server
read another request than the one that was checked, or act for somebody else."""
UP_BY_START = b"x-stainless-"
FORWARDED_PREFIX = b"x-forwarded-"
CREDENTIAL_PARAMETERS = frozenset(("key", "api_key", "api-key", "apikey", "access_token", "token"))
"""Parameters of a query that carry a credential, as some providers take it."""
DROPPED_RESPONSE_HEADERS = HOP_BY_HOP_HEADERS | {
    *(b"set-cookie", b"set-cookie2", b"date", b"server", b"via", b"alt-svc", b"strict-transport-security"),
    *(b"access-control-allow-origin", b"access-control-allow-credentials", b"access-control-expose-headers"),
    *(b"access-control-allow-methods", b"access-control-allow-headers", b"access-control-max-age"),
    *(b"x-conversation-id", b"clear-site-data"),
}
"""Headers of an answer about the upstream's own connection, cookies, host or access rules, and those that the gateway
sets itself."""
LOCATION_HEADERS = frozenset((b"location", b"content-location", b"refresh", b"link"))
"""Headers of an answer that name a location in the account of the key that was used."""


@record
class RelayPattern:
    """One line of `server.relay`. A star in the middle matches one segment, at the end one or more."""

    method: str | None
    segments: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "RelayPattern":
        """Parses `[METHOD ][/v1/]path`; a line without a method matches all methods."""
        method, space, path = text.rpartition(" ")
        return cls(method if space else None, tuple(path.strip("/").removeprefix("v1/").split("/")))

    def fits(self, method: str, path: str) -> bool:
        """Returns whether the pattern matches a call; a path that a server may read otherwise (`ODD`) matches none."""
        segments = path.removeprefix(PREFIX).split("/")
        if self.method not in (None, method) or ODD.search(path):
            return False
        if self.segments[-1] == "*" and len(segments) > len(self.segments):
            segments = segments[: len(self.segments)]
        return len(segments) == len(self.segments) and all(
            mine in ("*", given) for mine, given in zip(self.segments, segments, strict=True)
        )


BY_A_MODEL = tuple(RelayPattern("POST", tuple(path.split("/"))) for path in relayed_usage.RELAYED_ENDPOINTS)
"""What an operator's key may be used for by default: exactly what is metered. It leaves nothing that others could
read."""
OF_FILES = (RelayPattern.of("POST files"), RelayPattern.of("POST uploads/*/parts"))


def named_calls(relay: tuple[str, ...]) -> tuple[RelayPattern, ...]:
    """Returns the calls that may be relayed with an operator's key: those of `BY_A_MODEL` and of `server.relay`."""
    return (*BY_A_MODEL, *map(RelayPattern.of, relay))


def is_operators(method: str, path: str) -> bool:
    """Returns whether an operator's key may be used for a call by default. A model answers all of these calls.
    `path`: below `/v1/`."""
    return any(pattern.fits(method, PREFIX + path) for pattern in BY_A_MODEL)


def only_stores_files(method: str, path: str) -> bool:
    """Returns whether a call uploads a file and calls no model: its body need not be read."""
    return any(pattern.fits(method, PREFIX + path) for pattern in OF_FILES)


def is_plain_path(raw_path: str) -> bool:
    """Returns whether every server reads a path below `/v1/` alike: no empty or dot segments, however encoded."""
    if not PATH.fullmatch(raw_path):
        return False
    decoded = raw_path
    for _ in range(3):
        decoded = unquote(decoded, "latin-1")
    if any(ord(character) < 32 or character == "\\" for character in decoded):
        return False
    segments = decoded.removeprefix(PREFIX).split("/")
    return not any(segment.split(";")[0] in (".", "..") for segment in segments) and "" not in segments[:-1]


def headers_up(headers: Headers, *, operator: bool) -> Headers:
    """Returns the client's headers to send upstream, without `Authorization` and any other credential, which was meant
    for the gateway.
    `operator`: an operator's key is used: only listed headers are sent, and none that contains the client's key."""
    dropped = DROPPED_REQUEST_HEADERS | _named_by_connection(headers)
    kept = [
        (name, value)
        for name, value in headers
        if (dashed := name.replace(b"_", b"-")) not in dropped  # some servers know no difference
        and not dashed.startswith(FORWARDED_PREFIX)
        and not names.is_credential(name.decode("latin-1"))
        and (not operator or name in UP or name.startswith(UP_BY_START))
    ]
    kept = [(name, value) for name, value in kept if not keys.is_ours(value.decode("latin-1"))]
    tokens = [value.rpartition(b" ")[2] for name, value in headers if name == b"authorization"] if operator else []
    return [(name, value) for name, value in kept if not any(token and token in value for token in tokens)]


def query_up(query: str) -> str:
    """Returns the query to send upstream: unchanged, but without credentials and keys of the gateway."""
    kept = [
        pair
        for pair in query.split("&")
        if unquote(pair.partition("=")[0]).lower() not in CREDENTIAL_PARAMETERS and not keys.is_ours(unquote(pair))
    ]
    return "&".join(kept)


def headers_down(headers: Headers, *, operator: bool) -> Headers:
    """Returns the upstream's headers to send to the client: all but those of its own connection, and with an operator's
    key none that names a location in the operator's account."""
    dropped = DROPPED_RESPONSE_HEADERS | _named_by_connection(headers) | (LOCATION_HEADERS if operator else frozenset())
    return [(name, value) for name, value in headers if name not in dropped and not RELAY_CONTROL_CHAR.search(value)]


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    listed = b",".join(value for name, value in headers if name == b"connection")
    return frozenset(name.strip().lower() for name in listed.split(b","))
