"""`gateway files ls`, `show`, `put` and `rm`: what is kept of clients' files, beside running servers (§14.5)."""

import asyncio
import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from gateway.core import errors
from gateway.core.types.files import HeldFile
from gateway.operations.actor import command_actor
from gateway.operations.screen import FAINT, ID_STYLE, CommandCall, Piece, TableColumn, when_text
from gateway.operations.storage_reader import run_changing, run_reading
from gateway.storage import stored_files
from gateway.storage.database.sqlite import DatabaseTransactions

if TYPE_CHECKING:
    from gateway.documents.files.file_service import FileService

UPLOAD_STREAMS = 1
PIECE_BYTES = 2**20
FILE_COLUMNS = (
    TableColumn("file", ID_STYLE),
    TableColumn("tenant", drop=1),
    TableColumn("bytes", drop=2, is_right=True),
    TableColumn("purpose", drop=5),
    TableColumn("created (UTC)", drop=4),
    TableColumn("expires (UTC)", drop=6),
    TableColumn("status", drop=3),
    TableColumn("name", is_flexible=True),
)
FILE_CSV = ("id", "tenant", "filename", "bytes", "purpose", "created_at", "expires_at", "status")
Json = dict[str, Any]


def files(call: CommandCall) -> int:
    """Runs one command; returns 1 if there is no such file, or the storage cannot be used."""
    work = {"ls": _list, "show": _show, "put": _put, "rm": _remove}[call.options.action]
    run = run_changing if work in (_put, _remove) else run_reading
    try:
        return run(call, partial(work, call))
    except (errors.FileNotFound, errors.RequestTooLarge, errors.FilesQuotaExceeded) as error:
        call.err.write(f"{error.message}\n")
    except OSError as error:
        call.err.write(f"{call.options.path}: {error.strerror}\n")
    return 1


async def _list(call: CommandCall, transactions: DatabaseTransactions) -> int:
    tenant, limit, now = call.options.tenant, call.options.limit, call.clock.now()
    found = await transactions.run(lambda connection: stored_files.list_files(connection, tenant, limit + 1, now))
    shown, has_more = found[:limit], len(found) > limit
    more = f"and older ones: raise --limit, now {limit}" if has_more else ""
    records = list(map(_json, shown))
    return call.write_list(
        FILE_CSV, records, FILE_COLUMNS, map(_row, shown), empty="no files", more=more, has_more=has_more
    )


async def _show(call: CommandCall, transactions: DatabaseTransactions) -> int:
    """Raises FileNotFound: there is none."""
    options, now = call.options, call.clock.now()
    found = await transactions.run(
        lambda connection: stored_files.find_held(connection, options.tenant, options.id, now)
    )
    told = {**_json(found), **_more(found)}
    if options.json:
        call.screen.json(told)
        return 0
    dated = {"created_at": when_text(found.file.created_at), "expires_at": _ends(found)}
    for name, value in {**told, **dated}.items():
        text = ", ".join(value) if isinstance(value, list) else "" if value is None else str(value)
        if name != "object" and text:
            call.screen.line((f"{name:<15}", FAINT), text)
    return 0


@asynccontextmanager
async def _service(call: CommandCall, transactions: DatabaseTransactions) -> AsyncIterator["FileService"]:
    # Upstreams and readers of documents are loaded by what changes files; `ls` and `show` do not wait for them.
    from gateway.documents.files.factory import open_files
    from gateway.storage.cache.memory_cache import open_cache
    from gateway.upstream.http_client import ConnectionPool, new_client

    cache = open_cache(call.settings.cache, call.clock)
    try:
        async with new_client(ConnectionPool(UPLOAD_STREAMS)) as client:
            yield open_files(
                call.settings, transactions, stored_files.FileRows(transactions, call.clock, cache), client
            )
    finally:
        await cache.close()


async def _put(call: CommandCall, transactions: DatabaseTransactions) -> int:
    """As `POST /v1/files` does, for a tenant.
    Raises RequestTooLarge, FilesQuotaExceeded: as of `FileService.add`; OSError: the file cannot be read."""
    from gateway.core.types.chat import RequestCaller
    from gateway.documents.files.file_service import UploadFields

    options = call.options
    name = options.name or Path(options.path).name
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    said = UploadFields(name, options.purpose, kind, options.expires)
    with await asyncio.to_thread(Path(options.path).open, "rb") as file:
        async with _service(call, transactions) as kept:
            added = await kept.add(RequestCaller(options.tenant), _pieces(file), lambda: said)
    if options.json:
        call.screen.json(_json(HeldFile(options.tenant, added)))
    else:
        call.screen.line(added.id)
    return 0


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
        yield piece


async def _remove(call: CommandCall, transactions: DatabaseTransactions) -> int:
    """As `DELETE /v1/files/{id}` does. Raises FileNotFound: there is none."""
    options = call.options
    async with _service(call, transactions) as kept:
        found = await transactions.run(
            lambda connection: stored_files.find_held(connection, options.tenant, options.id, None)
        )
        await kept.delete(found.tenant, found.file.id, command_actor())
    if options.json:
        call.screen.json({"id": found.file.id, "object": "file", "deleted": True})
    else:
        call.screen.line(
            f"{found.file.id} of {found.tenant}: deleted, conversations that held it: {len(found.holders)}"
        )
    return 0


def _json(held: HeldFile) -> Json:
    file = held.file
    return {
        "id": file.id,
        "object": "file",
        "tenant": held.tenant,
        "filename": file.name,
        "bytes": file.size,
        "purpose": file.purpose,
        "created_at": int(file.created_at.timestamp()),
        "expires_at": int(file.expires_at.timestamp()) if file.expires_at is not None else None,
        "status": file.status,
    }


def _more(held: HeldFile) -> Json:
    """What is told of one file alone."""
    file = held.file
    return {
        "status_details": file.status_details,
        "progress": file.progress,
        "media_type": file.media_type,
        "key_id": file.key_id,
        "sha256": file.digest.hex(),
        "store": held.store,
        "same_content": list(held.same_content),
        "conversations": list(held.holders),
    }


def _row(held: HeldFile) -> list[Piece]:
    file = held.file
    texts = (held.tenant, str(file.size), file.purpose, when_text(file.created_at), _ends(held), file.status, file.name)
    return [file.id, *texts]


def _ends(held: HeldFile) -> str:
    return when_text(held.file.expires_at) if held.file.expires_at is not None else ""
