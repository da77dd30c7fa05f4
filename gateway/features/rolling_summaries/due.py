"""When old turns are summarized, and which: pure functions of measured facts (guarantee §11.13)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gateway.config.settings import MemorySettings
from gateway.models.memory import EXTRACTS, OldMessage
from gateway.models.tool_steps import turn_starts

BYTES_PER_TOKEN = 4
"""Stored bytes that take a token in a window, about: messages that nobody has counted for the model that is asked."""
SUMMARY_SHARE = 8
"""Tokens of turns for each token of their summary: ten windows of a chat are told in little more than one."""
MIN_TOKENS, MAX_TOKENS = 80, 700
"""What a segment may take; the most is what the summary of an artifact may."""
UNKNOWN_BUDGET = 16_000
"""Tokens of a model whose window nobody knows, where `max_turns` makes summaries due."""


@dataclass(frozen=True, slots=True)
class SummaryFacts:
    """What is known of an answered request and its conversation. `overhead` are tokens of system messages and tools.
    `turns` and `tokens` are those that no summary covers, the current turn among them; None: not read yet. `is_shown`:
    the window has the latest summary, if there is one, and can have the next."""

    memory: str
    mode: str = "auto"
    stored: bool = True
    has_sections: bool = False
    tokens_used: int | None = None
    budget: int | None = None
    overhead: int = 0
    turns: int | None = None
    tokens: int = 0
    is_shown: bool = True


@dataclass(frozen=True, slots=True)
class Due:
    """Whether a summary is due, and why. `unread`: the storage has to be read to tell."""

    use: bool
    reason: str

    @property
    def may_be(self) -> bool:
        return self.use or self.reason == UNREAD


UNREAD = "unread"


def should_summarize(facts: SummaryFacts, settings: MemorySettings) -> Due:
    """The first row that holds of the table in docs/rolling-summary.md. The window has to be full by what the request
    took, and to be filled again by turns that have no summary: a full window of covered turns calls for none."""
    if facts.memory == EXTRACTS:
        return Due(False, EXTRACTS)
    if facts.mode != "auto":
        return Due(False, "mode")
    if not facts.stored:
        return Due(False, "not_stored")
    if facts.has_sections:
        return Due(False, "agent_sections")
    if not facts.is_shown:
        return Due(False, "not_shown")
    full = settings.threshold * facts.budget if facts.budget else None
    is_full = full is not None and (facts.tokens_used or 0) >= full
    if not is_full and settings.max_turns is None:
        return Due(False, "room")
    if facts.turns is None:
        return Due(False, UNREAD)
    if facts.turns < 2:
        return Due(False, "no_old_turns")
    if settings.max_turns is not None and facts.turns >= settings.threshold * settings.max_turns:
        return Due(True, "max_turns")
    if not is_full or full is None:
        return Due(False, "room")
    return Due(True, "window") if facts.overhead + facts.tokens >= full else Due(False, "covered")


def tokens_of(messages: Sequence[OldMessage]) -> int:
    """About how many tokens they take in a window, tool results and documents reduced."""
    return sum(message.weight for message in messages) // BYTES_PER_TOKEN


def turns_of(messages: Sequence[OldMessage]) -> list[tuple[OldMessage, ...]]:
    """The messages by turns (`turn_starts`); whatever is before the first belongs to it."""
    begins = turn_starts(message.role for message in messages)
    cuts = [0, *begins[1:], len(messages)]
    return [tuple(messages[start:end]) for start, end in pairwise(cuts)]


def oldest_turns(
    turns: Sequence[Sequence[OldMessage]], budget: int | None, settings: MemorySettings
) -> list[OldMessage]:
    """The messages that the next segment covers: of the oldest share of the turns as many as take that share of the
    budget, at least one turn, and never the latest."""
    most = settings.oldest_share * (budget or UNKNOWN_BUDGET)
    found: list[OldMessage] = []
    for turn in turns[: min(len(turns) - 1, max(1, int(settings.oldest_share * len(turns))))]:
        if found and tokens_of([*found, *turn]) > most:
            break
        found += turn
    return found


def summary_tokens(messages: Sequence[OldMessage]) -> int:
    """What the summary of these messages may take."""
    return max(MIN_TOKENS, min(MAX_TOKENS, tokens_of(messages) // SUMMARY_SHARE))
