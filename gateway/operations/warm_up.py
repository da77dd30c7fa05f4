"""Loads in the background, after the server has started, what the first requests would otherwise wait for.

The configuration decides what is loaded: nothing that no request could need.
"""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from gateway.api import RequestArrival, load_jose, validation
from gateway.context import ContextManager, ContextSources
from gateway.context.tokens import CounterRegistry
from gateway.core import ids, ports
from gateway.core.config.settings import Settings
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.types.chat import ModelFacts, PromptBudget, RequestCaller
from gateway.documents import file_reader
from gateway.storage.cache import MemoryCache
from gateway.upstream import ConnectionPool, LitellmLibrary, warm_up_call
from gateway.upstream.routing import ConfiguredRouter, ModelCatalogue, catalogue

log = logs.get_logger("gateway.operations.warm_up")
WARM_UP_AFTER = 0.25
"""Seconds after the start, so that requests that already wait go first."""
SWITCH_SECONDS = 0.0005
"""How long a loading thread keeps the interpreter while a request waits for it; the default is ten times as much."""
NEVER_COLLECTED = 2**30
"""Collections of the middle generation before a full one."""
BUDGET_TOKENS = 600
REHEARSED = "\n\n".join(
    f"## Part {n}\n\nThe keeper of lamp {n} is called Name{n * 7}. Since {1900 + n % 90} it has burned {n % 9} oils."
    for n in range(120)
)
"""A document of a few pages, which exceeds that budget."""
QUESTION = "Who keeps lamp 77, and since when?"


@record
class WarmUpPiece:
    """One thing to load, and its name in the log."""

    name: str
    load: Callable[[], Awaitable[object]]


class WarmUp:
    """Loads pieces one after the other. A failed piece is logged and does not stop the others; a request that needs it
    loads it itself, or fails the same way. After cancellation no further piece begins."""

    def __init__(self, pieces: Sequence[WarmUpPiece], clock: ports.Clock, after: float = WARM_UP_AFTER) -> None:
        self._pieces, self._clock, self._after = pieces, clock, after

    async def run(self) -> None:
        """Waits `after` seconds, then loads all pieces; returns after the last attempt."""
        await asyncio.sleep(self._after)
        began = self._clock.monotonic()
        faults = 0
        with _giving_way():
            for piece in self._pieces:
                try:
                    await piece.load()
                except Exception as fault:  # noqa: BLE001 - no fault may cost a running server more than its piece
                    faults += 1
                    log.fault("warm_up_failed", fault, piece=piece.name)
        log.info("warm", pieces=len(self._pieces), faults=faults, seconds=round(self._clock.monotonic() - began, 2))


def warm_up_pieces(
    settings: Settings,
    router: ConfiguredRouter,
    models: ModelCatalogue,
    counters: CounterRegistry,
    pool: ConnectionPool,
    library: LitellmLibrary,
    load_embedder: Callable[[], Awaitable[object]] | None,
    clock: ports.Clock,
) -> list[WarmUpPiece]:
    """Returns the pieces that this configuration's first requests need, the most common first.

    Vocabularies also count the tokens of an abandoned stream. A model that is not listed mostly uses the default
    vocabulary.
    """
    entries = [entry for entry in settings.model_list if catalogue.unsupported(entry) is None]
    names = [entry.model_name for entry in entries]
    if router.serves_unlisted or not names:
        names.append("")
    found = [WarmUpPiece("signatures", load_jose)] if settings.auth.jwt is not None else []
    found.append(WarmUpPiece("prices", lambda: asyncio.to_thread(models.load)))
    found += [
        WarmUpPiece(f"vocabulary of {name or 'the default'}", partial(_load, router, counters, name)) for name in names
    ]
    found.append(WarmUpPiece("context", lambda: warm_up_context(settings, router.facts(names[0]), counters, clock)))
    providers = {catalogue.provider_of(entry)[0] for entry in entries}
    bases = [
        catalogue.named_base(entry) or catalogue.OPENAI_COMPATIBLE.get(catalogue.provider_of(entry)[0]) or ""
        for entry in entries
    ]
    bases += [settings.upstream.api_base] if "" in names else []
    if any(not base.startswith("http:") for base in bases):
        found.append(WarmUpPiece("certificates", pool.prepare))
    if providers & catalogue.THROUGH_LITELLM:
        found.append(WarmUpPiece("litellm", lambda: warm_up_call(library)))
    if load_embedder is not None:
        found.append(WarmUpPiece("embedder", load_embedder))
    return found


async def _load(router: ConfiguredRouter, counters: CounterRegistry, name: str) -> None:
    await asyncio.to_thread(lambda: counters.load(router.facts(name)))


async def warm_up_context(settings: Settings, facts: ModelFacts, counters: CounterRegistry, clock: ports.Clock) -> None:
    """Reduces a made-up document on the same path as a request's document. That loads numpy, stemmers, and whatever
    else is loaded or compiled at its first use. It uses no storage, no model and no cache."""
    counted = ModelFacts(facts.name, tokenizer=facts.tokenizer)  # its window may be too small even for this question
    budget = PromptBudget(BUDGET_TOKENS, None)
    body = {
        "model": facts.name or "warm-up",
        "messages": [{"role": "user", "content": QUESTION}],
        "attachments": [{"title": "Rehearsal", "content": REHEARSED}],
        "context": {"mode": "simple"},
        "store": False,
    }
    arrival = RequestArrival(ids.new_id("req_"), clock.now(), clock.monotonic(), len(REHEARSED))
    plain = validation.plain_messages(body["messages"])
    request = validation.parse_chat_request(body, {}, RequestCaller("warm-up"), settings, arrival, plain)
    files = file_reader.FileReader(MemoryCache(2**16, clock), 1.0)
    manager = ContextManager(settings=settings, counters=counters, sources=ContextSources(files=files))
    await manager.warm_up(request, counted, budget)


@contextmanager
def _giving_way() -> Iterator[None]:
    """Lets requests take the interpreter from a loading thread sooner than usual; suspends full garbage collections:
    loaded objects stay, and each full collection would stop every request for a third of a second. At the end, exempts
    all existing objects from later collections."""
    usual, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(min(usual, SWITCH_SECONDS))
    gc.set_threshold(*thresholds[:2], NEVER_COLLECTED)
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(usual)
