"""The store of files: an upload is streamed to its place, and becomes a file when its row is written."""

import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from datetime import timedelta

from gateway.core import errors, ids, names, ports
from gateway.core.config import setting_sections
from gateway.core.config.settings import Settings
from gateway.core.fair_queue import SharedRoom
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.types import audit_log, report_lists
from gateway.core.types.chat import ModelDeployment, RequestCaller, StoredFile
from gateway.core.types.files import (
    PROCESSED,
    READ_PURPOSES,
    SEALED_ENDING,
    UPLOADED,
    ContentPlace,
    FileQuery,
    FileRecord,
    KeptBytes,
)
from gateway.documents import file_reader
from gateway.documents.files.sealed import SEALED_PIECE, object_name, opened, sealed, start_of
from gateway.documents.process import BytesAtOnce
from gateway.storage import stored_files
from gateway.storage.database import CommitUnknown
from gateway.storage.encryption import KeyVault
from gateway.upstream.routing import ConfiguredRouter

ORPHAN_SECONDS, SLOWEST = 6 * 3600, 5_000
"""A content without a file was left behind if it is older than so many seconds plus the time of the largest upload at
so many bytes a second, half of the slowest allowed: a content that is still arriving must not be deleted."""
TIME_DIGITS = 12
KNOWN_BY_BYTES = 2**16
"""First bytes of a file that decide whether it may be a document."""
PIECES_AT_ONCE = 4
"""Pieces of files that are stored or read at once; tenants take turns (§12.16)."""
BELIEVED_SECONDS = 600.0
"""How long an upstream counts as having no files before one is sent there again."""
FETCHED_BYTES = 2**30
"""Bytes of files that are fetched whole at once. A larger file is fetched alone."""


log = logs.get_logger("gateway.documents.files")


@record
class UploadFields:
    """The fields of an upload beside the content."""

    name: str
    purpose: str
    media_type: str
    expires_after: float | None = None
    file_id: str | None = None
    """None: a new one."""


Added = Callable[[str, str], None]


def added_unread(tenant: str, file_id: str) -> None:
    """Leaves an uploaded file unread: no reader is running."""


