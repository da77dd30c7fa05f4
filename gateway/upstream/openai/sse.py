"""Server-sent events as the HTML standard defines them: any line ending, comments, fields, several `data` lines."""

import re

from gateway.core.errors import UpstreamInvalidResponse

MAX_EVENT_BYTES = 32 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_SIGNS = 20
"""Comments of one piece that are kept."""
LINE_END = re.compile(rb"\r\n|\n|\r")
BETWEEN = b"\n\ndata: "


class ErrorData(bytes):
    """The data of an event whose name is `error`."""


class EventParser:
    """Turns the pieces of a stream into the data of its events. Names of events are ignored, but for `error`: nothing
    else in OpenAI's protocol depends on them. An event that the end of the stream cuts off is not given."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._data: list[bytes] = []
        self._event_bytes = 0
        self._after_cr = self._is_error = False
        self._first = True
        self._is_bare = True
        self.signs: list[bytes] = []
        """What comments say behind their colon, and nothing for each empty line that ends no event. Whoever reads them
        takes them away."""
        self.comments = 0
        """How many lines have come that belong to no event's data, while no event was under way: comments, mostly."""

    @property
    def is_inside(self) -> bool:
        """Whether an event, or a line, has begun and is not complete."""
        return bool(self._data or self._waiting_bytes)

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of all events that this piece completes.

        Raises:
            UpstreamInvalidResponse: one event exceeds 32 MB.
        """
        if (
            not (self._waiting_bytes or self._data or self._is_error)
            and piece[:6] == b"data: "
            and piece[-2:] == b"\n\n"
        ):
            # Whole events of one line each, as nearly every provider sends them.
            whole = piece[6:-2].split(BETWEEN)
            if piece.count(b"\n") == 2 * len(whole) and b"\r" not in piece:
                self._after_cr = self._first = False
                self._event_bytes = 0
                return whole
        return self._by_lines(piece)

    def _by_lines(self, piece: bytes) -> list[bytes]:
        events: list[bytes] = []
        for line in self._lines(piece):
            if not line:
                if self._data:
                    data = b"\n".join(self._data)
                    events.append(ErrorData(data) if self._is_error else data)
                else:
                    self.comments += 1
                    if self._is_bare:
                        self._sign(b"")
                self._data, self._event_bytes, self._is_bare, self._is_error = [], 0, True, False
                continue
            self._is_bare = False
            self._event_bytes = _checked(self._event_bytes + len(line))
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"event" and value.strip() == b"error":
                self._is_error = True
            else:
                if not field:
                    self._sign(value)
                self.comments += not self._data
        return events

    def _sign(self, said: bytes) -> None:
        if len(self.signs) < MAX_SIGNS:
            self.signs.append(said)

    def _lines(self, raw: bytes) -> list[bytes]:
        """Complete lines without their ends. Each piece is searched once: a line in many pieces costs its length, not
        its square."""
        piece = raw[1:] if self._after_cr and raw.startswith(b"\n") else raw  # the other half of \r\n
        self._after_cr = raw.endswith(b"\r") if raw else self._after_cr
        if b"\n" not in piece and b"\r" not in piece:
            self._waiting.append(piece)
            self._waiting_bytes = _checked(self._waiting_bytes + len(piece))
            return []
        head, *lines = LINE_END.split(piece)
        lines.insert(0, b"".join((*self._waiting, head)))
        rest = lines.pop()
        self._waiting, self._waiting_bytes = [rest], len(rest)
        if self._first:
            self._first, lines[0] = False, lines[0].removeprefix(BYTE_ORDER_MARK)
        return lines


def _checked(size: int) -> int:
    if size > MAX_EVENT_BYTES:
        raise UpstreamInvalidResponse("The upstream sent an event of more than 32 MB.")
    return size
