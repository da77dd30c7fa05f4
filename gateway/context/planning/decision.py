"""Whether a planner is asked: `should_use_llm_planning()` and the facts that it looks at; then `weighed()`, whether its
plan can earn its price (guarantee §5, ADR 16).

Planners that answer what nobody can use rest for a while: they are not paid for more of the same (guarantee §5).

Tool loops that were answered, known by their first call. A client that says it again behind a user message that is
not stored is not recognised from request to request, and a turn asks its planner once all the same (guarantee §5).
"""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from gateway.context.planning.record import WindowContents
from gateway.core import jsons
from gateway.core.config.settings import ContextSettings
from gateway.core.errors import StorageUnavailable
from gateway.core.ids import content_digest
from gateway.core.ports import CacheBackend, Clock
from gateway.core.tasks import Cooldown
from gateway.core.types.artifacts import Artifact
from gateway.core.types.chat import ContextOptions
from gateway.core.types.conversation import ConversationHistory
from gateway.core.types.tool_steps import calls_of, turn_starts
from gateway.core.types.window import FullPrompt, PackedWindow, WindowInputs


@dataclass(frozen=True, slots=True)
class PlanningFacts:
    """What is known of a request before anything of it is reduced. Sizes in characters, `tokens` and `budget` in
    tokens; `budget` is None if the window is unknown."""

    artifacts: int
    planning: str
    mode: str
    has_planner: bool
    all_standing: bool
    """Every artifact has a standing decision: one that an earlier request made, and that holds."""
    new_historical: bool
    """An artifact of the turns before the current one has none."""
    total_chars: int
    largest_chars: int
    tokens: int
    budget: int | None
    expensive_primary: bool
    must_leave: bool = False
    """Something has to leave the window anew."""
    unrecognised: bool = False
    """The next request of this client will not be known to go on with this one."""

    @property
    def budget_share(self) -> float:
        """How much of the budget the tokens take; nothing of an unknown one."""
        return self.tokens / self.budget if self.budget else 0.0


@dataclass(frozen=True, slots=True)
class PlanningDecision:
    """Whether to ask a planner, and which row of the table said so."""

    use: bool
    reason: str


NO_ARTIFACTS = "no_artifacts"
FORCED = "forced"
"""The request asked for a plan (`planning: always`)."""
NO_PLANNER = "no_planner"
NOTHING_TO_PLAN = "nothing_to_plan"
"""Not a reason of the table: a plan was called for, and could change nothing."""


class DecisionRow(NamedTuple):
    """One row of the table: its condition in words and as a function, and what it says."""

    condition: str
    holds: Callable[[PlanningFacts, ContextSettings], bool]
    use: bool
    reason: str


def _is_in_vain(facts: PlanningFacts, _: ContextSettings) -> bool:
    return facts.unrecognised and not facts.must_leave


TABLE = (
    DecisionRow("no artifacts", lambda f, _: f.artifacts == 0, False, NO_ARTIFACTS),
    DecisionRow("`context.planning` is `never`", lambda f, _: f.planning == "never", False, "disabled"),
    DecisionRow("`context.planning` is `always`", lambda f, _: f.planning == "always", True, FORCED),
    DecisionRow(
        "no planner, or mode `simple`", lambda f, _: not f.has_planner or f.mode == "simple", False, NO_PLANNER
    ),
    DecisionRow("every artifact has a standing decision", lambda f, _: f.all_standing, False, "standing"),
    DecisionRow("not recognised from request to request, and all fits", _is_in_vain, False, "not_recognised"),
    DecisionRow("a historical artifact has none", lambda f, _: f.new_historical, True, "historical_artifacts"),
    DecisionRow("total size is small", lambda f, s: f.total_chars < s.small_total_chars, False, "small_total"),
    DecisionRow(
        "tokens fit well, and a cheap primary model",
        lambda f, s: f.budget_share <= s.fits_share and not f.expensive_primary,
        False,
        "fits",
    ),
    DecisionRow("tokens are near the budget", lambda f, s: f.budget_share >= s.near_limit_share, True, "near_limit"),
    DecisionRow("expensive primary model", lambda f, _: f.expensive_primary, True, "expensive_primary"),
    DecisionRow("a large artifact", lambda f, s: f.largest_chars > s.large_artifact_chars, True, "large_artifact"),
    DecisionRow("otherwise", lambda _, __: True, False, "no_need"),
)
"""Guarantee §5's table: the first row that holds decides. The numbers are settings."""


