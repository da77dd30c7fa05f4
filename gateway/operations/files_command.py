"""`gateway files ls` and `show`: lists and shows clients' stored files while servers run (§14.5)."""

from collections.abc import Awaitable, Callable
from functools import partial

from gateway.core import errors
from gateway.core.jsons import Json
from gateway.core.types.files import HeldFile
from gateway.operations.screen import ID_STYLE, CommandCall, Piece, TableColumn, when_text
from gateway.operations.storage_reader import run_reading
from gateway.storage import stored_files
from gateway.storage.database import DatabaseTransactions

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


def files(call: CommandCall) -> int:
    """Runs `ls` or `show`; returns 1 if there is no such file, or the storage cannot be used."""
    work = {"ls": _list, "show": _show}[call.options.action]
    return reported(call, run_reading, work)


def reported(call: CommandCall, run: Callable[..., int], work: Callable[..., Awaitable[int]]) -> int:
    """Runs work on files; reports a missing file, an exceeded limit or an unreadable path in one line and returns 1."""
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
    records = list(map(file_json, shown))
    return call.write_list(
        FILE_CSV, records, FILE_COLUMNS, map(_row, shown), empty="no files", more=more, has_more=has_more
    )


async def _show(call: CommandCall, transactions: DatabaseTransactions) -> int:
    """Raises FileNotFound: there is none."""
    options, now = call.options, call.clock.now()
    found = await transactions.run(
        lambda connection: stored_files.find_held(connection, options.tenant, options.id, now)
    )
    dated = {"created_at": when_text(found.file.created_at), "expires_at": _ends(found)}
    return call.write_one({**file_json(found), **_more(found)}, dated)


def file_json(held: HeldFile) -> Json:
    """Returns a file as a member of the list that `--json` prints."""
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
    """Returns the fields that only `show` prints."""
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
