"""The outline of a stored conversation: its messages without what they say, as pages and commands show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gateway.core.types.memory import SummarySegment
from gateway.core.types.report_lists import NO_SUMS, KeptSums
from gateway.core.types.turn import LedgerEntry


@dataclass(frozen=True, slots=True)
class OutlinedMessage:
    """A message of any branch. `choice` is the number of an answer, None of what a client sent. `call_id` of a tool's
    result is the message with its call."""

    message_id: str
    parent_id: str | None
    role: str
    status: str
    request_id: str
    choice: int | None
    agent: str | None
    number: int
    created_at: datetime
    call_id: str | None = None
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class OutlinedReplay:
    """A replay of turns, and the last message of what is done of it; None: nothing yet."""

    replay_id: str
    from_turn: int
    to_turn: int
    at_id: str | None


@dataclass(frozen=True, slots=True)
class ConversationOutline:
    """All messages of a conversation, oldest first, and what else is kept of it. `is_whole` is False where it has more
    messages than are read. `head_id` ends the current branch."""

    conversation_id: str
    tenant: str
    head_id: str | None
    created_at: datetime
    updated_at: datetime
    messages: Sequence[OutlinedMessage]
    is_whole: bool = True
    forgotten_at: datetime | None = None
    session: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    team_task: str | None = None
    pinned: frozenset[str] = frozenset()
    segments: tuple[SummarySegment, ...] = ()
    replays: tuple[OutlinedReplay, ...] = ()
    sums: KeptSums = NO_SUMS


@dataclass(frozen=True, slots=True)
class OutlinedPage:
    """What is read of the turns of one page: bills by request, how user messages begin, by message, and what messages
    say, by message, where that is asked for; of those in `cut` the beginning alone."""

    bills: Mapping[str, LedgerEntry]
    texts: Mapping[str, str]
    bodies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cut: frozenset[str] = frozenset()
