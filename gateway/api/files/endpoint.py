"""`/v1/files` as OpenAI serves it, where files are stored here; else relayed as before (guarantee §14.5)."""

import mimetypes
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from typing import Annotated, Any, Literal, NotRequired
from urllib.parse import quote

from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header
from pydantic import Field
from typing_extensions import TypedDict

from gateway.api.auth import KeyAuthenticator, check_apart, check_known
from gateway.api.pagination import (
    MAX_PAGE_SIZE,
    AnthropicPaging,
    Query,
    anthropic_paging_of,
    check_named,
    included,
    limit_of,
    listed,
    newest_first,
    parameters,
    refuse_nul,
)
from gateway.api.passthrough.bodies import file_name
from gateway.api.server.asgi import (
    App,
    ClientDisconnected,
    Receive,
    Scope,
    Send,
    came_by_messages,
    check_encoding,
    header,
    send_json,
)
from gateway.api.server.middleware import note_caller
from gateway.api.shapes import Binary, Json, Unix, one_of, shape, shown
from gateway.core import errors
from gateway.core.types import audit_log
from gateway.core.types.chat import RequestCaller
from gateway.core.types.files import FAILED, FILE_PURPOSES, PROCESSED, UPLOADED, FileQuery, FileRecord
from gateway.documents.files import CallersFiles, FileService, FilesHere, UploadFields

# A form with one file, read while it arrives: the file goes on in pieces, and is never whole in memory.

FORM = "multipart/form-data"
ANCHOR, SECONDS = "expires_after[anchor]", "expires_after[seconds]"
LIFETIME_FIELD = "expires_in_seconds"
"""What Anthropic's clients say in the place of anchor and seconds."""
FIELDS = ("purpose", ANCHOR, SECONDS, LIFETIME_FIELD)
MAX_FIELD, MAX_PARTS, MAX_NAME, MAX_TYPE = 1024, 16, 1024, 255
AROUND = 2**16
"""Bytes that a form may have in addition to the file."""
MIN_SECONDS, MAX_SECONDS = 3600, 2_592_000
"""The range of `expires_after[seconds]`, as with OpenAI."""
MAX_LIFETIME = 7_776_000
"""The most of `expires_in_seconds`, as with Anthropic."""
PAGE_PREFIX = "page_"


