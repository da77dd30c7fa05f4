"""What may be relayed, decided purely: which paths, and which headers go with them (contract §1, §8)."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from gateway.models.relay import Headers

PREFIX = "/v1/"
OPERATORS = ("embeddings", "moderations", "audio/*", "images/*", "completions", "responses")
"""What an operator's key pays for unasked, as POST: calls that leave nothing to be read by others."""

PATH = re.compile(r"/v1/(?:[\w\-.~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})+", re.ASCII)
QUERY = re.compile(r"[!-~]*", re.ASCII)
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"),
        *("te", "trailer", "transfer-encoding", "upgrade", "http2-settings"),
    }
)
KEPT_HERE = HOP_BY_HOP | {
    *("host", "authorization", "cookie", "expect", "content-length"),
    *("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-real-ip", "via"),
    *("x-conversation-id", "x-context-session", "x-context-mode", "x-context-planning", "x-context-max-input-tokens"),
}
CREDENTIALS = frozenset(("api-key", "x-api-key", "x-goog-api-key", "anthropic-api-key"))
KEPT_THERE = HOP_BY_HOP | {"set-cookie", "set-cookie2", "date", "server", "via", "alt-svc", "strict-transport-security"}
"""Headers of an answer that speak of the upstream's own connection, cookies or host."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of `server.relay`. A star in the middle stands for one segment, at the end for one or more."""

    method: str | None
    segments: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Pattern":
        """Of `[METHOD ][/v1/]path`; a line without a method stands for all of them."""
        method, space, path = text.rpartition(" ")
        return cls(method if space else None, tuple(path.strip("/").removeprefix("v1/").split("/")))

    def fits(self, method: str, path: str) -> bool:
        """Whether it names this call; a path with percent-encoded characters is named by none."""
        segments = path.removeprefix(PREFIX).split("/")
        if self.method not in (None, method) or "%" in path:
            return False
        if self.segments[-1] == "*" and len(segments) > len(self.segments):
            segments = segments[: len(self.segments)]
        return len(segments) == len(self.segments) and all(
            mine in ("*", given) and given for mine, given in zip(self.segments, segments, strict=True)
        )


def named_calls(relay: tuple[str, ...]) -> tuple[Pattern, ...]:
    """What may be relayed with an operator's key: the contract's own calls and those of `server.relay`."""
    return (*(Pattern("POST", tuple(path.split("/"))) for path in OPERATORS), *map(Pattern.of, relay))


def is_plain_path(raw_path: str) -> bool:
    """Whether a path below `/v1/` means the same to everyone: no empty or dot segments, however they are encoded."""
    if not PATH.fullmatch(raw_path):
        return False
    decoded = raw_path
    for _ in range(3):
        decoded = unquote(decoded, "latin-1")
    if any(ord(character) < 32 or character == "\\" for character in decoded):
        return False
    segments = decoded.removeprefix(PREFIX).split("/")
    return not any(segment.split(";")[0] in (".", "..") for segment in segments) and "" not in segments[:-1]


def headers_up(headers: list[tuple[bytes, bytes]], *, operator: bool) -> Headers:
    """The client's headers that go up. Its `Authorization` is replaced, and whatever else holds its key stays here
    when the call is made with an operator's."""
    pairs = [(name.decode("latin-1").lower(), _text(value)) for name, value in headers]
    dropped = KEPT_HERE | _named_by_connection(pairs) | (CREDENTIALS if operator else frozenset())
    kept = [(name, value) for name, value in pairs if name not in dropped]
    tokens = [value.rpartition(" ")[2] for name, value in pairs if name == "authorization"] if operator else []
    return [(name, value) for name, value in kept if not any(token and token in value for token in tokens)]


def headers_down(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Upstream's headers that come back, as they came but for those of its own connection."""
    pairs = [(name.lower(), value) for name, value in headers]
    dropped = KEPT_THERE | _named_by_connection(pairs)
    kept = [pair for pair in pairs if pair[0] not in dropped and not CONTROL.search(pair[1])]
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept]


def _text(value: bytes) -> str:
    """A header's value for the HTTP client, which writes UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _named_by_connection(pairs: Headers) -> frozenset[str]:
    listed = ",".join(value for name, value in pairs if name == "connection")
    return frozenset(name.strip().lower() for name in listed.split(","))
