"""Files that are uploaded in parts: an upload and its parts are files that no list shows and no other API finds, and
expire after an hour. When it is completed, the file is stored from them and the parts are deleted; the upload stays
for its hour, so that a client that lost the answer gets it again."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

from gateway.core import errors, ids, jsons, names
from gateway.core.frozen_records import record
from gateway.core.types.chat import RequestCaller
from gateway.core.types.files import UPLOAD, UPLOAD_PART, ContentPlace, FileRecord
from gateway.documents.files.file_service import FileService, UploadFields
from gateway.storage import stored_files

UPLOAD_SECONDS = 3600
"""How long an upload waits for its parts, as with OpenAI."""


@record
class PendingUpload:
    """An upload of `size` bytes that is to become a file with these `fields`."""

    record: FileRecord
    size: int
    fields: UploadFields


class PartUploads:
    """Stores files that arrive in parts, on any replica.
    Raises FileNotFound: the tenant has no upload of that id; InvalidRequest: it is completed; FilesQuotaExceeded,
    StorageUnavailable: as `FileService.add`."""

    def __init__(self, files: FileService, rows: stored_files.FileRows) -> None:
        self._files = files
        self._rows = rows

    async def create(self, caller: RequestCaller, size: int, fields: UploadFields) -> PendingUpload:
        """Begins an upload."""
        about = jsons.dumps([size, fields.purpose, fields.expires_after])
        own = UploadFields(fields.name, UPLOAD, fields.media_type, UPLOAD_SECONDS, ids.new_id(UPLOAD))
        return PendingUpload(await self._files.add(caller, _whole(about), lambda: own), size, fields)

    async def add_part(
        self, caller: RequestCaller, upload_id: str, pieces: AsyncIterator[bytes], check: Callable[[], None]
    ) -> FileRecord:
        """Stores a part. `check` is called after all pieces have arrived; if it raises, nothing is left behind."""
        upload = (await self._pending(caller.tenant, upload_id)).record
        ends = upload.expires_at
        left = (ends - self._rows.clock.now()).total_seconds() if ends is not None else UPLOAD_SECONDS
        own = UploadFields("part", upload_id, "application/octet-stream", max(left, 1), ids.new_id(UPLOAD_PART))

        def said() -> UploadFields:
            check()
            return own

        return await self._files.add(caller, pieces, said, freed=upload.size)

    async def complete(
        self, caller: RequestCaller, upload_id: str, part_ids: Sequence[str], md5: str | None
    ) -> tuple[PendingUpload, FileRecord]:
        """Stores the file of the parts, in their order; returns it with its upload. Asked again in the same words, it
        returns them again. `md5`: the MD5 that the file must have, in hex.
        Raises InvalidRequest: it has another MD5, or another size than was announced, a part is not of this upload,
        or it was completed in other words."""
        asked = ids.content_digest(jsons.dumps_text([part_ids, md5 and md5.lower()]))
        upload = await self._find(caller.tenant, upload_id)
        if upload.record.status_details is None:
            try:
                return upload, await self._complete(caller, upload, part_ids, md5, asked)
            except errors.GatewayError:
                upload = await self._find(caller.tenant, upload_id)  # another request was first: it took the parts
                if upload.record.status_details is None:
                    raise
        file_id, _, before = upload.record.status_details.partition(" ")
        if before != asked:
            raise _completed()
        return upload, await self._files.find(caller.tenant, file_id)

    async def _complete(
        self, caller: RequestCaller, upload: PendingUpload, part_ids: Sequence[str], md5: str | None, asked: str
    ) -> FileRecord:
        """`asked`: a digest of part ids and MD5."""
        upload_id = upload.record.id
        places: list[ContentPlace] = []
        sizes = 0
        known = set(await self._rows.ids_of(caller.tenant, upload_id))
        for number, part_id in enumerate(part_ids):
            if part_id not in known:
                raise errors.invalid(f"part_ids[{number}]", "must be a part of this upload")
            record, place = await self._rows.find(caller.tenant, part_id)
            places.append(place)
            sizes += record.size
        if sizes != upload.size:
            text = f"must name parts of {upload.size} bytes together, as the upload was announced; they have {sizes}"
            raise errors.invalid("part_ids", text)
        digest = hashlib.md5(usedforsecurity=False)

        async def joined() -> AsyncGenerator[bytes]:
            for place in places:
                async for piece in self._files.pieces_at(caller.tenant, place):
                    digest.update(piece)
                    yield piece

        def said() -> UploadFields:
            if md5 is not None and md5.lower() != digest.hexdigest():
                raise errors.invalid("md5", f"is not that of the parts, {digest.hexdigest()}")
            return upload.fields

        freed = await self._rows.sum_of(caller.tenant, upload_id) + upload.record.size
        made = await self._files.add(caller, joined(), said, freed=freed)
        if not await self._rows.complete_upload(caller.tenant, upload_id, f"{made.id} {asked}"):
            await self._files.remove(caller.tenant, made.id, None)
            raise _unknown(upload_id)  # it was completed or cancelled at the same time
        await self._drop_parts(caller.tenant, upload_id)
        return made

    async def cancel(self, tenant: str, upload_id: str) -> PendingUpload:
        """Deletes an upload and its parts."""
        upload = await self._pending(tenant, upload_id)
        await self._files.remove(tenant, upload_id, None)
        await self._drop_parts(tenant, upload_id)
        return upload

    async def _find(self, tenant: str, upload_id: str) -> PendingUpload:
        if names.has_nul(upload_id) or not upload_id.startswith(UPLOAD):
            raise _unknown(upload_id)
        try:
            record, place = await self._rows.find(tenant, upload_id)
        except errors.FileNotFound:
            raise _unknown(upload_id) from None
        about = b"".join([piece async for piece in self._files.pieces_at(tenant, place)])
        size, purpose, seconds = jsons.loads(about)
        return PendingUpload(record, size, UploadFields(record.name, purpose, record.media_type, seconds))

    async def _pending(self, tenant: str, upload_id: str) -> PendingUpload:
        upload = await self._find(tenant, upload_id)
        if upload.record.status_details is not None:
            raise _completed()
        return upload

    async def _drop_parts(self, tenant: str, upload_id: str) -> None:
        """Deletes the parts of an upload; those that arrive meanwhile expire."""
        for part_id in await self._rows.ids_of(tenant, upload_id):
            try:
                await self._files.remove(tenant, part_id, None)
            except errors.FileNotFound:
                continue


def _unknown(upload_id: str) -> errors.FileNotFound:
    return errors.FileNotFound(f"No such Upload object: {upload_id[:128]}", param="upload_id")


def _completed() -> errors.InvalidRequest:
    return errors.invalid("upload_id", "names an upload that is completed")


async def _whole(content: bytes) -> AsyncGenerator[bytes]:
    yield content
