"""`/v1/uploads`: files that are uploaded in parts, where files are stored here; else relayed (guarantee §14.5)."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.api.files.endpoint import (
    MAX_NAME,
    MAX_SECONDS,
    MAX_TYPE,
    MIN_SECONDS,
    Answer,
    FileEndpoint,
    FileObject,
    UploadForm,
    as_file,
)
from gateway.api.server.asgi import Receive, Scope, Send, json_body, read_body, send_json
from gateway.api.shapes import Binary, Json, Unix, one_of, shape
from gateway.core import errors, names
from gateway.core.types.chat import RequestCaller
from gateway.core.types.files import FILE_PURPOSES, FileRecord
from gateway.documents.files import PartUploads, PendingUpload, UploadFields

MAX_PART_BYTES = 64 * 2**20
"""The most bytes of a part, as with OpenAI."""
MAX_UPLOAD_BODY = 2**20
MAX_PART_IDS = 10_000

UploadRequest = shape(
    "UploadRequest",
    "A file that is to arrive in parts.",
    {
        "filename mime_type": str,
        "purpose": Annotated[str, one_of(FILE_PURPOSES)],
        "bytes": Annotated[int, Field(ge=1)],
        "expires_after?": Json | None,
    },
)
UploadParts = shape("UploadParts", "The parts in their order.", {"part_ids": list[str], "md5?": str | None})
UploadPart = shape("UploadPart", "A form with one part.", {"data": Binary})
Upload = shape(
    "Upload",
    "OpenAI's upload object.",
    {
        "id filename": str,
        "object": Literal["upload"],
        "bytes": int,
        "created_at": Unix,
        "expires_at": Unix | None,
        "purpose": Annotated[str, one_of(FILE_PURPOSES)],
        "status": Literal["pending", "completed", "cancelled"],
        "file": FileObject | None,
    },
)
PartObject = shape(
    "PartObject",
    "OpenAI's object of a part.",
    {"id upload_id": str, "object": Literal["upload.part"], "created_at": Unix},
)


class UploadEndpoints:
    """The endpoints `all`, `parts`, `complete` and `cancel`."""

    def __init__(self, uploads: PartUploads, endpoint: Callable[[Answer], FileEndpoint], max_bytes: int) -> None:
        self._uploads = uploads
        self._max_bytes = max_bytes
        self.all = endpoint(self._create)
        self.parts = endpoint(self._add)
        self.complete = endpoint(self._complete)
        self.cancel = endpoint(self._cancel)

    async def _create(self, caller: RequestCaller, scope: Scope, receive: Receive, send: Send) -> None:
        body = json_body(await read_body(scope, receive, MAX_UPLOAD_BODY))
        size = body.get("bytes")
        if type(size) is not int or size < 1:
            raise errors.invalid("bytes", "must be a whole number from 1")
        if size > self._max_bytes:
            raise errors.RequestTooLarge(f"The file exceeds {self._max_bytes} bytes (files.max_bytes).", param="bytes")
        purpose = _text(body, "purpose", MAX_NAME)
        if purpose not in FILE_PURPOSES:
            raise errors.invalid("purpose", f"must be one of {', '.join(FILE_PURPOSES)}")
        name, kind = _text(body, "filename", MAX_NAME), _text(body, "mime_type", MAX_TYPE)
        fields = UploadFields(name, purpose, kind, _expires_after(body.get("expires_after")))
        await send_json(send, 200, _as_upload(await self._uploads.create(caller, size, fields), "pending"))

    async def _add(self, caller: RequestCaller, scope: Scope, receive: Receive, send: Send) -> None:
        upload_id = scope["path_params"]["upload_id"]
        form = UploadForm(scope, receive, MAX_PART_BYTES, file="data")
        record = await self._uploads.add_part(caller, upload_id, form.pieces(), form.check)
        created = int(record.created_at.timestamp())
        part = {"id": record.id, "object": "upload.part", "created_at": created, "upload_id": upload_id}
        await send_json(send, 200, part)

    async def _complete(self, caller: RequestCaller, scope: Scope, receive: Receive, send: Send) -> None:
        body = json_body(await read_body(scope, receive, MAX_UPLOAD_BODY))
        part_ids, md5 = _part_ids(body), body.get("md5")
        if md5 is not None and not isinstance(md5, str):
            raise errors.invalid("md5", "must be a string")
        upload, made = await self._uploads.complete(caller, scope["path_params"]["upload_id"], part_ids, md5)
        await send_json(send, 200, _as_upload(upload, "completed", made))

    async def _cancel(self, caller: RequestCaller, scope: Scope, receive: Receive, send: Send) -> None:
        upload = await self._uploads.cancel(caller.tenant, scope["path_params"]["upload_id"])
        await send_json(send, 200, _as_upload(upload, "cancelled"))


def _as_upload(upload: PendingUpload, status: str, made: FileRecord | None = None) -> dict[str, Any]:
    record = upload.record
    return {
        "id": record.id,
        "object": "upload",
        "bytes": upload.size,
        "created_at": int(record.created_at.timestamp()),
        "expires_at": int(record.expires_at.timestamp()) if record.expires_at is not None else None,
        "filename": upload.fields.name,
        "purpose": upload.fields.purpose,
        "status": status,
        "file": as_file(made) if made is not None else None,
    }


def _text(body: dict[str, Any], name: str, most: int) -> str:
    value = body.get(name)
    if value is None:
        raise errors.missing(name)
    if not isinstance(value, str) or not 1 <= len(value) <= most or names.has_nul(value):
        raise errors.invalid(name, f"must be a string of 1 to {most} characters")
    return value


def _part_ids(body: dict[str, Any]) -> list[str]:
    listed = body.get("part_ids")
    if isinstance(listed, list) and 1 <= len(listed) <= MAX_PART_IDS and all(isinstance(each, str) for each in listed):
        return listed
    raise errors.invalid("part_ids", f"must be a list of 1 to {MAX_PART_IDS} ids")


def _expires_after(asked: Any) -> int | None:
    if asked is None:
        return None
    if not isinstance(asked, dict) or asked.get("anchor") != "created_at":
        raise errors.invalid("expires_after.anchor", "must be created_at")
    seconds = asked.get("seconds")
    if type(seconds) is not int or not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise errors.invalid("expires_after.seconds", f"must be a whole number from {MIN_SECONDS} to {MAX_SECONDS}")
    return seconds