def should_use_llm_planning(facts: PlanningFacts, settings: ContextSettings) -> PlanningDecision:
    """The first row of the table that holds; a pure function."""
    return next(PlanningDecision(row.use, row.reason) for row in TABLE if row.holds(facts, settings))


@dataclass(frozen=True, slots=True)
class PlanEconomics:
    """What asking a planner would cost and could bring. Money in USD, None where a price is unknown."""

    must_leave: bool
    """Something has to leave the window anew: a plan decides what. Where a client is not recognised that is so at each
    step: the first alone counts."""
    asked_this_turn: bool
    """An earlier step of the same turn has asked a planner."""
    stands: bool
    """What is decided now can hold in later requests; not with `store: false`."""
    price: Decimal | None = None
    """Of the planner's call."""
    saving: Decimal | None = None
    """The most that a plan could save, over all requests in which it is expected to stand."""
    resting: bool = False
    """The planner's last answers to this tenant were unusable."""

    @property
    def cannot_pay(self) -> bool:
        """Whether the price is more than what could be saved; unknown prices do not count."""
        return self.price is not None and self.saving is not None and self.price > self.saving


class PlanVeto(NamedTuple):
    """One reason not to ask, in words and as a function. `also_forced`: it holds against `planning: always`, too."""

    condition: str
    holds: Callable[[PlanEconomics], bool]
    reason: str
    also_forced: bool = False


OBJECTIONS = (
    PlanVeto("this turn has asked already", lambda p: p.asked_this_turn, "asked_this_turn", also_forced=True),
    PlanVeto("nothing that is decided could stand", lambda p: not p.stands, "nothing_stands"),
    PlanVeto("asking costs more than it could save", lambda p: p.cannot_pay, "cannot_pay"),
    PlanVeto("the planner's last answers were unusable", lambda p: p.resting, "planner_resting"),
)
"""They count while nothing has to leave; the first that holds is the reason."""


def weighed(decision: PlanningDecision, prospects: PlanEconomics) -> PlanningDecision:
    """The table's decision, or not to ask for the first objection that holds; a pure function."""
    if not decision.use or prospects.must_leave:
        return decision
    forced = decision.reason == FORCED
    counted = (each for each in OBJECTIONS if each.also_forced or not forced)
    return next((PlanningDecision(False, each.reason) for each in counted if each.holds(prospects)), decision)


def facts_of(
    options: ContextOptions,
    material: WindowInputs,
    unreduced: FullPrompt,
    *,
    stored: int,
    budget: int | None,
    historical_turns: int,
    has_planner: bool = False,
    expensive_primary: bool = False,
    unrecognised: bool = False,
) -> PlanningFacts:
    """The facts of a request.
    `stored`: how many of the material's messages were forwarded with an earlier request; `budget`: in tokens; None if
    the window is unknown; `historical_turns`: how many turns back a historical artifact counts."""
    same = unreduced.selection.same
    sizes = [artifact.size_chars for artifact in material.artifacts if artifact.artifact_id not in same]
    undecided = without_standing(material, unreduced, stored)
    turns = _HistoricalTurns(material, historical_turns)
    return PlanningFacts(
        artifacts=len(sizes) or int(unreduced.new_pass and may_be_planned(options, material)),
        planning=options.planning,
        mode=options.mode,
        has_planner=has_planner,
        all_standing=not undecided,
        new_historical=any(artifact.historical and turns.has(artifact) for artifact in undecided),
        total_chars=sum(sizes),
        largest_chars=max(sizes, default=0),
        tokens=unreduced.tokens,
        budget=budget,
        expensive_primary=expensive_primary,
        must_leave=unreduced.new_pass,
        unrecognised=unrecognised,
    )