class UploadForm:
    """An upload form. `pieces` is read once, to its end; then `said` returns the form's other fields.
    Raises InvalidRequest: it is no form with a boundary; RequestTooLarge: by its declared length."""

    def __init__(
        self, scope: Scope, receive: Receive, max_bytes: int, own: tuple[str, ...] = (), file: str = "file"
    ) -> None:
        """`own`: further fields that the form may have; `file`: the name of the file's field. Only OpenAI's clients
        name a purpose."""
        check_encoding(scope)
        kind, options = parse_options_header(header(scope, b"content-type") or "")
        self._boundary = options.get("boundary", "")
        self._name = file
        if kind != FORM or not self._boundary:
            raise errors.InvalidRequest(
                "The request must be a multipart/form-data form.", param=file, code="invalid_form"
            )
        declared = header(scope, b"content-length") or ""
        self._most = max_bytes + AROUND
        if declared.isdecimal() and int(declared) > self._most:
            raise self._too_large()
        self._receive = receive
        self._known = (*FIELDS, *own)
        self._fields: dict[str, str] = {}
        self._purpose = "user_data" if came_by_messages(scope) else None
        self._file: Any = None
        self._file_name = ""

    def field(self, name: str) -> str | None:
        """Returns a field that has arrived by now; None for any other."""
        return self._fields.get(name)

    @property
    def is_chosen(self) -> bool:
        """Whether there is a file with a name: browsers send one without, where none was chosen."""
        return bool(self._file_name)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yields the content of the file in pieces.
        Raises InvalidRequest: the form is malformed, or has a field twice; RequestTooLarge: the form is too long;
        ClientDisconnected: the client left before the form's end."""
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
                if len(value) > MAX_FIELD:
                    raise errors.invalid(_shown(current), f"must have {MAX_FIELD} bytes at most")

    def check(self) -> None:
        """Raises InvalidRequest: the form had no file."""
        if self._file is None:
            raise errors.missing(self._name)

    def said(self) -> UploadFields:
        """Returns the name and the fields of the file. Raises InvalidRequest: a field is missing or breaks its rule."""
        self.check()
        purpose = self._fields.get("purpose", self._purpose)
        if purpose is None:
            raise errors.missing("purpose")
        if purpose not in FILE_PURPOSES:
            raise errors.invalid("purpose", f"must be one of {', '.join(FILE_PURPOSES)}")
        name = self._file_name.replace("\x00", "")[:MAX_NAME] or "file"
        kind = self._file.header("Content-Type") or mimetypes.guess_type(name)[0] or "application/octet-stream"
        return UploadFields(name, purpose, kind.replace("\x00", "")[:MAX_TYPE], self._expires_after())

    def _expires_after(self) -> float | None:
        if LIFETIME_FIELD in self._fields:
            return self._seconds(LIFETIME_FIELD, MAX_LIFETIME)
        if not self._fields.keys() & {ANCHOR, SECONDS}:
            return None
        if self._fields.get(ANCHOR) != "created_at":
            raise errors.invalid(ANCHOR, "must be created_at")
        return self._seconds(SECONDS, MAX_SECONDS)

    def _seconds(self, name: str, most: int) -> int:
        text = self._fields.get(name, "")
        is_number = text.isascii() and text.isdigit() and len(text) <= 9
        if not is_number or not MIN_SECONDS <= int(text) <= most:
            raise errors.invalid(name, f"must be a whole number from {MIN_SECONDS} to {most}")
        return int(text)

    def _begin(self, segment: MultipartSegment) -> None:
        if segment.name != self._name:
            return
        if self._file is not None:
            raise errors.invalid(self._name, "must be one file")
        name = file_name(segment)
        if name is None:
            raise errors.invalid(self._name, "must be a file, with a filename")
        self._file, self._file_name = segment, name

    def _keep(self, name: str, value: bytes) -> None:
        if name not in self._known:
            raise errors.invalid(name[:64] or "field", f"is not known; known are {self._name}, {', '.join(FIELDS)}")
        if name in self._fields:
            raise errors.invalid(name, "must be given once")
        try:
            self._fields[name] = value.decode()
        except UnicodeDecodeError:
            raise errors.invalid(name, "must be UTF-8") from None

    async def _events(self) -> AsyncGenerator[Any, None]:
        size, more = 0, True
        try:
            with PushMultipartParser(self._boundary, max_segment_count=MAX_PARTS, strict=True) as parser:
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
            raise errors.InvalidRequest(text, param=self._name, code="invalid_form") from None

    def _too_large(self) -> errors.RequestTooLarge:
        most = f"{self._most - AROUND} bytes{' (files.max_bytes)' if self._name == 'file' else ''}"
        return errors.RequestTooLarge(f"The file exceeds {most}.", param=self._name)


def _shown(segment: Any) -> str:
    return segment.name[:64] if segment is not None and segment.name else "field"


# One range of bytes of a content, as HTTP asks for it (RFC 9110, §14).

RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})\Z", re.IGNORECASE)


class NotSatisfiable(Exception):
    """Nothing of the content is in the range."""


def range_of(asked: str | None, size: int) -> tuple[int, int] | None:
    """Returns the first and last byte to send; None to send the whole: the header `asked` names no range, several, or
    is unreadable. Raises NotSatisfiable: there is no such byte."""
    found = RANGE.match((asked or "").strip())
    if found is None or not (found[1] or found[2]):
        return None
    first, last = (int(found[1]), int(found[2] or size - 1)) if found[1] else (max(0, size - int(found[2])), size - 1)
    if found[1] and found[2] and last < first:
        return None
    if first >= size:
        raise NotSatisfiable
    return first, min(last, size - 1)


MAX_PAGE = 10_000
NO_SUCH_PATH = (404, 405, 501)
"""Statuses with which an upstream reports that it has no files API."""


FileUpload = shape(
    "FileUpload",
    "A form with one file.",
    {
        "file": Binary,
        "purpose": Annotated[str, one_of(FILE_PURPOSES)],
        f"{ANCHOR}?": Literal["created_at"],
        f"{SECONDS}?": Annotated[int, Field(ge=MIN_SECONDS, le=MAX_SECONDS)],
    },
)


