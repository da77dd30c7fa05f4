"""A window as a bar: its parts in tokens, how many of them came from the prompt cache, and what left it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.core.frozen_records import record
from gateway.core.types import bill, turn
from gateway.inspection.explained_artifacts import EXCLUDED, FULL, records_of

WINDOW_PARTS = ("system", "tools", "history", "recalled", "artifacts", "current")
"""In the order in which a bar shows them. `recalled` are excerpts of old turns, and passages recalled for a question; a
bill counts them among artifacts, and their share of these is estimated by their characters."""
Json = Mapping[str, Any]
CHARS_PER_TOKEN = 4
"""Where a request does not show how many characters its tokens have."""
MIN_MEASURED = 400
"""Fewest characters from which the characters per token are measured."""


@record
class LeftWindow:
    """What a request left out: messages, and artifacts as its bill lists them. `by`: why messages were left out, where
    that is not the budget (`max_turns`)."""

    messages: int = 0
    reduced: tuple[Json, ...] = ()
    excluded: tuple[Json, ...] = ()
    by: str | None = None
    tokens: int | None = None
    """What all of it would have taken, by the gateway's count; estimated from its characters where `about`."""
    about: bool = False
    standing: int = 0
    """Artifacts under standing decisions that the bill only counts."""

    @property
    def is_any(self) -> bool:
        return bool(self.messages or self.reduced or self.excluded)

    @property
    def chars(self) -> int:
        """Characters of artifacts that were left out."""
        both = (*self.reduced, *self.excluded)
        return sum(max(0, each["original_size_chars"] - each["processed_size_chars"]) for each in both)


@record
class WindowBar:
    """A request's window. `parts` are tokens by name (`WINDOW_PARTS`), their sum is `tokens`; all are 0 where nothing
    was counted (mode `off`). `window` and `budget` are None where they are not known. `cached` are the leading tokens
    that the provider read from its prompt cache, on the scale of `tokens`; `reported_cached` and `written` are as the
    provider reported them."""

    parts: Mapping[str, int]
    tokens: int
    window: int | None
    budget: int | None
    cached: int
    reported_cached: int
    written: int
    estimated: bool
    left: LeftWindow

    @property
    def is_counted(self) -> bool:
        return self.tokens > 0

    @property
    def limit(self) -> int | None:
        """The limit that the request was fitted to: its budget, else the model's window."""
        return self.budget or self.window

    @property
    def full(self) -> int:
        """The length of the whole bar: the limit, else what is used."""
        return max(self.limit or self.tokens, self.tokens, 1)

    @property
    def free(self) -> int:
        """Tokens of the limit that are not used."""
        return self.full - self.tokens if self.limit else 0


def window_bar(entry: turn.LedgerEntry) -> WindowBar:
    used = entry.metadata.get("context_utilization") or {}
    breakdown = used.get("breakdown") or {}
    parts = {name: int(breakdown.get(name) or 0) for name in WINDOW_PARTS}
    records = records_of(used)
    standing = (used.get("artifacts_standing") or {}).get("chars") or 0
    parts["recalled"] = _recalled(parts["artifacts"], records, int(standing))
    parts["artifacts"] -= parts["recalled"]
    tokens = sum(parts.values())
    usage = next((call.usage for call in entry.calls if call.purpose == "primary"), {})
    cached, written = bill.cache_tokens(usage)
    prompt = bill.usage_of(usage).prompt_tokens
    on_scale = round(tokens * min(1.0, cached / prompt)) if prompt else 0
    window, budget = used.get("context_window"), used.get("budget_tokens")
    beside = parts["artifacts"] + parts["recalled"]
    left = _counted(left_window(used), used, records, beside, int(standing))
    is_estimated = bool(used.get("tokens_estimated"))
    return WindowBar(parts, tokens, window, budget, on_scale, cached, written, is_estimated, left)


def _counted(left: LeftWindow, used: Json, records: Sequence[Json], tokens: int, standing: int) -> LeftWindow:
    """Adds what left in tokens: as in the bill, else estimated from its characters at the rate of those that stayed.
    A bill counts only what the model's window would have held, so that more than twice as much is estimated, too.
    `tokens`: of the artifacts that stayed; `standing`: characters of those among them that the bill only counts."""
    counted = (used.get("economics") or {}).get("realised_tokens")
    told = sum(bool(each.get("standing")) for each in records)
    left = replace(left, standing=max(0, int((used.get("artifacts_standing") or {}).get("count") or 0) - told))
    if not left.is_any:
        return left
    stayed = standing + sum(each["processed_size_chars"] for each in records if not each.get("standing"))
    per_token = stayed / tokens if tokens and stayed >= MIN_MEASURED else CHARS_PER_TOKEN
    estimate = round(left.chars / per_token)
    if isinstance(counted, int) and counted > 0 and 2 * counted >= estimate:
        return replace(left, tokens=counted)
    return replace(left, tokens=estimate or None, about=True)


def left_window(used: Json) -> LeftWindow:
    """Returns what left the window of a request. `used`: `context_utilization` of its bill."""
    records = records_of(used)
    reduced = tuple(each for each in records if each.get("strategy") not in (FULL, EXCLUDED) and not _is_of_turns(each))
    excluded = tuple(each for each in records if each.get("strategy") == EXCLUDED)
    return LeftWindow(int(used.get("messages_excluded") or 0), reduced, excluded, used.get("left_by"))


def _recalled(artifacts: int, records: Sequence[Json], standing: int) -> int:
    """Returns the tokens of the artifacts' part that were recalled."""
    fresh = [each for each in records if not each.get("standing")]
    brought = sum(
        each["processed_size_chars"] for each in fresh if each.get("reason") == bill.RECALLED or _is_of_turns(each)
    )
    every = standing + sum(each["processed_size_chars"] for each in fresh)
    return round(artifacts * brought / every) if every else 0


def _is_of_turns(record: Json) -> bool:
    return str(record.get("source", "")).startswith("turns:")
