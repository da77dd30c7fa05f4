"""Learns margins of models (ADR 13) from upstream's reports of a prompt's tokens: in memory for requests, in storage
for other processes and for the next start."""

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from math import ceil
from typing import Any

from gateway.core import errors, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.types import upstreams
from gateway.core.types.chat import ModelFacts
from gateway.core.types.content_parts import as_parts

KEEP_SECONDS = 20.0
"""Interval between writes of what was learned."""
READ_EVERY = 15
"""Writes between reads of what other processes have learned: five minutes."""
WORTH_WRITING = 0.005
"""A margin that changed by less is not written."""
MAX_REMEMBERED_MODELS = 1000
"""Limit of models, since names may come from clients."""
WINDOW = "window"
"""Takes the place of the counting in the key of a reported window, which no counter made."""
MODEL_NAME_CHARS = 180
"""Characters of a model's name in its key, which has to fit a column."""
MIN_PLAUSIBLE, MAX_PLAUSIBLE = 0.4, 4.0
"""A report outside these multiples of the count is not of that prompt alone: of several calls, or of a part of it."""
LARGE, LARGE_SHARE = 4000, 0.25
"""Tokens, or the share of a small window, from which a prompt teaches: provider additions dominate smaller ones."""
RAISED, LOWERED = 0.5, 0.05
"""Step towards the reported value: fast upwards, since an overflow costs a call, slow downwards."""
SPARE = 1
"""Tokens of a call's frame that stay counted, whatever was reported."""
MAX_ADDED = 16
"""Tokens that an upstream may put around a message beyond the known ones. More cannot be a frame."""
MAX_TEXT_PER_MESSAGE = 60
"""Tokens of a message up to which its frame is distinguished from another tokenizer's count of its text."""
SMALL_CHARS, MESSAGE_CHARS = 4000, 3 * MAX_TEXT_PER_MESSAGE
"""Characters of a small prompt, and of each of its messages on average: so little that the frame shows in its count."""
MAX_SMALL = 8
"""Small prompts of a model that a process counts only to learn from them."""
CONSISTENT = 8
"""Consecutive reports needed to show that calls take fewer tokens than known."""
log = logs.get_logger("gateway.context.tokens.model_margins")


@record
class PromptReport:
    """Counted and reported tokens of one prompt.

    `counted`: its tokens by the gateway, exactly and without any margin or saving. `reported`: by upstream, cached
    tokens included. `budget`: the budget that it had to fit. `window`: the model's. `cached`: whether some tokens came
    from a cache and may be missing in the sum. `refused`: upstream reported that it, or a longer form of it, overflows.
    `messages`, `calls`: how many it has. `has_tools`: it has tools or a schema, too.
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
        """Whether the prompt was too long, by upstream's refusal or by its figures."""
        return self.refused or self.reported > self.budget

    @property
    def is_of_its_texts(self) -> bool:
        """Whether upstream reports at least the tokens of the prompt's texts: no frame takes fewer than none."""
        return self.reported >= self.counted - upstreams.CALL_TOKENS * self.calls - upstreams.MESSAGE_TOKENS * (
            self.messages + 1
        )

    @property
    def is_large(self) -> bool:
        """Whether the texts of the prompt make up most of it."""
        return self.counted >= min(LARGE, LARGE_SHARE * (self.window or self.budget))