class FileService:
    """The store of files. `current` is the name of the store that new contents go to."""

    def __init__(
        self,
        rows: stored_files.FileRows,
        stores: Mapping[str, ports.ContentStore],
        current: str,
        settings: setting_sections.FileSettings,
        vault: KeyVault | None,
        added: Added = added_unread,
    ) -> None:
        """`added` is called with tenant and id of each file that is to be read."""
        self._rows = rows
        self._stores = stores
        self._current = current
        self._settings = settings
        self._clock = rows.clock
        self._vault = vault
        self._fetched = BytesAtOnce()
        self._added = added
        self._turns = SharedRoom(PIECES_AT_ONCE)

    async def add(
        self, caller: RequestCaller, pieces: AsyncIterator[bytes], said: Callable[[], UploadFields], *, freed: int = 0
    ) -> FileRecord:
        """Stores a file. `said` is called after all pieces have arrived; if it raises, nothing is left behind.
        `freed`: bytes that count in quotas now, and are deleted afterwards.
        Raises RequestTooLarge: beyond `files.max_bytes`; FilesQuotaExceeded: beyond what the tenant, or the key, may
        store; StorageUnavailable: it cannot be stored."""
        most = self._room(caller, await self._rows.kept(caller.tenant, _key_id(caller)), freed)
        place = ContentPlace(self._current, object_name(caller.tenant, self._vault))
        store, passed = self._stores[place.store], _CountedStream(self._settings.max_bytes, most)
        async with aclosing(self._kept_in_turns(caller.tenant, pieces)) as kept_pieces:
            content = passed.through(kept_pieces)
            if self._vault is not None and place.sealed_under is not None:
                content = sealed(content, place.object, self._vault)
            await store.put(place.object, content)
        try:
            record = self._record(caller, said(), passed)
            found = await self._rows.add(
                caller.tenant, record, place, lambda kept: _check(self._room(caller, kept, freed), record.size)
            )
        except CommitUnknown:
            raise  # the content may belong to a file, now or soon: if not, the upkeep deletes it
        except errors.GatewayError:
            await self._discard(place)
            raise
        if found != place:
            await self._discard(place)
        if record.status == UPLOADED:
            self._added(caller.tenant, record.id)
        return record

    async def find(self, tenant: str, file_id: str) -> FileRecord:
        """Returns a file's record. Raises FileNotFound: the tenant has none of that id."""
        return (await self._rows.find(tenant, _checked(file_id)))[0]

    async def has(self, tenant: str, file_id: str) -> bool:
        """Returns whether the tenant has a file of that id; false also where the storage cannot be asked."""
        try:
            await self.find(tenant, file_id)
        except (errors.NotFound, errors.StorageUnavailable):
            return False
        return True

    async def content(self, tenant: str, file_id: str, start: int = 0) -> tuple[FileRecord, AsyncIterator[bytes]]:
        """Returns a file's record and its content from byte `start` on, in pieces. Earlier bytes are not read.
        Raises FileNotFound: the tenant has none of that id; StorageUnavailable: the store of the content is not
        configured; or, while it is read, cannot be reached."""
        record, place = await self._rows.find(tenant, _checked(file_id))
        return record, self.pieces_at(tenant, place, start)

    def pieces_at(self, tenant: str, place: ContentPlace, start: int = 0) -> AsyncIterator[bytes]:
        """Returns a content from byte `start` on, in pieces. Raises StorageUnavailable: as `content`."""
        store = self._stores.get(place.store)
        if store is None:
            raise errors.StorageUnavailable(
                f"The content of the file is in a store that is not configured: {place.store}."
            )
        if not place.object.endswith(SEALED_ENDING):
            return self._read_in_turns(tenant, store.open(place.object, start))
        number, skipped = divmod(start, SEALED_PIECE)
        pieces = opened(store.open(place.object, start_of(number)), place.object, self._vault, number)
        return _behind(self._read_in_turns(tenant, pieces), skipped)

    async def whole(self, tenant: str, file_id: str) -> tuple[FileRecord, bytes]:
        """Returns a file's record and its whole content. If it is sealed with another key meanwhile, it is read again.
        Raises FileNotFound: the tenant has none of that id; StorageUnavailable: the content cannot be read; Overloaded:
        too many bytes of files are fetched."""
        for is_last in (False, True):
            record, pieces = await self.content(tenant, file_id)
            try:
                with self._fetched.of(tenant, record.size, FETCHED_BYTES):
                    content = b"".join([piece async for piece in pieces])
            except errors.StorageUnavailable:
                if is_last:
                    raise
                continue
            if len(content) == record.size:
                return record, content
        raise errors.StorageUnavailable("The content of the file cannot be read.")

    async def _kept_in_turns(self, tenant: str, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """Yields each piece to be stored in this tenant's turn; waits for the client's pieces outside of it."""
        async for piece in pieces:
            async with self._turns.turn(tenant):
                yield piece

    async def _read_in_turns(self, tenant: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Reads each piece in this tenant's turn; its client takes the piece outside of it."""
        while True:
            async with self._turns.turn(tenant):
                piece = await anext(pieces, None)
            if piece is None:
                return
            yield piece

    async def page(self, tenant: str, query: FileQuery) -> report_lists.QueryPage[FileRecord]:
        """Returns a page of a tenant's files. Raises FileNotFound: `query.after` is none of them."""
        return await self._rows.page(tenant, query)

    async def delete(self, tenant: str, file_id: str, by: audit_log.AuditActor | None) -> None:
        """Deletes a file for good, with what was read of it and what conversations hold of it.
        Raises FileNotFound: the tenant has none of that id."""
        await self.remove(tenant, _checked(file_id), by)

    async def remove(self, tenant: str, file_id: str, by: audit_log.AuditActor | None) -> None:
        """Deletes as `delete` does, also what is expired, or is no file yet."""
        place = await self._rows.delete(tenant, file_id, by)
        if place is not None:
            await self._discard(place)

    async def upkeep(self) -> int:
        """Deletes expired files, and contents that were left behind. Returns how many files.
        Raises StorageUnavailable: something cannot be reached; what was deleted by then stays deleted."""
        deleted = 0
        while found := await self._rows.expired():
            for tenant, file_id in found:
                try:
                    await self.remove(tenant, file_id, None)
                    deleted += 1
                except errors.FileNotFound:
                    continue  # another process was first
        left = time.time() - ORPHAN_SECONDS - self._settings.max_bytes / SLOWEST
        latest = f"obj_{int(1000 * max(0, left)):0{TIME_DIGITS}x}"
        for name, store in self._stores.items():
            async for batch in store.names():
                old = [each for each in batch if each.rpartition("/")[2] < latest]
                gone = await self._rows.nobodys(old) if old else []
                if gone:
                    await store.delete(*gone)
                    log.info("file_contents_cleared", store=name, contents=len(gone))
        return deleted

    async def _discard(self, place: ContentPlace) -> None:
        """Deletes a content, or leaves it to the upkeep where that fails now."""
        try:
            await self._stores[place.store].delete(place.object)
        except (errors.StorageUnavailable, KeyError):
            log.warning("file_content_left", store=place.store)

    def _room(self, caller: RequestCaller, kept: KeptBytes, freed: int) -> int | None:
        """Returns the bytes that may be added; None: no limit."""
        most, of_key = self._settings.quota_bytes, caller.key.file_bytes if caller.key is not None else None
        rooms = [most - kept.tenant] if most is not None else []
        rooms += [of_key - kept.key] if of_key is not None else []
        return min(rooms) + freed if rooms else None

    def _record(self, caller: RequestCaller, said: UploadFields, passed: "_CountedStream") -> FileRecord:
        now = self._clock.now()
        seconds = said.expires_after if said.expires_after is not None else self._settings.expires_after
        is_read = said.purpose in READ_PURPOSES and file_reader.may_be_document(said.name, said.media_type, passed.head)
        return FileRecord(
            status=UPLOADED if is_read else PROCESSED,
            id=said.file_id or ids.new_id(ids.FILE),
            name=said.name,
            purpose=said.purpose,
            media_type=said.media_type,
            size=passed.size,
            digest=passed.hash.digest(),
            created_at=now,
            expires_at=now + timedelta(seconds=seconds) if seconds is not None else None,
            key_id=_key_id(caller),
        )


class FilesHere:
    """For whom files are stored here. With `files.serve: auto` for clients with a gateway key, and for all whose
    default upstream stores none or does not exist; not where `server.relay` names files. Files of an operator's account
    at the upstream are nobody's to read, so they stay out of reach (guarantee §1)."""

    def __init__(self, settings: Settings, router: ConfiguredRouter, clock: ports.Clock) -> None:
        self._mode = "off" if settings.files.serve == "auto" and are_relayed(settings) else settings.files.serve
        self._router = router
        self._clock = clock
        self._without: dict[str, float] = {}
        """Addresses of upstreams that have no files, and until when this counts."""

    def __call__(self, caller: RequestCaller) -> bool:
        """Returns whether a new file of this caller's would be stored here."""
        if self._mode != "auto":
            return self._mode == "on"
        upstream = self._upstream(caller)
        return upstream is None or self._clock.monotonic() < self._without.get(upstream.api_base, 0.0)

    def may(self, caller: RequestCaller) -> bool:
        """Returns whether some of this caller's files may be here although new ones would not be."""
        upstream = self._upstream(caller) if self._mode == "auto" else None
        return upstream is not None and not upstream.operator_key

    def keeps_none(self, caller: RequestCaller) -> None:
        """Notes that this caller's upstream has no files."""
        upstream = self._upstream(caller)
        if upstream is not None:
            self._without[upstream.api_base] = self._clock.monotonic() + BELIEVED_SECONDS

    def _upstream(self, caller: RequestCaller) -> ModelDeployment | None:
        """Returns the default upstream, where the caller's files might be stored. It does not know a client that has a
        key for Anthropic alone."""
        if caller.key is not None:
            return None
        try:
            found = self._router.default("", caller)
        except errors.ModelNotFound:
            return None
        return found if found.api_key or caller.anthropic_key is None else None


def are_relayed(settings: Settings) -> bool:
    """Returns whether `server.relay` names files."""
    paths = (each.rpartition(" ")[2].strip("/").removeprefix("v1/") for each in settings.server.relay)
    return any(each.partition("/")[0] == "files" for each in paths)


class CallersFiles:
    """A caller's files: stored here, else those of the default upstream (a `core.ports.FileStore`)."""

    def __init__(self, files: FileService, upstream: ports.FileStore, serves: FilesHere) -> None:
        self._files = files
        self._upstream = upstream
        self._serves = serves

    def keeps(self, caller: RequestCaller) -> bool:
        """Returns whether this caller's files are stored here."""
        return self._serves(caller)

    async def is_here(self, file_id: str, caller: RequestCaller) -> bool:
        """Returns whether that file of this caller's is stored here, or would be if it existed."""
        return self._serves(caller) or (self._serves.may(caller) and await self._files.has(caller.tenant, file_id))

    async def name(self, file_id: str, caller: RequestCaller) -> str:
        if not await self.is_here(file_id, caller):
            return await self._upstream.name(file_id, caller)
        return (await self._files.find(caller.tenant, file_id)).name

    async def fetch(self, file_id: str, caller: RequestCaller) -> StoredFile:
        if not await self.is_here(file_id, caller):
            return await self._upstream.fetch(file_id, caller)
        record, content = await self._files.whole(caller.tenant, file_id)
        return StoredFile(record.name, record.media_type, content, own=True, digest=record.digest.hex())


async def _behind(pieces: AsyncIterator[bytes], skipped: int) -> AsyncIterator[bytes]:
    """Yields the pieces without the first bytes."""
    async for piece in pieces:
        yield piece[skipped:]
        skipped = max(0, skipped - len(piece))


class _CountedStream:
    """Counts and digests the bytes of a stream."""

    def __init__(self, max_bytes: int, room: int | None) -> None:
        self.size = 0
        self.head = b""
        self.hash = hashlib.sha256()
        self._max_bytes = max_bytes
        self._room = room

    async def through(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            self.size += len(piece)
            if self.size > self._max_bytes:
                raise errors.RequestTooLarge(
                    f"The file exceeds {self._max_bytes} bytes (files.max_bytes).", param="file"
                )
            _check(self._room, self.size)
            self.hash.update(piece)
            if len(self.head) < KNOWN_BY_BYTES:
                self.head += piece[: KNOWN_BY_BYTES - len(self.head)]
            yield piece


def _check(room: int | None, size: int) -> None:
    if room is not None and size > room:
        text = f"The quota has room for {max(room, 0)} bytes more: delete files, or wait until some expire."
        raise errors.FilesQuotaExceeded(text, param="file")


def _checked(file_id: str) -> str:
    if names.has_nul(file_id) or stored_files.is_unfinished(file_id):
        raise errors.FileNotFound("No such File object.", param="file_id")
    return file_id


def _key_id(caller: RequestCaller) -> str | None:
    return caller.key_id if caller.key is not None else None
