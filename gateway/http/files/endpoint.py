"""`/v1/files` as OpenAI serves it, where files are kept here, else the relay's as it ever was (guarantee §14.5)."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from gateway.errors import FilesNotKept, RangeNotSatisfiable, StorageUnavailable, UpstreamError
from gateway.files.store import CallersFiles, Files, Serves
from gateway.http.auth import UNKNOWN, Authenticator
from gateway.http.edge import App, Receive, Scope, Send, send_json
from gateway.http.fields import invalid
from gateway.http.files.form import UploadForm
from gateway.http.files.ranges import NotSatisfiable, range_of
from gateway.http.queries import Query, check_named, listed, newest_first, parameters
from gateway.http.receive import header
from gateway.models.exchange import Caller
from gateway.models.files import FileQuery, FileRecord
from gateway.models.trail import actor_of

MAX_PAGE = 10_000
NO_SUCH_PATH = (404, 405, 501)
"""Statuses by which an upstream says that it has no files."""


def as_file(record: FileRecord) -> dict[str, Any]:
    """OpenAI's object, with `progress` while it is read in the background."""
    made = {
        "id": record.id,
        "object": "file",
        "bytes": record.size,
        "created_at": int(record.created_at.timestamp()),
        "expires_at": int(record.expires_at.timestamp()) if record.expires_at is not None else None,
        "filename": record.name,
        "purpose": record.purpose,
        "status": record.status,
        "status_details": record.status_details,
    }
    return made if record.progress is None else {**made, "progress": record.progress}


Answer = Callable[[Caller, Scope, Receive, Send], Awaitable[None]]


class FileEndpoint:
    """A path, which is the relay's for those whose files are the upstream's."""

    def __init__(self, auth: Authenticator, relay: App, files: CallersFiles, serves: Serves, answer: Answer) -> None:
        self._auth = auth
        self._relay = relay
        self._files = files
        self._serves = serves
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._auth.caller(scope)
        file_id = scope["path_params"].get("file_id")
        is_here = self._serves(caller) if file_id is None else await self._files.is_here(file_id, caller)
        if not is_here:
            try:
                await self._relay(scope, receive, send)
            except UpstreamError as error:
                if scope["method"] != "POST" or error.status not in NO_SUCH_PATH or not self._serves.may(caller):
                    raise
                self._serves.keeps_none(caller)
                raise FilesNotKept from error  # OpenAI's SDKs then send the upload again by themselves
            return
        if caller.tenant == UNKNOWN:
            raise StorageUnavailable("The storage cannot be reached.")
        scope["gateway"]["tenant"] = caller.tenant
        await self._answer(caller, scope, receive, send)


class FileEndpoints:
    """The endpoints `all`, `one` and `content`."""

    def __init__(
        self, files: Files, callers: CallersFiles, auth: Authenticator, relay: App, serves: Serves, max_bytes: int
    ) -> None:
        self._files = files
        self._max_bytes = max_bytes
        self.all = FileEndpoint(auth, relay, callers, serves, self._all)
        self.one = FileEndpoint(auth, relay, callers, serves, self._one)
        self.content = FileEndpoint(auth, relay, callers, serves, self._content)

    async def _all(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            form = UploadForm(scope, receive, self._max_bytes)
            record = await self._files.add(caller, form.pieces(), form.said)
            await send_json(send, 200, as_file(record), {})
            return
        page = await self._files.page(caller.tenant, _query(parameters(scope["query_string"].decode("latin-1"))))
        await send_json(send, 200, listed([as_file(each) for each in page.files], has_more=page.has_more), {})

    async def _one(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        file_id = scope["path_params"]["file_id"]
        if scope["method"] == "DELETE":
            await self._files.delete(caller.tenant, file_id, actor_of(caller))
            await send_json(send, 200, {"id": file_id, "object": "file", "deleted": True}, {})
            return
        await send_json(send, 200, as_file(await self._files.find(caller.tenant, file_id)), {})

    async def _content(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """Passed on while it is read, all of it or one range. It is nothing that a browser would show or run."""
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
        await begin()
        await send({"type": "http.response.body", "body": b""})

    async def _part(self, tenant: str, file_id: str, asked: str) -> tuple[int, int] | None:
        """First and last byte; None: the whole.

        Raises:
            RangeNotSatisfiable: it has none of these bytes.
        """
        size = (await self._files.find(tenant, file_id)).size
        try:
            return range_of(asked, size)
        except NotSatisfiable as error:
            raise RangeNotSatisfiable(size) from error


def _query(query: Query) -> FileQuery:
    check_named(query, "after", "purpose")
    limit = query.get("limit", str(MAX_PAGE))
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 5 and 1 <= int(limit) <= MAX_PAGE):
        raise invalid("limit", f"must be a whole number from 1 to {MAX_PAGE}")
    for name in ("after", "purpose"):
        if "\x00" in query.get(name, ""):
            raise invalid(name, "must not hold a NUL")
    return FileQuery(int(limit), query.get("after"), newest_first(query, "desc"), query.get("purpose"))


def _quoted(name: str) -> str:
    return quote(name.encode("utf-8", "replace"), safe="")
