"""By how much a model's own count of tokens differs from the gateway's, learned from upstream's reports (ADR 13)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from typing import Any

from gateway.core.types.content_parts import as_parts

MIN_MARGIN, MAX_MARGIN = 0.5, 3.0
MIN_PLAUSIBLE, MAX_PLAUSIBLE = 0.4, 4.0
"""A report beyond these times the count is not of that prompt: of several calls, or of a part of it."""
LARGE, LARGE_SHARE = 4000, 0.25
"""Tokens, or the share of a small window, from which a prompt teaches: what providers add to each dominates smaller."""
RAISED, LOWERED = 0.5, 0.05
"""Of the way to what was reported: quickly up, since an overflow costs a call, slowly down."""
CALL_TOKENS = 13
"""What frames a tool call beside its name and arguments, at most: as much as in OpenAI's open models (harmony)."""
MESSAGE_TOKENS = 4
"""What frames a message, its role included (OpenAI's cookbook)."""
SPARE = 1
"""Tokens of a call's frame that stay counted, whatever was reported."""
MAX_ADDED = 16
"""Tokens that an upstream may put around a message beyond those that are known. More is no frame."""
MAX_TEXT_PER_MESSAGE = 60
"""Tokens of a message up to which its frame is told apart from another tokenizer's count of its text."""
SMALL_CHARS, MESSAGE_CHARS = 4000, 3 * MAX_TEXT_PER_MESSAGE
"""Characters of a small prompt, and of each of its messages on average: about as much text as a frame shows beside."""
MAX_SMALL = 8
"""Small prompts of a model that a process counts for nothing but what they teach."""
CONSISTENT = 8
"""Reports in a row that have to show that calls take fewer tokens than is known."""


@dataclass(frozen=True, slots=True)
class ModelCalibration:
    """What is known of a model.

    Attributes:
        margin: the model's tokens for one token as counted.
        samples: how many reports it was learned from.
        saved_per_call: tokens that a tool call takes less than it is counted with.
        calls_seen: calls of the largest prompt that has shown so.
        streak: the latest reports in a row that show a larger saving, the least of these, and the most calls in one of
            them.
        added_per_message: tokens that each message takes more than it is counted with.
        told_window: that nobody configured, as the upstream told it, by its list or by a refusal.
        told_until: when it is asked for anew.
    """

    margin: float
    samples: int
    updated_at: datetime
    saved_per_call: int = 0
    calls_seen: int = 0
    streak: tuple[int, int, int] = (0, 0, 0)
    added_per_message: int = 0
    told_window: int | None = None
    told_until: datetime | None = None

    def saved(self, calls: int) -> int:
        """Tokens to take off for each of so many calls: together no more than was seen in one prompt, since what looked
        like the frame of calls may have been that of something else."""
        return self.saved_per_call if calls <= self.calls_seen else self.saved_per_call * self.calls_seen // calls


@dataclass(frozen=True, slots=True)
class PromptReport:
    """What became of one prompt.

    `counted`: its tokens by the gateway, exactly and without any margin or saving. `reported`: by upstream, cached
    tokens included. `budget`: those that it was to fit. `window`: the model's. `cached`: whether some came from a cache
    and may be missing in the sum. `refused`: upstream said that it, or a longer form of it, overflows. `messages`,
    `calls`: how many it has. `has_tools`: tools or a schema stand beside them.
    """

    counted: int
    reported: int
    budget: int
    window: int | None = None
    cached: bool = False
    refused: bool = False
    messages: int = 0
    calls: int = 0
    has_tools: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it was too long, by upstream's word or by its figures."""
        return self.refused or self.reported > self.budget

    @property
    def is_of_its_texts(self) -> bool:
        """Whether upstream reports at least the tokens of its texts: no frame takes fewer than none."""
        return self.reported >= self.counted - CALL_TOKENS * self.calls - MESSAGE_TOKENS * (self.messages + 1)

    @property
    def is_large(self) -> bool:
        """Whether the texts of the prompt make up most of it."""
        return self.counted >= min(LARGE, LARGE_SHARE * (self.window or self.budget))