class FileObject(TypedDict):
    """OpenAI's file object, with `progress` while it is read in the background."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: Unix
    expires_at: Unix | None
    filename: str
    purpose: Annotated[str, one_of(FILE_PURPOSES)]
    status: Annotated[str, one_of((UPLOADED, PROCESSED, FAILED))]
    status_details: str | None
    progress: NotRequired[Annotated[float, Field(ge=0, le=1)]]


def as_file(record: FileRecord) -> FileObject:
    return shown(FileObject, record, object="file", bytes=record.size, filename=record.name)


def as_anthropic_file(record: FileRecord) -> Json:
    """Converts a file to Anthropic's object of it."""
    begun, ends = (
        at and at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in (record.created_at, record.expires_at)
    )
    said = {"filename": record.name, "mime_type": record.media_type, "size_bytes": record.size}
    return {"id": record.id, "type": "file", **said, "created_at": begun, "expires_at": ends, "downloadable": True}


def file_for(scope: Scope, record: FileRecord) -> FileObject | Json:
    """Converts a file to the object that a request's API has for it."""
    return as_anthropic_file(record) if came_by_messages(scope) else as_file(record)


Answer = Callable[[RequestCaller, Scope, Receive, Send], Awaitable[None]]


@dataclass(eq=False, slots=True)
class FileEndpoint:
    """A path that is relayed for callers whose files the upstream stores."""

    auth: KeyAuthenticator
    relay: App
    files: CallersFiles
    serves: FilesHere
    answer: Answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self.auth.caller(scope)
        file_id = scope["path_params"].get("file_id")
        is_here = self.serves(caller) if file_id is None else await self.files.is_here(file_id, caller)
        if not is_here:
            is_new = scope["method"] == "POST" and "upload_id" not in scope["path_params"]
            await self._relayed(caller, scope, receive, send, is_new=is_new and self.serves.may(caller))
            return
        check_known(caller.tenant)
        note_caller(scope["gateway"], caller)
        await self.answer(caller, scope, receive, send)

    async def _relayed(
        self, caller: RequestCaller, scope: Scope, receive: Receive, send: Send, *, is_new: bool
    ) -> None:
        """Relays a call. Raises FilesNotKept: the upstream has no such path for a new file (`is_new`); OpenAI's SDKs
        then send it again by themselves."""

        def check(status: int) -> None:
            if is_new and status in NO_SUCH_PATH:
                self.serves.keeps_none(caller)
                raise errors.FilesNotKept

        async def passed(message: Any) -> None:
            check(message.get("status", 0))
            await send(message)

        try:
            await self.relay(scope, receive, passed)
        except errors.UpstreamError as error:
            check(error.status)
            raise


