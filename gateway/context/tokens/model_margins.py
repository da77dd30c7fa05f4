"""Margins of models: in memory for requests, in storage for other processes and for the next start (ADR 13)."""

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from gateway.core.bounded_cache import BoundedCache
from gateway.core.errors import StorageUnavailable
from gateway.core.instrumentation.logs import get_logger
from gateway.core.ports import CalibrationStore, Clock
from gateway.core.types.chat import ModelFacts
from gateway.core.types.upstreams import MAX_SMALL, ModelCalibration, PromptReport, calibrated, is_small, merged

WRITE_SECONDS = 20.0
"""Between writes of what was learned."""
READ_EVERY = 15
"""Writes between reads of what other processes have learned: five minutes."""
WORTH_WRITING = 0.005
"""A margin that moved by less is not written."""
MAX_REMEMBERED = 1000
"""Models; names may come from clients."""
WINDOW = "window"
"""What is told of a window is no count of anybody's."""
NAME_CHARS = 180
"""Of a model's name in its key, which has to fit a column."""
log = get_logger("gateway.context.tokens.model_margins")


class ModelMargins:
    """The margin of each model. Requests read and change memory only; `keep` alone uses the storage."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: BoundedCache[str, ModelCalibration] = BoundedCache(
            MAX_REMEMBERED, on_evict=lambda key, _: self._changed.discard(key)
        )
        self._stored: dict[str, ModelCalibration] = {}
        self._changed: set[str] = set()
        self._small: BoundedCache[str, int] = BoundedCache(MAX_REMEMBERED)
        self._looked_up = asyncio.Event()
        self._told = asyncio.Event()

    async def looked_up(self, seconds: float) -> None:
        """Waits until the storage was read, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._looked_up.wait(), seconds)

    def of(self, facts: ModelFacts, counted_by: str) -> float:
        """The model's tokens for each one counted; until something is learned, as configured."""
        known = self.known(facts, counted_by)
        return known.margin if known is not None else facts.token_margin

    def known(self, facts: ModelFacts, counted_by: str) -> ModelCalibration | None:
        """All that was learned of the model."""
        return self._known.peek(key_of(facts.name, facts.served_at, facts.tokenizer, counted_by))

    def takes_small(self, facts: ModelFacts, messages: Sequence[dict[str, Any]], counted_by: str) -> bool:
        """Whether these are one more small prompt that is to be counted: in each process the first few of a model show
        what frames its messages."""
        key = key_of(facts.name, facts.served_at, facts.tokenizer, counted_by)
        number = self._small.peek(key) or 0
        if number >= MAX_SMALL or not is_small(messages):
            return False
        self._small.put(key, number + 1)
        return True

    def learn(self, facts: ModelFacts, report: PromptReport, counted_by: str, *, exact: bool) -> None:
        """One more report. `exact`: whether the model's own tokenizer counted (see `calibrated`)."""
        key = key_of(facts.name, facts.served_at, facts.tokenizer, counted_by)
        now = self._clock.now()
        known = self._known.peek(key) or ModelCalibration(facts.token_margin, 0, now)
        learned = calibrated(known, report, now, exact=exact and facts.token_margin == 1.0)
        if learned is known:
            return
        self._put(key, learned)

    def window(self, model: str, served_at: str) -> tuple[int | None, datetime | None]:
        """See `WindowKeeper.window`."""
        known = self._known.peek(key_of(model, served_at, None, WINDOW))
        return (known.told_window, known.told_until) if known is not None else (None, None)

    def keep_window(self, model: str, served_at: str, window: int, until: datetime) -> None:
        """See `WindowKeeper.keep_window`."""
        told = ModelCalibration(1.0, 0, self._clock.now(), told_window=window, told_until=until)
        self._put(key_of(model, served_at, None, WINDOW), told)
        self._told.set()

    async def until_told(self, seconds: float) -> None:
        """Waits until a window was told, at most `seconds`: it is written at once, since it costs a refused call."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._told.wait(), seconds)
        self._told.clear()

    def _put(self, key: str, learned: ModelCalibration) -> None:
        self._known.put(key, learned)
        self._changed.add(key)

    async def try_to_keep(self, store: CalibrationStore) -> bool:
        """Does `keep` and logs its failure; returns whether it worked."""
        try:
            await self.keep(store)
            return True
        except StorageUnavailable as error:
            log.info("calibrations_not_kept", reason=error.message)
        except Exception as fault:  # noqa: BLE001 - a row that cannot be read must not end it while the server runs
            log.fault("calibrations_not_kept", fault)
        finally:
            self._looked_up.set()
        return False

    @property
    def is_worth_writing(self) -> bool:
        """Whether more than a trifle was learned since the last writing."""
        return any(self._differs(key) for key in self._changed)

    async def keep(self, store: CalibrationStore) -> None:
        """Reads what other processes have learned, and writes what was learned here.
        Raises StorageUnavailable: nothing is lost by that; try again later."""
        stored = await store.load()
        changed = {key: own for key in self._changed if (own := self._known.peek(key)) is not None}
        for key, found in reversed(stored.items()):  # the latest of them last
            if key not in changed:
                self._known.put(key, found)
        for key, own in changed.items():  # what is not written yet stays, however many are stored
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


def _figures(known: ModelCalibration) -> tuple[object, ...]:
    return known.saved_per_call, known.calls_seen, known.added_per_message, known.told_window, known.told_until


@lru_cache(maxsize=1024)
def key_of(name: str, served_at: str, tokenizer: str | None, counted_by: str) -> str:
    """What a model is known by: its name, where it is served (as a digest: addresses may hold passwords), and what
    counts its tokens."""
    text = f"{served_at}\0{name}\0{tokenizer}"
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    readable = "".join(c if c.isascii() and c.isprintable() else "?" for c in name[:NAME_CHARS])
    return f"{readable} {digest} {counted_by}"


async def keep_calibrated(margins: ModelMargins, store: CalibrationStore, seconds: float = WRITE_SECONDS) -> None:
    """Keeps memory and storage in step until it is cancelled. What goes wrong costs exactness, never a request."""
    waited = READ_EVERY
    while True:
        if waited >= READ_EVERY or margins.is_worth_writing:
            waited = 0 if await margins.try_to_keep(store) else READ_EVERY
        waited += 1
        await margins.until_told(seconds)
