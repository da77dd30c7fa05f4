"""`gateway trail`: lists, exports and verifies the audit log of administrators' actions (guarantee §12.12)."""

import argparse

from gateway.core import clock
from gateway.core.types import audit_log
from gateway.operations.actor import tell_trail
from gateway.operations.progress import CommandProgress
from gateway.operations.screen import (
    ID_STYLE,
    STANDARD,
    WHO_STYLE,
    CommandCall,
    Piece,
    TableColumn,
    byte_output,
    when_text,
)
from gateway.operations.storage_reader import run_changing, run_reading
from gateway.storage import audit_events
from gateway.storage.database import DatabaseTransactions

TRAIL_COLUMNS = (
    TableColumn("number", is_right=True),
    TableColumn("when (UTC)", drop=1),
    TableColumn("who", WHO_STYLE),
    TableColumn("action"),
    TableColumn("of", ID_STYLE),
    TableColumn("tenant", drop=3),
    TableColumn("details", drop=2, is_flexible=True),
)
TRAIL_CSV = ("number", "at", "actor", "actor_name", "tenant", "action", "object_id", "ok", "details")
DIGEST_BYTES = 32


def list_trail(call: CommandCall) -> int:
    """Lists the latest events, oldest first; returns 1 if the storage cannot be read.
    Raises ValueError: `--since` or `--until` is no time."""
    query = _query(call, limit=call.options.limit, newest_first=True)

    async def work(transactions: DatabaseTransactions) -> int:
        found, has_more = await transactions.run(lambda connection: audit_events.read_events(connection, query))
        found.reverse()
        records = list(map(audit_events.event_json, found))
        return call.write_list(
            TRAIL_CSV, records, TRAIL_COLUMNS, map(_row, found), empty="no events", has_more=has_more
        )

    return run_reading(call, work)


def export_trail(call: CommandCall) -> int:
    """Exports events as lines of JSON to `--output` or standard output, and records the export; returns 1 on failure.
    Raises ValueError: `--since` or `--until` is no time."""
    after, output = call.options.after, call.options.output
    query = _query(call, after=after)

    async def work(transactions: DatabaseTransactions) -> int:
        await tell_trail(transactions, "trail.exported", **({"after": after} if after is not None else {}))
        quiet = output == STANDARD and call.out.isatty()
        with CommandProgress(call.err, "exporting the trail", "events", quiet=quiet) as told:
            async for page in audit_events.all_events(transactions, query):
                target.write(audit_events.event_lines(page))
                told(len(page))
        return 0

    try:
        with byte_output(call) as target:
            return run_changing(call, work)
    except BrokenPipeError:
        raise
    except OSError as error:
        call.err.write(f"{output}: {error.strerror}\n")
        return 1


def verify_trail(call: CommandCall) -> int:
    """Verifies the digests of all events and names the last; returns 1 if one is wrong or the storage cannot be read.
    Raises ValueError: only one of `--from` and `--digest` is given, or the digest is malformed."""
    begin, out = _anchor(call.options), call.out

    async def work(transactions: DatabaseTransactions) -> int:
        with CommandProgress(call.err, "checking the trail"):
            found = await audit_events.verify(transactions, begin)
        if found.broken is not None:
            out.write(f"event {found.broken}: {found.reason}; {found.events} before it hold\n")
            return 1
        if found.last is None:
            out.write("no events\n")
        else:
            hold = "1 event holds" if found.events == 1 else f"{found.events} events hold"
            out.write(f"{hold}; the last is {found.last.number} {found.last.digest.hex()}\n")
        return 0

    return run_reading(call, work)


def _anchor(options: argparse.Namespace) -> audit_log.ChainAnchor | None:
    if options.number is None and options.digest is None:
        return None
    if options.number is None or options.digest is None:
        raise ValueError("--from and --digest belong together: they name an event of an earlier export or check")
    try:
        digest = bytes.fromhex(options.digest)
    except ValueError:
        digest = b""
    if len(digest) != DIGEST_BYTES:
        raise ValueError(f"--digest: {2 * DIGEST_BYTES} hexadecimal digits are needed")
    return audit_log.ChainAnchor(options.number, digest)


def _query(
    call: CommandCall, *, limit: int = 1, after: int | None = None, newest_first: bool = False
) -> audit_log.TrailQuery:
    options, now = call.options, call.clock.now()
    return audit_log.TrailQuery(
        after=after,
        limit=limit,
        action=options.action,
        actor=options.actor,
        since=clock.parse_when("--since", options.since, now),
        until=clock.parse_when("--until", options.until, now),
        newest_first=newest_first,
    )


def _row(event: audit_log.TrailEvent) -> list[Piece]:
    who = " ".join(each for each in (event.actor, event.actor_name) if each is not None)
    action = event.action if event.ok else f"{event.action} (refused)"
    details = "" if event.details == "{}" else event.details
    when = when_text(event.at, "%Y-%m-%d %H:%M:%S")
    return [str(event.number), when, who, action, event.object_id or "", event.tenant or "", details]
