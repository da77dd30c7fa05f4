"""What is kept of a body that only flows by, so that a few of its members can be read afterwards (guarantee §13.8).

A short body is kept whole; of a longer one its beginning and its end, by reference as they passed. Where a member
stands is reckoned by counting brackets from the nearer end: what lies between need not be known.
"""

import re
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any

from gateway.core import jsons

END_BYTES = 2**16
"""What is kept of each end of a long body."""
WHOLE_BYTES = 2**17
"""What is kept whole, and the most that is kept before a body is shortened to its ends."""
PIECE_BYTES = 2**18
MAX_DECODED = 2**28
"""Bytes of an unpacked body that are looked through; a larger one is not read."""
READABLE = ("identity", "gzip", "x-gzip", "deflate")
"""Encodings that can be read."""
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
"""A string, which may be cut off, or a bracket."""
COLON = re.compile(rb"\s*:\s*")
STEP = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


class BodySample:
    """Both ends of a body, of `end` bytes at least, or all of it while it is not longer than `whole` bytes."""

    __slots__ = ("_end", "_gone", "_head", "_held", "_pieces", "_whole")

    def __init__(self, whole: int = WHOLE_BYTES, end: int = END_BYTES) -> None:
        self._whole = whole
        self._end = end
        self._head: bytes | None = None
        self._pieces: deque[bytes] = deque()
        self._held = self._gone = 0

    def add(self, piece: bytes) -> None:
        """The next piece has passed."""
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > self._whole:
            self._shorten()

    @property
    def size(self) -> int:
        """Bytes that have passed."""
        return self._gone + self._held

    @property
    def whole(self) -> bytes | None:
        """All of it; None if it was too long."""
        return b"".join(self._pieces) if self._head is None else None

    @property
    def head(self) -> bytes:
        """Its beginning, or all of it."""
        return b"".join(self._pieces) if self._head is None else self._head

    @property
    def tail(self) -> bytes:
        """Its end, or all of it."""
        return b"".join(self._pieces)

    def _shorten(self) -> None:
        """Lets go of what stands in neither end."""
        pieces, held = self._pieces, self._held
        if self._head is None:
            self._head = b"".join(pieces)[: self._end]
        while (rest := held - len(pieces[0])) >= self._end:
            pieces.popleft()
            held = rest
        if held > self._whole:  # one piece that is long by itself
            pieces[0] = pieces[0][held - self._end :]
            held = self._end
        self._gone += self._held - held
        self._held = held


class UnpackingSample:
    """A glimpse of a body that may be compressed."""

    def __init__(self, encoding: str, whole: int = WHOLE_BYTES) -> None:
        self.glimpse = BodySample(whole)
        self.readable = encoding in READABLE
        """Whether the glimpse shows what the body says."""
        packed = self.readable and encoding != "identity"
        self._unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32) if packed else None

    @property
    def is_packed(self) -> bool:
        """Whether taking a piece in costs time."""
        return self._unpacker is not None and self.readable

    def add(self, piece: bytes) -> None:
        """The next piece has passed."""
        if not self.readable:
            return
        if self._unpacker is None:
            self.glimpse.add(piece)
            return
        try:
            while piece and self.readable:
                self.glimpse.add(self._unpacker.decompress(piece, PIECE_BYTES))
                piece = self._unpacker.unconsumed_tail
                self.readable = self.glimpse.size <= MAX_DECODED
        except zlib.error:
            self.readable = False


class SampledMembers:
    """The members of the JSON object that a body is, so far as its glimpse shows them."""

    def __init__(self, glimpse: BodySample) -> None:
        self._glimpse = glimpse
        whole = glimpse.whole
        value = _parsed(whole) if whole is not None else None
        self.all: dict[str, Any] | None = value if isinstance(value, dict) else None
        """All of them, of a short body that is whole."""

    def get(self, name: str) -> Any:
        """A string, a number or an object; None where it cannot be found, or stands in the middle of a long body."""
        if self.all is not None:
            return self.all.get(name)
        found = from_end(self._glimpse.tail.rstrip(), name, (1,))
        return found if found is not None else from_start(self._glimpse.head, name)


def from_end(text: bytes, name: str, depths: tuple[int, ...]) -> Any:
    """The last member of that name so deep in a JSON object, of which the end is given; None if there is none.

    A quoted name that no backslash precedes and a colon follows is a key, wherever the text begins: in a string its
    quotes would be escaped.
    """
    key = b'"%s"' % name.encode()
    start = text.find(key, 1)  # an object's key is not its first byte
    while start > 0 and text[start - 1 : start] == b"\\":
        start = text.find(key, start + 1)
    if start < 0:
        return None
    depth, found = 0, []
    for token in TOKEN.finditer(text, start):
        said = token.group()
        if said == key and (colon := COLON.match(text, token.end())):
            found.append((depth, colon.end()))
        depth += STEP.get(said, 0)
    for at, value in reversed(found):
        if at - depth in depths and (read := _value(text, value)) is not None:
            return read
    return None


def from_start(text: bytes, name: str) -> Any:
    """The member of that name of a JSON object, of which the beginning is given; None if there is none."""
    key, depth = b'"%s"' % name.encode(), 0
    for token in TOKEN.finditer(text):
        said = token.group()
        if depth == 1 and said == key and (colon := COLON.match(text, token.end())):
            return _value(text, colon.end())
        depth += STEP.get(said, 0)
    return None


def _value(text: bytes, start: int) -> Any:
    """The value that begins there; None if it is null, or does not end in the text."""
    first = text[start : start + 1]
    if first in STEP:
        depth = 0
        for token in TOKEN.finditer(text, start):
            depth += STEP.get(token.group(), 0)
            if depth == 0:
                return _parsed(text[start : token.end()])
        return None
    string = TOKEN.match(text, start) if first == b'"' else None
    return _parsed(string.group() if string else re.split(rb"[,}\]\s]", text[start : start + 64], maxsplit=1)[0])


def _parsed(text: bytes) -> Any:
    try:
        return jsons.loads_exact(text)
    except jsons.JSONDecodeError:
        return None


def last_events(glimpse: BodySample) -> Iterator[bytes]:
    """The data of a stream's events, from the last one backwards as far as they are kept; the first of them may lack
    its beginning."""
    text = glimpse.tail
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    end = len(text)
    while end >= 0:
        start = text.rfind(b"\n", 0, end)
        line, end = text[start + 1 : end], start
        if line.startswith(b"data:"):
            yield line[5:].strip()
        elif line and not line.startswith((b":", b"event:", b"id:", b"retry:")):
            yield line  # what is left of a long one