def may_be_planned(options: ContextOptions, material: WindowInputs) -> bool:
    """Whether there is anything to plan: artifacts, or old turns where they have to leave. What is quoted of these is
    an artifact, too, the only one that a plain chat has; a plan of it would cost time in every turn of a long chat, so
    it is made only with `planning: always`."""
    return bool(material.artifacts) or (options.planning == "always" and material.current > 0)


def without_standing(material: WindowInputs, fitted: PackedWindow | FullPrompt, stored: int) -> Sequence[Artifact]:
    """The artifacts without a standing decision. A decision (shown in full, reduced, or left out by the pass with which
    the window began) holds while the window is as it was forwarded; once something has to leave, none does
    (guarantee §4 I7)."""
    if fitted.new_pass:
        return material.artifacts
    window, same = WindowContents.of(material, fitted), fitted.selection.same
    others = (artifact for artifact in material.artifacts if artifact.artifact_id not in same)
    undecided = [artifact for artifact in others if not _is_decided(artifact, window, stored)]
    if material.frame is None or material.current >= stored:
        return undecided
    # A later step of a turn: what its block shows was fixed with the first (guarantee §4 I6). No plan can change it,
    # and nobody is paid for one.
    return [a for a in undecided if a.place.message is not None and a.place.message in window.indexes]


def _is_decided(artifact: Artifact, window: WindowContents, stored: int) -> bool:
    if window.is_left_out(artifact, stored):
        return True
    index = artifact.place.message
    if index is not None:
        return index < stored and index in window.indexes
    return artifact.block_name in window.in_earlier_blocks or window.decided(artifact) is not None


class _HistoricalTurns:
    """The turns before the current one in which an artifact counts as historical."""

    def __init__(self, material: WindowInputs, count: int) -> None:
        begins = turn_starts(message.role for message in material.messages[: material.current])
        self._none = not count
        self._first = begins[-count] if 0 < count <= len(begins) else 0
        self._since: datetime | None = material.messages[self._first].created_at if self._first else None
        begun = bool(material.messages) and material.messages[material.current].message_id is not None
        self._until: datetime | None = material.messages[material.current].created_at if begun else None

    def has(self, artifact: Artifact) -> bool:
        """Whether an artifact is of one of them; one that is in no message, by the time at which it came."""
        if self._none:
            return False
        if artifact.place.message is not None:
            return artifact.place.message >= self._first
        came = artifact.timestamp
        if came is None:
            return True
        is_current = self._until is not None and came >= self._until  # with the first step of the turn under way
        return not is_current and (self._since is None or came >= self._since)


MAX_UNUSABLE = 3
"""Unusable answers in a row, after which a planner rests."""
REST_SECONDS = 600.0
MAX_NOTICED = 10_000
"""Of planners that rest, how many are counted."""
REMEMBERED_SECONDS = 86_400.0
"""How long unusable answers count towards the next rest."""


