"""A form with one file, read while it arrives: the file goes on in pieces, and is never whole in memory."""

import mimetypes
from collections.abc import AsyncGenerator
from typing import Any

from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from gateway.errors import InvalidRequest, RequestTooLarge
from gateway.files.store import Said
from gateway.http.edge import ClientDisconnected, Receive, Scope
from gateway.http.fields import invalid, missing
from gateway.http.receive import check_encoding, header
from gateway.models.files import PURPOSES

FORM = "multipart/form-data"
ANCHOR, SECONDS = "expires_after[anchor]", "expires_after[seconds]"
FIELDS = ("purpose", ANCHOR, SECONDS)
MOST_FIELD, MOST_PARTS, MOST_NAME, MOST_TYPE = 1024, 16, 1024, 255
AROUND = 2**16
"""Bytes that a form may have beside the file."""
LEAST_SECONDS, MOST_SECONDS = 3600, 2_592_000
"""What `expires_after[seconds]` may be, as with OpenAI."""


class UploadForm:
    """One form. `pieces` is read once, to its end; then `said` tells what else it holds.

    Raises:
        InvalidRequest: it is no form with a boundary.
        RequestTooLarge: by its declared length.
    """

    def __init__(self, scope: Scope, receive: Receive, max_bytes: int) -> None:
        check_encoding(scope)
        kind, options = parse_options_header(header(scope, b"content-type") or "")
        self._boundary = options.get("boundary", "")
        if kind != FORM or not self._boundary:
            raise InvalidRequest("The request must be a multipart/form-data form.", param="file", code="invalid_form")
        declared = header(scope, b"content-length") or ""
        self._most = max_bytes + AROUND
        if declared.isdigit() and int(declared) > self._most:
            raise self._too_large()
        self._receive = receive
        self._fields: dict[str, str] = {}
        self._file: Any = None

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The file's.

        Raises:
            InvalidRequest: the form is malformed, or has a field twice.
            RequestTooLarge: the form is too long.
            ClientDisconnected: the client left before its end.
        """
        current: Any = None
        value = bytearray()
        async for event in self._events():
            if isinstance(event, MultipartSegment):
                current, value = event, bytearray()
                self._begin(event)
            elif event is None:
                if current is not None and current is not self._file:
                    self._keep(current.name, bytes(value))
            elif current is self._file:
                yield bytes(event)
            else:
                value += event
                if len(value) > MOST_FIELD:
                    raise invalid(_shown(current), f"must have {MOST_FIELD} bytes at most")

    def said(self) -> Said:
        """
        Raises:
            InvalidRequest: something is missing, or is not what it may be.
        """
        if self._file is None:
            raise missing("file")
        purpose = self._fields.get("purpose")
        if purpose is None:
            raise missing("purpose")
        if purpose not in PURPOSES:
            raise invalid("purpose", f"must be one of {', '.join(PURPOSES)}")
        name = (self._file.filename or "").replace("\x00", "")[:MOST_NAME] or "file"
        kind = self._file.header("Content-Type") or mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Said(name, purpose, kind.replace("\x00", "")[:MOST_TYPE], self._expires_after())

    def _expires_after(self) -> float | None:
        anchor, seconds = self._fields.get(ANCHOR), self._fields.get(SECONDS)
        if anchor is None and seconds is None:
            return None
        if anchor != "created_at":
            raise invalid(ANCHOR, "must be created_at")
        text = seconds or ""
        is_number = text.isascii() and text.isdigit() and len(text) <= 9
        if not is_number or not LEAST_SECONDS <= int(text) <= MOST_SECONDS:
            raise invalid(SECONDS, f"must be a whole number from {LEAST_SECONDS} to {MOST_SECONDS}")
        return int(text)

    def _begin(self, segment: MultipartSegment) -> None:
        if segment.name != "file":
            return
        if self._file is not None:
            raise invalid("file", "must be one file")
        if segment.filename is None:
            raise invalid("file", "must be a file, with a filename")
        self._file = segment

    def _keep(self, name: str, value: bytes) -> None:
        if name not in FIELDS:
            raise invalid(name[:64] or "field", f"is not known; known are file, {', '.join(FIELDS)}")
        if name in self._fields:
            raise invalid(name, "must be given once")
        try:
            self._fields[name] = value.decode()
        except UnicodeDecodeError:
            raise invalid(name, "must be UTF-8") from None

    async def _events(self) -> AsyncGenerator[Any, None]:
        size, more = 0, True
        try:
            with PushMultipartParser(self._boundary, max_segment_count=MOST_PARTS, strict=True) as parser:
                while more:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    piece = message.get("body", b"")
                    more = message.get("more_body", False)
                    size += len(piece)
                    if size > self._most:
                        raise self._too_large()
                    for event in parser.parse(piece) if piece else ():
                        yield event
        except (MultipartError, UnicodeError) as error:
            is_name = any(isinstance(each, UnicodeError) for each in (error, *error.args))
            why = "the file's name, and those of fields, must be UTF-8" if is_name else error
            text = f"The multipart form cannot be read: {why}."
            raise InvalidRequest(text, param="file", code="invalid_form") from None

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"The file exceeds {self._most - AROUND} bytes (files.max_bytes).", param="file")


def _shown(segment: Any) -> str:
    return segment.name[:64] if segment is not None and segment.name else "field"
