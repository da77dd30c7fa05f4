"""What a database must look like whenever the gateway has been killed: whole turns, each with its bill."""

import contextlib
import sqlite3
from collections.abc import Sequence
from typing import Any

from gateway.storage.database import schema
from tests.support.postgres import Postgres

UNBILLED = "SELECT id FROM messages WHERE request_id NOT IN (SELECT request_id FROM ledger)"
UNASKED = """SELECT request_id FROM ledger WHERE status = 'complete' AND conversation_id IS NOT NULL
    AND request_id NOT IN (SELECT a.request_id FROM messages a JOIN messages q ON q.id = a.parent_id
        WHERE a.role = 'assistant' AND q.role IN ('user', 'tool'))"""
"""The question may be another request's: a client that lost its answer asks again."""
UNANSWERED = """SELECT request_id FROM ledger WHERE status = 'complete' AND conversation_id IS NOT NULL
    AND request_id NOT IN (SELECT request_id FROM messages WHERE role = 'assistant')"""
UNKEPT = """SELECT request_id FROM ledger WHERE status = 'complete' AND conversation_id IS NOT NULL
    AND request_id NOT IN (SELECT request_id FROM completions)"""
UNPRICED = "SELECT request_id FROM ledger WHERE request_id NOT IN (SELECT request_id FROM ledger_calls)"
STEP_OF = "FROM messages m {} JOIN reasoning_events s ON s.conversation_id = m.conversation_id AND s.message_id = m.id"
BODY = "coalesce(nullif(m.body, ''), s.result)"
WHOLE = f"SELECT m.*, {BODY} AS body {STEP_OF.format('LEFT')}"
"""Messages with their bodies, also those that stand with their tool steps: the last column of a name counts."""
DOUBLED = f"SELECT m.request_id, {BODY} {STEP_OF.format('LEFT')} GROUP BY m.request_id, {BODY} HAVING count(*) > 1"
STEPLESS = f"SELECT m.id {STEP_OF.format('LEFT')} WHERE m.body = '' AND s.result IS NULL"
TWICE = f"SELECT m.id {STEP_OF.format('')} WHERE m.body <> '' AND s.result IS NOT NULL"
LOOSE = """SELECT message_id FROM reasoning_events WHERE message_id NOT IN (SELECT id FROM messages)"""
ORPHANS = """SELECT id FROM messages WHERE parent_id IS NOT NULL AND parent_id NOT IN (SELECT id FROM messages)"""
HEADLESS = """SELECT id FROM conversations WHERE
    (head_id IS NOT NULL AND head_id NOT IN (SELECT id FROM messages))
    OR (head_id IS NULL AND id IN (SELECT conversation_id FROM messages WHERE status <> 'failed'))"""
BEHIND = """SELECT c.id FROM conversations c JOIN messages m ON m.conversation_id = c.id AND m.parent_id = c.head_id
    AND m.status <> 'failed'"""
RULES = {
    "a message without a bill": UNBILLED,
    "an answered bill without its question": UNASKED,
    "an answered bill without its answer": UNANSWERED,
    "an answered bill without its completion": UNKEPT,
    "a bill without its calls": UNPRICED,
    "a message stored twice by one request": DOUBLED,
    "a tool's result that is nowhere": STEPLESS,
    "a tool's result that is stored twice": TWICE,
    "a tool step without its message": LOOSE,
    "a message whose predecessor is gone": ORPHANS,
    "a conversation whose head is gone": HEADLESS,
    "a conversation whose head is not its end": BEHIND,
}


def rows(storage_url: str, sql: str) -> list[dict[str, Any]]:
    """The rows of one question to the database, past the gateway."""
    return _asked(storage_url, [sql])[0]


def all_rows(storage_url: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table."""
    names = [table.name for table in schema.metadata.sorted_tables]
    return dict(zip(names, _asked(storage_url, [f"SELECT * FROM {name}" for name in names]), strict=True))


def _asked(storage_url: str, questions: Sequence[str]) -> list[list[dict[str, Any]]]:
    if not storage_url.startswith("sqlite"):
        return Postgres(storage_url).queries(storage_url, questions)
    with contextlib.closing(sqlite3.connect(storage_url.removeprefix("sqlite:///"), timeout=10)) as connection:
        connection.row_factory = sqlite3.Row
        return [[dict(zip(row.keys(), row, strict=True)) for row in connection.execute(each)] for each in questions]


def broken_rules(storage_url: str) -> dict[str, list[dict[str, Any]]]:
    """The rules that the database breaks, with the rows that do."""
    return {rule: found for rule, sql in RULES.items() if (found := rows(storage_url, sql))}
