"""Tool steps as rows: written with the message that brings a step's result, never again (ADR 19)."""

from collections.abc import Sequence
from copy import copy
from datetime import datetime
from typing import Any
from weakref import WeakSet

import sqlalchemy as sa

from gateway.core.types import tool_steps
from gateway.core.types.conversation import ConversationMessage
from gateway.storage.database import schema
from gateway.storage.encryption.columns import RowInsert

INSERT_STEPS = RowInsert(schema.reasoning_events)
SINCE = "0002"
"""The revision from which on results may stand in `reasoning_events`."""
NO_CALL = dict.fromkeys(("call_message_id", "position", "tool", "arguments", "called_at"))
Row = dict[str, Any]
_finished: WeakSet[sa.Engine] = WeakSet()


def results_apart(connection: sa.Connection) -> bool:
    """Returns whether results are written to `reasoning_events`. They stay in their messages as long as older versions,
    which do not know that table, may run on the database. Once true, it stays true."""
    if connection.engine in _finished:
        return True
    table = schema.schema_revisions
    oldest = connection.execute(sa.select(table.c.oldest).where(table.c.revision == SINCE)).scalar()
    if oldest is None or oldest < SINCE:
        return False
    _finished.add(connection.engine)
    return True


class OpenToolCalls:
    """The calls of one message that results may still answer, in the order in which they come."""

    def __init__(
        self, message_id: str | None = None, body: dict[str, Any] | None = None, called_at: datetime | None = None
    ) -> None:
        self._message_id = message_id
        self._called_at = called_at
        self._made = tool_steps.calls_of(body or {})
        self._open = list(self._made)

    def branched(self) -> "OpenToolCalls":
        """Copies the calls, for results of another branch."""
        other = copy(self)
        other._open = list(self._open)
        return other

    def answered_by(self, result: dict[str, Any]) -> Row:
        """Takes the call that a result answers and returns its columns; all NULL where there is none."""
        call = tool_steps.take_call(self._open, result)
        if not call:
            return dict(NO_CALL)
        tool, arguments = tool_steps.asked(call)
        position = next(number for number, made in enumerate(self._made) if made is call)
        return {
            "call_message_id": self._message_id,
            "position": position,
            "tool": text_of_step(tool),
            "arguments": text_of_step(arguments),
            "called_at": self._called_at,
        }


def step_rows(
    open_step: Sequence[ConversationMessage],
    new: Sequence[tuple[ConversationMessage, Row]],
    answer_id: str | None = None,
    *,
    apart: bool,
) -> list[Row]:
    """Builds the rows of the results among new messages.
    `open_step`: the message whose calls the first new ones may answer, and the results that followed it. `new`:
    consecutive messages, each with its row of `messages`. With `apart` the bodies of results move from these rows to
    those of the steps."""
    calls = OpenToolCalls()
    for message in open_step:
        if message.role in tool_steps.RESULT_ROLES:
            calls.answered_by(message.body)
        else:
            calls = OpenToolCalls(message.message_id, message.body, message.created_at)
    found: list[Row] = []
    for message, row in new:
        if message.role not in tool_steps.RESULT_ROLES:
            calls = OpenToolCalls(row["id"], message.body, row["created_at"])
            continue
        found.append(step_row(calls, message.body, row, answer_id, apart=apart))
    return found


def step_row(calls: OpenToolCalls, result: dict[str, Any], row: Row, answer_id: str | None, *, apart: bool) -> Row:
    """Builds the row of one step. `result`: the message that answers one of the calls; `row`: its row of `messages`."""
    step = {
        "conversation_id": row["conversation_id"],
        "message_id": row["id"],
        "tool_call_id": text_of_step(str(result.get("tool_call_id") or result.get("name"))),
        "result": row["body"] if apart else None,
        "answer_id": answer_id,
        "answered_at": row["created_at"],
        **calls.answered_by(result),
    }
    if apart:
        row["body"] = ""
    return step


def text_of_step(value: str) -> str:
    """Escapes NUL and lone surrogates, which not both databases can store. Messages keep the text unchanged."""
    if value.isascii() and "\x00" not in value:
        return value
    return value.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