class PlannerCooldown:
    """What planners lately answered to each tenant, kept in the cache, so that replicas know it of each other. A cache
    that is down costs nothing but the rest."""

    def __init__(self, cache: CacheBackend, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._resting: dict[str, float] = {}

    def __len__(self) -> int:
        """How many rest now, as far as this process has noticed: by planner and tenant."""
        now = self._clock.now().timestamp()
        self._resting = {key: until for key, until in self._resting.items() if until > now}
        return len(self._resting)

    async def is_resting(self, tenant: str, planner: str) -> bool:
        """Whether the last answers of that planner to this tenant were unusable, the latest within the last minutes."""
        cooldown = await self._read(key := _key(tenant, planner))
        rests = cooldown.remaining(self._clock.now().timestamp()) > 0
        if rests and (key in self._resting or len(self) < MAX_NOTICED):
            self._resting[key] = cooldown.until
        return rests

    async def answered(self, tenant: str, planner: str, *, usable: bool) -> None:
        """Counts an answer. A usable one ends the count; after a rest, one more unusable answer begins the next."""
        cooldown, now = await self._read(key := _key(tenant, planner)), self._clock.now().timestamp()
        if not usable:
            cooldown.failed(now)
        elif cooldown.failures:
            cooldown.answered()
        else:
            return
        await self._cache.set(key, jsons.dumps({"unusable": cooldown.failures, "latest": now}), REMEMBERED_SECONDS)

    async def _read(self, key: str) -> Cooldown:
        """What the cache holds; nothing if that is rubbish, such as an answer that is yet to come."""
        cooldown, value = Cooldown(MAX_UNUSABLE, REST_SECONDS), await self._cache.get(key)
        with suppress(ValueError, TypeError, AttributeError, OverflowError):
            found = jsons.loads(value) if value is not None else {}
            cooldown.failures, latest = int(found.get("unusable", 0)), float(found.get("latest", 0))
            if cooldown.failures >= MAX_UNUSABLE and latest <= self._clock.now().timestamp() + REST_SECONDS:
                cooldown.until = latest + REST_SECONDS
        return cooldown


def _key(tenant: str, planner: str) -> str:
    return "planner_rest:" + content_digest(f"{tenant}\0{planner}")


LOOP_SECONDS = 3600.0
"""How long a loop is known after its first step, or after its planner was asked."""
ASKED, ANSWERED = b"asked", b"answered"
Body = dict[str, Any]


class ToolLoops:
    """Keyed digests of first calls, in the cache, so that replicas know them of each other. Nobody's words are in it. A
    cache that is down costs nothing but this knowledge.
    `secret`: reads the storage's; may raise StorageUnavailable."""

    def __init__(self, cache: CacheBackend, secret: Callable[[], Awaitable[bytes]]) -> None:
        self._cache, self._secret = cache, secret

    async def seen_in(self, tenant: str, history: ConversationHistory, *, stored: bool) -> ConversationHistory:
        """The conversation with what is known of its latest tool loop, where that loop is not stored.
        `stored`: the request leaves stored content. What is not stored is not recognised in any case."""
        bodies = [message.body for message in history.messages]
        call, index, current = _latest_loop(bodies, history.stored if stored else 0)
        if call is None:
            return history
        found = await self._cache.get(key) if (key := await self._key(tenant, call)) is not None else None
        if found is None:
            return history
        return replace(history, unrecognised=stored, planned=found == ASKED and index >= current)

    async def note(self, tenant: str, messages: Sequence[Body], answers: Sequence[Body], *, asked: bool) -> None:
        """Notes the loop of a turn when it begins, and when its planner was asked.
        `messages`: those of the request, the current turn at their end; `answers`: what they were answered; `asked`: a
        planner was asked for this request."""
        called = next((calls[0] for answer in answers if (calls := calls_of(answer))), None)
        if called is None and not asked:
            return
        call, index, current = _latest_loop(messages, 0)
        if call is None or index < current:
            call = called
        elif not asked:
            return
        if call is not None and (key := await self._key(tenant, call)) is not None:
            await self._cache.set(key, ASKED if asked else ANSWERED, LOOP_SECONDS)

    async def _key(self, tenant: str, call: Body) -> str | None:
        try:
            secret = await self._secret()
        except StorageUnavailable:
            return None
        function = call.get("function") or {}
        arguments = function.get("arguments")
        try:  # clients may write them anew
            arguments = jsons.loads(arguments or "{}")
        except (jsons.JSONDecodeError, TypeError):
            pass
        who = [tenant, call.get("id"), function.get("name"), arguments, call.get("custom")]
        return "tool_loop:" + hmac.digest(secret, b"loop\0" + jsons.canonical(who), "sha256").hex()


def _latest_loop(bodies: Sequence[Body], since: int) -> tuple[Body | None, int, int]:
    """The first call of the latest turn that has any, the index of its message, and that at which the current turn
    begins. None if that message is before `since`."""
    starts = [0, *turn_starts(body["role"] for body in bodies)]
    end = len(bodies)
    for start in reversed(starts):
        if end <= since:
            break
        called = ((index, calls[0]) for index in range(start, end) if (calls := calls_of(bodies[index])))
        if (found := next(called, None)) is not None:
            return found[1] if found[0] >= since else None, found[0], starts[-1]
        end = start
    return None, 0, starts[-1]
