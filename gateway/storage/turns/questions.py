"""How conversations and their messages begin, as lists show it and search for it (guarantee §13.1)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.types.content_parts import texts_of
from gateway.storage.database import schema
from gateway.storage.encryption.columns import vault_of
from gateway.storage.keyed_hashes import storable

MESSAGES = schema.messages
LENGTH = 200
"""Characters of a question that are stored."""
NO_QUESTION: dict[str, str | None] = {"question": None, "question_folded": None}
FORGOTTEN: dict[str, str | None] = {"question": "", "question_folded": ""}
"""The columns of a conversation whose question was deleted: nothing replaces it."""
BATCH = 500
"""Messages whose beginnings one statement reads."""
TEXT_CHARS = 400
"""Characters of a stored user message that suffice for one line of its text."""
TEXT_MARK = '"text":"'
"""Precedes a text in the body of a message with several parts."""


def question_columns(bodies: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
    """Builds the columns for a conversation that begins with these messages: the start of the first user message with
    text, on one line, and the same folded for a search that ignores case; None if there is no such message."""
    for body in bodies:
        if body.get("role") == "user" and (text := _begins(body.get("content"))):
            return {"question": text, "question_folded": folded(text)[:LENGTH]}
    return NO_QUESTION


def folded(text: str) -> str:
    """Normalizes a text for searching questions: one line, case folded."""
    return storable(" ".join(text.split())).casefold()


def _begins(content: Any) -> str:
    found = next((text for text in texts_of(content, "text") if text.strip()), "")
    return storable(" ".join(found.lstrip()[: 4 * LENGTH].split())[:LENGTH])


def texts_begin(connection: sa.Connection, message_ids: Sequence[str]) -> dict[str, str]:
    """Returns how the text of each message begins, from the first `TEXT_CHARS` of its stored body; behind an image,
    from as many characters where the first text is."""
    found = _begin(connection, message_ids, 1)
    if vault_of(connection.dialect) is None and (others := [name for name, text in found.items() if not text]):
        position = sa.func.instr if connection.dialect.name == "sqlite" else sa.func.strpos
        found |= _begin(connection, others, position(MESSAGES.c.body, TEXT_MARK))
    return found


def _begin(connection: sa.Connection, message_ids: Sequence[str], first: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for start in range(0, len(message_ids), BATCH):
        begin: Any = sa.func.substr(MESSAGES.c.body, first, TEXT_CHARS)
        if vault_of(connection.dialect) is not None:
            begin = MESSAGES.c.body
        query = sa.select(MESSAGES.c.id, begin).where(MESSAGES.c.id.in_(message_ids[start : start + BATCH]))
        for name, stored in connection.execute(query):
            found[name] = beginning(stored[:TEXT_CHARS]) or beginning(
                stored[max(0, stored.find(TEXT_MARK)) :][:TEXT_CHARS]
            )
    return found


def beginning(stored: str) -> str:
    """Returns how a message's text begins, from the start of its stored body, which may be cut anywhere."""
    for mark in ('"content":"', TEXT_MARK):
        _, is_there, rest = stored.partition(mark)
        if not is_there:
            continue
        for cut in range(len(rest), max(-1, len(rest) - 8), -1):
            text = rest[:cut]
            end = _end_of_string(text)
            try:
                value = jsons.loads(f'"{text[:end]}"')
            except jsons.JSONDecodeError:
                continue  # cut in the middle of an escape
            return str(value)
    return ""


def _end_of_string(text: str) -> int:
    """Returns where a JSON string ends whose opening quote precedes `text`; its length if it does not end."""
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == '"':
            return at
        at += 1
    return len(text)
