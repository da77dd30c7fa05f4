"""Plain text in any encoding."""

from gateway.documents.document import Reading, ReadOptions

UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """The text itself."""
    return Reading(decoded(raw))


def decoded(raw: bytes) -> str:
    """The bytes as text; what cannot be decoded is U+FFFD."""
    return raw.decode("utf-16" if raw.startswith(UTF_16) else "utf-8-sig", "replace")
