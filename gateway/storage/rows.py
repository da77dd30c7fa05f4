"""Converts between rows and the data models."""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.types import artifacts, bill, turn
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.conversation import ConversationMessage, TokenCounts

MAX_INT = 2**63 - 1
NULL_WHERE_UNKNOWN = ("known_cost", "direct_cost", "net_saving")


def lock_name(connection: sa.Connection, name: str) -> None:
    """Locks a name against other transactions until this one ends. SQLite has one writer anyway."""
    if connection.dialect.name != "sqlite":
        number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(number)))


def pico(value: Decimal | None) -> int | None:
    """Converts USD to whole picodollars; costs have no further decimals (guarantee §6)."""
    if not value:
        return None if value is None else 0
    return max(-MAX_INT, min(MAX_INT, int(value / bill.PICO)))


def whole(value: Any) -> int:
    """Clamps a figure to what the database can store; the metadata alone holds a larger one as reported."""
    if type(value) is int and 0 <= value <= MAX_INT:
        return value
    return max(-MAX_INT, min(MAX_INT, int(value)))


def usd(value: int | None) -> Decimal | None:
    """Converts picodollars to USD."""
    return None if value is None else value * bill.PICO


def utc(value: datetime) -> datetime:
    """Adds UTC to a time without a zone, as SQLite returns it."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def utc_or_none(value: datetime | None) -> datetime | None:
    """Adds UTC to a time without a zone; None stays None."""
    return None if value is None else utc(value)


def alike(row: Any, kind: type, *others: str) -> dict[str, Any]:
    """Returns the fields of the record `kind` that have a column of the same name, all but `others`, with their values
    in a row. Times get their zone."""
    found = {name: getattr(row, name) for name in kind.__slots__ if name not in others}  # type: ignore[attr-defined]
    return {name: utc(value) if isinstance(value, datetime) else value for name, value in found.items()}


def lost_result(role: str) -> dict[str, Any]:
    """Returns the body that stands in the chain for a tool result that `reasoning_events` no longer has: it answers no
    call and is never forwarded."""
    return {"role": role, "name" if role == "function" else "tool_call_id": "", "content": ""}


def body_of(row: Any) -> dict[str, Any]:
    body: dict[str, Any] = lost_result(row.role) if row.body is None else jsons.loads_stored(row.body)
    return body


def message_of(row: Any) -> ConversationMessage:
    body = body_of(row)
    rendered = jsons.loads_stored(row.rendered) if row.rendered else None
    return ConversationMessage(
        role=row.role,
        body=body,
        sequence_number=row.sequence_number,
        message_id=row.id,
        status=row.status,
        digest=row.digest,
        rendered=rendered,
        shown_in_full=tuple(jsons.loads(row.standing)) if row.standing else (),
        created_at=utc(row.created_at),
        origin=row.origin,
        unproven=row.restored is not None and not row.restored,
        tokens=TokenCounts(rendered or body, jsons.loads(row.tokens) if row.tokens else {}),
        agent=row.agent,
        costs=row.costs,
    )


def attachment_of(row: Any) -> Artifact:
    """Returns a stored attachment as an artifact."""
    body = jsons.loads(row.body)
    return Artifact(
        artifact_id=row.artifact_id,
        artifact_type=ArtifactType.DOCUMENT,
        content=body["content"],
        size_chars=row.size,
        source=body["source"],
        timestamp=utc(row.created_at),
        title=body["title"],
        metadata={
            "attachment_type": body["attachment_type"],
            "label": body["label"],
            "said_digest": bytes(row.said_digest) if row.said_digest is not None else None,
            **({"file_id": row.file_id} if row.file_id is not None else {}),
            **({artifacts.LARGE: row.document} if row.document is not None else {}),
        },
    )


def call_of(row: Any) -> bill.CallCost:
    return bill.CallCost(
        **alike(row, bill.CallCost, "usage", "rates", "prompt_cost", "completion_cost"),
        usage=figures_of(row.usage),
        rates=figures_of(row.rates),
        prompt_cost=usd(row.prompt_cost_picousd),
        completion_cost=usd(row.completion_cost_picousd),
    )


def entry_of(row: Any, calls: tuple[bill.CallCost, ...] = ()) -> turn.LedgerEntry:
    return turn.LedgerEntry(
        **alike(row, turn.LedgerEntry, "metadata", "calls", "document", "failure", "figures"),
        metadata=figures_of(row.response_metadata),
        calls=calls,
        failure=failure_of(row.failure),
        figures=_counted(row) if row.rolled_up else None,
    )


def _counted(row: Any) -> turn.LedgerFigures:
    """Returns what a rolled-up bill adds to the sums; an older version leaves newer columns empty."""
    found: dict[str, Any] = {name: usd(getattr(row, f"{name}_picousd")) for name in NULL_WHERE_UNKNOWN}
    found |= {name: usd(getattr(row, f"{name}_picousd") or 0) for name in ("planning_cost", "saved", "bounced_cost")}
    counts = ("cached_tokens", "cache_write_tokens", "planning_unpriced", "bounced_tokens")
    found |= {name: getattr(row, name) or 0 for name in counts}
    return turn.LedgerFigures(**found, held_out=row.held_out)


def failure_of(text: str | None) -> turn.RequestFailure | None:
    """Parses how a request failed; None if it did not, or its failure cannot be read."""
    if not text:
        return None
    found = figures_of(text)
    try:
        tries = tuple(turn.TryFailure(**each) for each in found.pop("tries", ()))
        return turn.RequestFailure(**found, tries=tries)
    except TypeError:  # written by a version with more fields
        return None


def figures_of(text: str) -> dict[str, Any]:
    """Parses a stored object, with its numbers as they are written; {} if the row is damaged, which an audit finds."""
    try:
        value = jsons.loads_decimal(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def up_to(
    place: Sequence[sa.ColumnElement[Any]], end: Sequence[Any] | None, *, is_down: bool
) -> Iterable[sa.ColumnElement[bool]]:
    """Yields conditions for the rows up to and including `end` in the order of two columns; none if `end` is None."""
    if end is not None:
        yield sa.not_(behind(place, end, is_down=is_down))
        yield place[0] >= end[0] if is_down else place[0] <= end[0]  # by which an index ends


def behind(place: Sequence[sa.ColumnElement[Any]], last: Sequence[Any], *, is_down: bool) -> sa.ColumnElement[bool]:
    """Selects the rows that follow `last` in the order of two columns, descending if `is_down`, else ascending."""
    (first, second), (value, name) = place, last
    if is_down:
        return sa.and_(first <= value, sa.or_(first < value, second < name))
    return sa.and_(first >= value, sa.or_(first > value, second > name))
