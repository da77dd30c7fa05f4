"""`gateway files ls`, `show`, `put` and `rm`, beside running servers."""

import argparse
import asyncio
import mimetypes
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from gateway.core.config.settings import Settings
from gateway.core.errors import FileNotFound, FilesQuotaExceeded, RequestTooLarge, StorageUnavailable
from gateway.core.ports import Clock
from gateway.core.types.chat import RequestCaller
from gateway.core.types.files import HeldFile
from gateway.documents.files.factory import open_files
from gateway.documents.files.file_service import FileService, UploadFields
from gateway.operations.actor import command_actor
from gateway.operations.listed import FAINT, ID_STYLE, when_text
from gateway.operations.screen import CommandScreen, Piece, TableColumn
from gateway.operations.storage_reader import run_reading, why_not
from gateway.storage.cache.memory_cache import open_cache
from gateway.storage.database.migrate import open_current
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.stored_files import FileRows, find_held, list_files
from gateway.upstream.http_client import ConnectionPool, new_client

STREAMS = 1
PIECE_BYTES = 2**20
COLUMNS = (
    TableColumn("file", ID_STYLE),
    TableColumn("tenant", drop=1),
    TableColumn("bytes", drop=2, is_right=True),
    TableColumn("purpose", drop=5),
    TableColumn("created (UTC)", drop=4),
    TableColumn("expires (UTC)", drop=6),
    TableColumn("status", drop=3),
    TableColumn("name", is_flexible=True),
)
CSV = ("id", "tenant", "filename", "bytes", "purpose", "created_at", "expires_at", "status")
Json = dict[str, Any]


def files(
    settings: Settings, options: argparse.Namespace, clock: Clock, environ: Mapping[str, str], out: TextIO, err: TextIO
) -> int:
    """Runs one command; returns 1 if there is no such file, or the storage cannot be used."""
    screen = CommandScreen(out, environ)
    try:
        if options.action in CHANGES:
            asyncio.run(CHANGES[options.action](settings, options, clock, screen))
            return 0
        looks = _list if options.action == "ls" else _show
        return run_reading(settings, lambda transactions: looks(transactions, options, clock.now(), screen, err), err)
    except StorageUnavailable as error:
        err.write(f"{why_not(settings, error)}\n")
    except (FileNotFound, RequestTooLarge, FilesQuotaExceeded) as error:
        err.write(f"{error.message}\n")
    except OSError as error:
        err.write(f"{options.path}: {error.strerror}\n")
    return 1


async def _list(
    transactions: DatabaseTransactions, options: argparse.Namespace, now: datetime, screen: CommandScreen, err: TextIO
) -> int:
    found = await transactions.run(lambda connection: list_files(connection, options.tenant, options.limit + 1, now))
    shown, has_more = found[: options.limit], len(found) > options.limit
    told = [_json(each) for each in shown]
    if options.csv:
        screen.csv(CSV, told)
        return 0
    if options.json:
        screen.json({"object": "list", "data": told, "has_more": has_more})
        return 0
    if not shown:
        err.write("no files\n")
        return 0
    screen.table(COLUMNS, [_row(each) for each in shown])
    if has_more and screen.is_terminal:
        screen.line((f"and older ones: raise --limit, now {options.limit}", FAINT))
    return 0


async def _show(
    transactions: DatabaseTransactions, options: argparse.Namespace, now: datetime, screen: CommandScreen, _err: TextIO
) -> int:
    """Raises FileNotFound: there is none."""
    found = await transactions.run(lambda connection: find_held(connection, options.tenant, options.id, now))
    told = {**_json(found), **_more(found)}
    if options.json:
        screen.json(told)
        return 0
    dated = {"created_at": when_text(found.file.created_at), "expires_at": _ends(found)}
    for name, value in {**told, **dated}.items():
        text = ", ".join(value) if isinstance(value, list) else "" if value is None else str(value)
        if name != "object" and text:
            screen.line((f"{name:<15}", FAINT), text)
    return 0


@asynccontextmanager
async def _service(settings: Settings, clock: Clock) -> AsyncIterator[tuple[FileService, DatabaseTransactions]]:
    """Raises StorageUnavailable: the storage cannot be reached."""
    cache = open_cache(settings.cache, clock)
    transactions = await open_current(settings.storage)
    try:
        async with new_client(ConnectionPool(STREAMS)) as client:
            yield open_files(settings, transactions, FileRows(transactions, clock, cache), client), transactions
    finally:
        await transactions.close()
        await cache.close()


async def _put(settings: Settings, options: argparse.Namespace, clock: Clock, screen: CommandScreen) -> None:
    """As `POST /v1/files` does, for a tenant.
    Raises RequestTooLarge, FilesQuotaExceeded: as of `FileService.add`; OSError: the file cannot be read;
    StorageUnavailable: the storage cannot be reached."""
    name = options.name or Path(options.path).name
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    said = UploadFields(name, options.purpose, kind, options.expires)
    with await asyncio.to_thread(Path(options.path).open, "rb") as file:
        async with _service(settings, clock) as (kept, _):
            added = await kept.add(RequestCaller(options.tenant), _pieces(file), lambda: said)
    if options.json:
        screen.json(_json(HeldFile(options.tenant, added)))
    else:
        screen.line(added.id)


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
        yield piece


async def _remove(settings: Settings, options: argparse.Namespace, clock: Clock, screen: CommandScreen) -> None:
    """As `DELETE /v1/files/{id}` does.
    Raises FileNotFound: there is none; StorageUnavailable: the storage cannot be reached."""
    async with _service(settings, clock) as (kept, transactions):
        found = await transactions.run(lambda connection: find_held(connection, options.tenant, options.id, None))
        await kept.delete(found.tenant, found.file.id, command_actor())
    if options.json:
        screen.json({"id": found.file.id, "object": "file", "deleted": True})
    else:
        screen.line(f"{found.file.id} of {found.tenant}: deleted, conversations that held it: {len(found.holders)}")


CHANGES = {"put": _put, "rm": _remove}


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
