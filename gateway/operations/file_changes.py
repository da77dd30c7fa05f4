"""`gateway files put` and `rm`, while servers run (§14.5). This module imports upstreams and document readers, so it is
separate: `ls` and `show` start without them."""

import asyncio
import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from gateway.core.types.chat import RequestCaller
from gateway.core.types.files import HeldFile
from gateway.documents.files import FileService, UploadFields, open_files
from gateway.operations.actor import command_actor
from gateway.operations.files_command import file_json, reported
from gateway.operations.screen import CommandCall
from gateway.operations.storage_reader import run_changing
from gateway.storage import keyed_hashes, stored_files
from gateway.storage.cache import open_cache
from gateway.storage.database import DatabaseTransactions
from gateway.upstream import ConnectionPool, new_client

UPLOAD_STREAMS = 1
PIECE_BYTES = 2**20


def change_files(call: CommandCall) -> int:
    """Runs `put` or `rm`; returns 1 if there is no such file, or the storage cannot be used."""
    work = {"put": _put, "rm": _remove}[call.options.action]
    return reported(call, run_changing, work)


@asynccontextmanager
async def _service(call: CommandCall, transactions: DatabaseTransactions) -> AsyncIterator[FileService]:
    cache = open_cache(call.settings.cache, call.clock)
    try:
        async with new_client(ConnectionPool(UPLOAD_STREAMS)) as client:
            yield open_files(
                call.settings, transactions, stored_files.FileRows(transactions, call.clock, cache), client
            )
    finally:
        await cache.close()


async def _put(call: CommandCall, transactions: DatabaseTransactions) -> int:
    """Uploads a file for a tenant, as `POST /v1/files` does.
    Raises RequestTooLarge, FilesQuotaExceeded: see `FileService.add`; OSError: the file cannot be read."""
    options = call.options
    name = keyed_hashes.storable(options.name or Path(options.path).name)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    said = UploadFields(name, options.purpose, kind, options.expires)
    with await asyncio.to_thread(Path(options.path).open, "rb") as file:
        async with _service(call, transactions) as kept:
            added = await kept.add(RequestCaller(options.tenant), _pieces(file), lambda: said)
    if options.json:
        call.screen.json(file_json(HeldFile(options.tenant, added)))
    else:
        call.screen.line(added.id)
    return 0


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
        yield piece


async def _remove(call: CommandCall, transactions: DatabaseTransactions) -> int:
    """Deletes a file, as `DELETE /v1/files/{id}` does. Raises FileNotFound: there is no such file."""
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