def is_small(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether a prompt is text alone, and so little of it that what frames its messages shows in a count of it."""
    room = min(SMALL_CHARS, MESSAGE_CHARS * len(messages))
    for message in messages:
        texts = [part.get("text") for part in as_parts(message.get("content"))]
        said = [text for text in texts if isinstance(text, str)]
        room -= sum(map(len, said))
        if message.get("tool_calls") or len(said) < len(texts) or room < 0:
            return False
    return bool(messages)


def calibrated(
    known: ModelCalibration, report: PromptReport, now: datetime, *, exact: bool = False
) -> ModelCalibration:
    """What is known after one more report.

    Args:
        known: what was known until now.
        exact: the model's own tokenizer counted: only an overflow shows that it is another, and its texts take what was
            counted. What frames tool calls is learned instead.
    """
    if report.counted <= 0 or report.reported <= 0:
        return known
    added = _added(known, report, exact=exact)
    margin = _margin(known.margin, report, report.reported - added * report.messages, exact=exact)
    margin = min(MAX_MARGIN, max(1.0 if exact else MIN_MARGIN, margin))
    learned = replace(known, margin=margin, added_per_message=added)
    if exact and report.calls:
        learned = _of_calls(learned, report)
    return known if learned == known else replace(learned, samples=known.samples + 1, updated_at=now)


def _of_calls(known: ModelCalibration, report: PromptReport) -> ModelCalibration:
    """What is known of the frame of tool calls. One report takes back what it does not bear out; only several in a row
    make the count smaller, by the least that any of them shows."""
    if report.is_over:
        return replace(known, saved_per_call=0, calls_seen=0, streak=(0, 0, 0))
    shown = min(CALL_TOKENS, (report.counted - report.reported) // report.calls) - SPARE
    if shown < known.saved_per_call:
        return replace(known, saved_per_call=max(0, shown), streak=(0, 0, 0))
    if report.cached or not report.is_of_its_texts:
        return known
    seen = max(known.calls_seen, report.calls) if known.saved_per_call else known.calls_seen
    if shown <= max(0, known.saved_per_call):
        return replace(known, calls_seen=seen, streak=(0, 0, 0))
    number, least, most_calls = known.streak
    streak = (number + 1, min(least, shown) if number else shown, max(most_calls, report.calls))
    if streak[0] < CONSISTENT:
        return replace(known, calls_seen=seen, streak=streak)
    return replace(known, saved_per_call=streak[1], calls_seen=streak[2], streak=(0, 0, 0))


def _added(known: ModelCalibration, report: PromptReport, *, exact: bool) -> int:
    """Tokens of a message's frame beyond those that are counted. Of short texts, and of those that the model's own
    tokenizer has counted, they are what is left: up at once, since an overflow costs a call, and slowly down."""
    before, number = known.added_per_message, report.messages
    is_told = number > 0 and not (report.refused or report.calls or report.has_tools)
    if not is_told or not (exact or report.counted <= MAX_TEXT_PER_MESSAGE * number):
        return before
    left = report.reported - report.counted * (1.0 if exact else max(1.0, known.margin))
    shown = max(0, ceil(left / number))
    if shown > MAX_ADDED or report.reported > MAX_PLAUSIBLE * report.counted:
        return before
    if shown >= before:
        return shown
    return before if report.cached else before - 1


def _margin(margin: float, report: PromptReport, of_texts: int, *, exact: bool) -> float:
    """
    Args:
        of_texts: what was reported, without what is known to be added to messages.
    """
    ratio = of_texts / report.counted
    if report.refused:
        return max(margin, ratio)
    if not MIN_PLAUSIBLE <= ratio <= MAX_PLAUSIBLE or not report.is_large:
        return margin
    if report.is_over:
        return max(margin, ratio)
    if ratio > margin:
        return margin if exact else margin + RAISED * (ratio - margin)
    return margin if report.cached else margin - LOWERED * (margin - ratio)


def merged(mine: ModelCalibration, base: ModelCalibration | None, stored: ModelCalibration | None) -> ModelCalibration:
    """What this process learned since it last looked, and what another did in the meantime: the larger margin and the
    smaller saving, so that nobody forgets an overflow.

    Args:
        base: what was stored when this process last looked.
    """
    if stored is None or stored == base:
        return mine
    lower = min(mine, stored, key=lambda each: (each.saved_per_call, each.calls_seen))
    return replace(
        mine,
        margin=max(mine.margin, stored.margin),
        samples=max(mine.samples, stored.samples),
        saved_per_call=lower.saved_per_call,
        calls_seen=lower.calls_seen,
        added_per_message=max(mine.added_per_message, stored.added_per_message),
    )
