"""What may be relayed, decided purely: which paths, and which headers go with them (guarantee §1, §8)."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from gateway.models.exchange import Headers

PREFIX = "/v1/"
OWN = ("/v1/conversations/",)
"""What begins so is the gateway's own, whether it exists or not: ids of here mean nothing to an upstream."""
OPERATORS = ("embeddings", "moderations", "audio/*", "images/*", "completions", "responses")
"""What an operator's key pays for unasked, as POST: calls that leave nothing to be read by others."""

PATH = re.compile(r"/v1/(?:[\w\-.~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})+", re.ASCII)
QUERY = re.compile(r"[!-~]*", re.ASCII)
CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings"),
    }
)
KEPT_HERE = HOP_BY_HOP | {
    *(b"host", b"authorization", b"cookie", b"expect", b"content-length", b"forwarded", b"x-real-ip", b"via"),
    *(b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-port"),
    *(b"x-conversation-id", b"x-context-session", b"x-context-mode", b"x-context-planning"),
    b"x-context-max-input-tokens",
}
CREDENTIALS = frozenset((b"api-key", b"x-api-key", b"x-goog-api-key", b"anthropic-api-key"))
KEPT_THERE = HOP_BY_HOP | {
    *(b"set-cookie", b"set-cookie2", b"date", b"server", b"via", b"alt-svc", b"strict-transport-security"),
}
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


def headers_up(headers: Headers, *, operator: bool) -> Headers:
    """The client's headers that go up. Its `Authorization` is replaced, and whatever else holds its key stays here
    when the call is made with an operator's."""
    dropped = KEPT_HERE | _named_by_connection(headers) | (CREDENTIALS if operator else frozenset())
    kept = [(name, value) for name, value in headers if name not in dropped]
    tokens = [value.rpartition(b" ")[2] for name, value in headers if name == b"authorization"] if operator else []
    return [(name, value) for name, value in kept if not any(token and token in value for token in tokens)]


def headers_down(headers: Headers) -> Headers:
    """Upstream's headers that come back, as they came but for those of its own connection."""
    dropped = KEPT_THERE | _named_by_connection(headers)
    return [(name, value) for name, value in headers if name not in dropped and not CONTROL.search(value)]


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    listed = b",".join(value for name, value in headers if name == b"connection")
    return frozenset(name.strip().lower() for name in listed.split(b","))