class FileEndpoints:
    """The endpoints `all`, `one` and `content`."""

    def __init__(self, files: FileService, endpoint: Callable[[Answer], FileEndpoint], max_bytes: int) -> None:
        self._files = files
        self._max_bytes = max_bytes
        self.all = endpoint(self._all)
        self.one = endpoint(self._one)
        self.content = endpoint(self._content)

    async def _all(self, caller: RequestCaller, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            form = UploadForm(scope, receive, self._max_bytes)
            record = await self._files.add(caller, form.pieces(), form.said)
            await send_json(send, 200, file_for(scope, record), {})
            return
        check_apart(scope, caller, "files")
        text = scope["query_string"].decode("latin-1")
        query = parameters(text)
        if came_by_messages(scope):
            if (page_name := query.get("page")) is not None:  # of later SDKs; earlier ones name the last file
                query = {**query, "after_id": page_name.removeprefix(PAGE_PREFIX)}
            paging, chosen = anthropic_paging_of(query), included(text, "ids")
            found = self._chosen(caller.tenant, chosen) if chosen else self._anthropic_page(caller.tenant, paging)
            await send_json(send, 200, await found, {})
            return
        page = await self._files.page(caller.tenant, _query(query))
        await send_json(send, 200, listed([as_file(each) for each in page.found], has_more=page.has_more), {})

    async def _chosen(self, tenant: str, chosen: Sequence[str]) -> Json:
        """Returns the named files; those that do not exist are left out, as by Anthropic."""
        if len(set(chosen)) > MAX_PAGE_SIZE:
            raise errors.invalid("ids", f"may name {MAX_PAGE_SIZE} files")
        found = []
        for file_id in dict.fromkeys(chosen):
            with suppress(errors.FileNotFound):
                found.append(as_anthropic_file(await self._files.find(tenant, file_id)))
        return {**AnthropicPaging.page(found, has_more=False), "next_page": None}

    async def _anthropic_page(self, tenant: str, paging: AnthropicPaging) -> Json:
        refuse_nul(paging.field, paging.cursor)
        try:
            page = await self._files.page(tenant, FileQuery(paging.limit, paging.cursor, not paging.is_before))
        except errors.FileNotFound as error:
            error.param = paging.field
            raise
        found = [as_anthropic_file(each) for each in page.found]
        told = paging.page(found[::-1] if paging.is_before else found, has_more=page.has_more)
        behind = page.has_more and not paging.is_before
        return {**told, "next_page": f"{PAGE_PREFIX}{told['last_id']}" if behind else None}

    async def _one(self, caller: RequestCaller, scope: Scope, receive: Receive, send: Send) -> None:
        file_id = scope["path_params"]["file_id"]
        if scope["method"] == "DELETE":
            await self._files.delete(caller.tenant, file_id, audit_log.actor_of(caller))
            told = {"type": "file_deleted"} if came_by_messages(scope) else {"object": "file", "deleted": True}
            await send_json(send, 200, {"id": file_id, **told}, {})
            return
        await send_json(send, 200, file_for(scope, await self._files.find(caller.tenant, file_id)), {})

    async def _content(self, caller: RequestCaller, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends all of the content or one range as it is read, as an attachment that no browser shows or runs."""
        file_id, is_head = scope["path_params"]["file_id"], scope["method"] == "HEAD"
        asked = None if is_head or header(scope, b"if-range") is not None else header(scope, b"range")
        part = await self._part(caller.tenant, file_id, asked) if asked is not None else None
        record, pieces = await self._files.content(caller.tenant, file_id, part[0] if part is not None else 0)
        left = record.size if part is None else part[1] - part[0] + 1
        headers = [
            (b"content-type", b"application/octet-stream"),
            (b"content-length", str(left).encode()),
            (b"accept-ranges", b"bytes"),
            (b"content-disposition", f"attachment; filename*=UTF-8''{_quoted(record.name)}".encode()),
            (b"x-content-type-options", b"nosniff"),
        ]
        if part is not None:
            headers.append((b"content-range", f"bytes {part[0]}-{part[1]}/{record.size}".encode()))
        begun = False

        async def begin() -> None:
            nonlocal begun
            if not begun:
                begun = True
                status = 200 if part is None else 206
                await send({"type": "http.response.start", "status": status, "headers": headers})

        if not is_head:
            async for piece in pieces:
                await begin()  # what cannot be read at all is an error of its own
                await send({"type": "http.response.body", "body": piece[:left], "more_body": True})
                left -= len(piece[:left])
                if not left:
                    break
            if left:
                raise errors.StorageUnavailable("The content of the file ended early: it was deleted meanwhile.")
        await begin()
        await send({"type": "http.response.body", "body": b""})

    async def _part(self, tenant: str, file_id: str, asked: str) -> tuple[int, int] | None:
        """Returns the first and last byte; None: the whole. Raises RangeNotSatisfiable: no byte is in the range."""
        size = (await self._files.find(tenant, file_id)).size
        try:
            return range_of(asked, size)
        except NotSatisfiable as error:
            raise errors.RangeNotSatisfiable(size) from error


def _query(query: Query) -> FileQuery:
    check_named(query, "after", "purpose")
    limit = limit_of(query, MAX_PAGE, MAX_PAGE)
    for name in ("after", "purpose"):
        refuse_nul(name, query.get(name))
    return FileQuery(limit, query.get("after"), newest_first(query, "desc"), query.get("purpose"))


def _quoted(name: str) -> str:
    return quote(name.encode("utf-8", "replace"), safe="")