class ModelMargins:
    """Holds the margin of each model. Requests read and change memory only; only `keep` uses the storage."""

    def __init__(self, clock: ports.Clock) -> None:
        self._clock = clock
        self._known: BoundedCache[str, upstreams.ModelCalibration] = BoundedCache(
            MAX_REMEMBERED_MODELS, on_evict=lambda key, _: self._changed.discard(key)
        )
        self._stored: dict[str, upstreams.ModelCalibration] = {}
        self._changed: set[str] = set()
        self._small: BoundedCache[str, int] = BoundedCache(MAX_REMEMBERED_MODELS)
        self._looked_up = asyncio.Event()
        self._window_reported = asyncio.Event()

    async def looked_up(self, seconds: float) -> None:
        """Waits until the storage was read, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._looked_up.wait(), seconds)

    def of(self, facts: ModelFacts, counted_by: str) -> float:
        """Returns the model's tokens per counted token; as configured until something is learned."""
        known = self.known(facts, counted_by)
        return known.margin if known is not None else facts.token_margin

    def known(self, facts: ModelFacts, counted_by: str) -> upstreams.ModelCalibration | None:
        """Returns all that was learned about the model; None: nothing yet."""
        return self._known.peek(key_of(facts.name, facts.served_at, facts.tokenizer, counted_by))

    def takes_small(self, facts: ModelFacts, messages: Sequence[dict[str, Any]], counted_by: str) -> bool:
        """Returns whether this is one more small prompt to be counted: in each process the first few of a model show
        what frames its messages. Counts it if so."""
        key = key_of(facts.name, facts.served_at, facts.tokenizer, counted_by)
        number = self._small.peek(key) or 0
        if number >= MAX_SMALL or not is_small(messages):
            return False
        self._small.put(key, number + 1)
        return True

    def learn(self, facts: ModelFacts, report: PromptReport, counted_by: str, *, exact: bool) -> None:
        """Learns from one more report. `exact`: whether the model's own tokenizer counted (see `calibrated`)."""
        key = key_of(facts.name, facts.served_at, facts.tokenizer, counted_by)
        now = self._clock.now()
        known = self._known.peek(key) or upstreams.ModelCalibration(facts.token_margin, 0, now)
        learned = calibrated(known, report, now, exact=exact and facts.token_margin == 1.0)
        if learned is known:
            return
        self._put(key, learned)

    def window(self, model: str, served_at: str) -> tuple[int | None, datetime | None]:
        """Returns the reported window and its expiry; see `WindowKeeper.window`."""
        known = self._known.peek(key_of(model, served_at, None, WINDOW))
        return (known.told_window, known.told_until) if known is not None else (None, None)

    def keep_window(self, model: str, served_at: str, window: int, until: datetime) -> None:
        """Stores a reported window; see `WindowKeeper.keep_window`."""
        learned = upstreams.ModelCalibration(1.0, 0, self._clock.now(), told_window=window, told_until=until)
        self._put(key_of(model, served_at, None, WINDOW), learned)
        self._window_reported.set()

    async def until_window_reported(self, seconds: float) -> None:
        """Waits until a window is reported, at most `seconds`: it is written at once, as it cost a refused call."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._window_reported.wait(), seconds)
        self._window_reported.clear()

    def _put(self, key: str, learned: upstreams.ModelCalibration) -> None:
        self._known.put(key, learned)
        self._changed.add(key)

    async def try_to_keep(self, store: ports.CalibrationStore) -> bool:
        """Runs `keep` and logs its failure; returns whether it worked."""
        try:
            await self.keep(store)
            return True
        except errors.StorageUnavailable as error:
            log.info("calibrations_not_kept", reason=error.message)
        except Exception as fault:  # noqa: BLE001 - an unreadable row must not stop this while the server runs
            log.fault("calibrations_not_kept", fault)
        finally:
            self._looked_up.set()
        return False

    @property
    def is_worth_writing(self) -> bool:
        """Whether enough was learned since the last write to write again."""
        return any(self._differs(key) for key in self._changed)

    async def keep(self, store: ports.CalibrationStore) -> None:
        """Reads what other processes have learned, and writes what was learned here.
        Raises StorageUnavailable: nothing is lost; try again later."""
        stored = await store.load()
        changed = {key: own for key in self._changed if (own := self._known.peek(key)) is not None}
        for key, found in reversed(stored.items()):  # the latest last
            if key not in changed:
                self._known.put(key, found)
        for key, own in changed.items():  # unwritten entries stay, however many are stored
            self._put(key, merged(own, self._stored.get(key), stored[key]) if key in stored else own)
        self._stored = stored
        news = {key: own for key in self._changed if (own := self._known.peek(key)) is not None and self._differs(key)}
        if not news:
            return
        await store.save(news)
        self._stored |= news
        self._changed -= {key for key, written in news.items() if self._known.peek(key) == written}

    def _differs(self, key: str) -> bool:
        known, stored = self._known.peek(key), self._stored.get(key)
        if known is None or stored is None:
            return known is not None
        return _figures(known) != _figures(stored) or abs(known.margin - stored.margin) >= WORTH_WRITING


def _figures(known: upstreams.ModelCalibration) -> tuple[object, ...]:
    return known.saved_per_call, known.calls_seen, known.added_per_message, known.told_window, known.told_until


@lru_cache(maxsize=1024)
def key_of(name: str, served_at: str, tokenizer: str | None, counted_by: str) -> str:
    """Returns the key of a model: its name, where it is served (as a digest: addresses may hold passwords), and what
    counts its tokens."""
    text = f"{served_at}\0{name}\0{tokenizer}"
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    readable = "".join(c if c.isascii() and c.isprintable() else "?" for c in name[:MODEL_NAME_CHARS])
    return f"{readable} {digest} {counted_by}"


async def keep_calibrated(margins: ModelMargins, store: ports.CalibrationStore, seconds: float = KEEP_SECONDS) -> None:
    """Synchronises memory and storage until cancelled. Failures cost exactness, never a request."""
    waited = READ_EVERY
    while True:
        if waited >= READ_EVERY or margins.is_worth_writing:
            waited = 0 if await margins.try_to_keep(store) else READ_EVERY
        waited += 1
        await margins.until_window_reported(seconds)


def is_small(messages: Sequence[dict[str, Any]]) -> bool:
    """Returns whether a prompt is text alone, and so little text that the frame of its messages shows in its count."""
    room = min(SMALL_CHARS, MESSAGE_CHARS * len(messages))
    for message in messages:
        texts = [part.get("text") for part in as_parts(message.get("content"))]
        said = [text for text in texts if isinstance(text, str)]
        room -= sum(map(len, said))
        if message.get("tool_calls") or len(said) < len(texts) or room < 0:
            return False
    return bool(messages)


def calibrated(
    known: upstreams.ModelCalibration, report: PromptReport, now: datetime, *, exact: bool = False
) -> upstreams.ModelCalibration:
    """Returns the calibration after one more report.
    `known`: the calibration until now. `exact`: the model's own tokenizer counted: only an overflow shows that its
    tokenizer is another, and its texts take what was counted. The frame of tool calls is learned instead."""
    if report.counted <= 0 or report.reported <= 0:
        return known
    added = _added(known, report, exact=exact)
    margin = _margin(known.margin, report, report.reported - added * report.messages, exact=exact)
    margin = min(upstreams.MAX_MARGIN, max(1.0 if exact else upstreams.MIN_MARGIN, margin))
    learned = replace(known, margin=margin, added_per_message=added)
    if exact and report.calls:
        learned = _of_calls(learned, report)
    return known if learned == known else replace(learned, samples=known.samples + 1, updated_at=now)


def _of_calls(known: upstreams.ModelCalibration, report: PromptReport) -> upstreams.ModelCalibration:
    """Learns the frame of tool calls. One report reverts what it does not confirm; only several in a row make the count
    smaller, by the least that any of them shows."""
    if report.is_over:
        return replace(known, saved_per_call=0, calls_seen=0, streak=(0, 0, 0))
    shown = min(upstreams.CALL_TOKENS, (report.counted - report.reported) // report.calls) - SPARE
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


def _added(known: upstreams.ModelCalibration, report: PromptReport, *, exact: bool) -> int:
    """Returns the tokens of a message's frame beyond the counted ones. For short texts, and for texts counted by the
    model's own tokenizer, they are the remainder: raised at once, since an overflow costs a call, lowered slowly."""
    before, number = known.added_per_message, report.messages
    shows_frame = number > 0 and not (report.refused or report.calls or report.has_tools)
    if not shows_frame or not (exact or report.counted <= MAX_TEXT_PER_MESSAGE * number):
        return before
    left = report.reported - report.counted * (1.0 if exact else max(1.0, known.margin))
    shown = max(0, ceil(left / number))
    if shown > MAX_ADDED or report.reported > MAX_PLAUSIBLE * report.counted:
        return before
    if shown >= before:
        return shown
    return before if report.cached else before - 1


def _margin(margin: float, report: PromptReport, of_texts: int, *, exact: bool) -> float:
    """Returns the new margin. `of_texts`: the reported tokens, without those known to be added to messages."""
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


def merged(
    mine: upstreams.ModelCalibration, base: upstreams.ModelCalibration | None, stored: upstreams.ModelCalibration | None
) -> upstreams.ModelCalibration:
    """Merges what this process and another learned since this one last read: the larger margin and the smaller saving,
    so that no overflow is forgotten.
    `base`: what was stored when this process last read."""
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
