"""Conversations as they are shown, and how a list of them is asked for."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gateway.errors import ConversationNotFound
from gateway.http.messages import invalid
from gateway.http.paging import check_named, limit_of, metadata_of, newest_first
from gateway.http.wire import CONVERSATION_ID, is_session_name, keeps_metadata_rules
from gateway.models.records import ConversationRecord, RecordQuery

LATEST = 253_402_300_798
"""The last second of the year 9999 but one, as a Unix time: databases know none later."""


def as_conversation(record: ConversationRecord) -> dict[str, Any]:
    """OpenAI's object; `updated_at` and `session` are the gateway's own."""
    return {
        "id": record.conversation_id,
        "object": "conversation",
        "created_at": int(record.created_at.timestamp()),
        "metadata": record.metadata,
        "updated_at": int(record.updated_at.timestamp()),
        "session": record.session,
    }


def record_query(query: Mapping[str, str]) -> RecordQuery:
    """The parameters of a list of conversations.

    Raises:
        InvalidRequest: one of them breaks its rule; names it.
    """
    check_named(query, "after", "session")
    after = query.get("after")
    if after is not None and not CONVERSATION_ID.match(after):
        raise ConversationNotFound("No such conversation.", param="after")
    session = query.get("session")
    if session is not None and not is_session_name(session):
        raise invalid("session", "must be 1 to 256 printable characters")
    return RecordQuery(
        limit=limit_of(query),
        after=after,
        newest_first=newest_first(query, "desc"),
        created_from=_time(query, "created_after", 1),
        created_until=_time(query, "created_before", 0),
        updated_from=_time(query, "updated_after", 1),
        updated_until=_time(query, "updated_before", 0),
        metadata=metadata_of(query),
        session=session,
    )


def _time(query: Mapping[str, str], name: str, later: int) -> datetime | None:
    """A Unix time in whole seconds, as conversations show theirs, and so many seconds later."""
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= LATEST):
        raise invalid(name, "must be a Unix time in whole seconds")
    return datetime.fromtimestamp(int(text) + later, UTC)


def given_metadata(value: Any) -> dict[str, str]:
    """
    Raises:
        InvalidRequest: it breaks OpenAI's rules.
    """
    if value is None:
        return {}
    if not keeps_metadata_rules(value):
        raise invalid("metadata", "must be an object of up to 16 strings of up to 512 characters, keys of up to 64")
    return dict(value)
