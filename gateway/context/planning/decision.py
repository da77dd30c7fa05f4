"""Decides whether a planner is asked: `should_use_llm_planning()` by the facts of a request, then `weighed()` by
whether the plan can earn its price (guarantee §5, ADR 16). Planners with unusable answers rest for a while.

Tool loops are identified by their first call. A client that repeats that call behind a user message that is not stored
is not recognised from request to request, but a turn still asks its planner only once (guarantee §5).
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from itertools import takewhile
from operator import itemgetter
from typing import Any, NamedTuple, Self

from gateway.context.planning.artifact_decisions import without_standing
from gateway.core import errors, ids, jsons, ports
from gateway.core.config.settings import ContextSettings
from gateway.core.frozen_records import record
from gateway.core.tasks import Cooldown
from gateway.core.types import tool_steps
from gateway.core.types.artifacts import Artifact
from gateway.core.types.chat import ChatRequest, ContextOptions
from gateway.core.types.conversation import ConversationHistory
from gateway.core.types.window import FullPrompt, WindowInputs


@record
class PlanningFacts:
    """Facts about a request before anything of it is reduced. Sizes in characters, `tokens` and `budget` in tokens;
    `budget` is None if the window is unknown."""

    artifacts: int
    planning: str
    mode: str
    has_planner: bool
    all_standing: bool
    """Every artifact has a standing decision: an earlier request made it, and it still holds."""
    new_historical: bool
    """An artifact of the turns before the current one has no standing decision."""
    total_chars: int
    largest_chars: int
    tokens: int
    budget: int | None
    expensive_primary: bool
    must_leave: bool = False
    """Something more has to leave the window."""
    unrecognised: bool = False
    """The next request of this client will not be recognised as a continuation of this one."""

    @property
    def budget_share(self) -> float:
        """Tokens as a share of the budget; 0 if the budget is unknown."""
        return self.tokens / self.budget if self.budget else 0.0


@record
class PlanningDecision:
    """Whether to ask a planner, and the reason from the row of the table that decided."""

    use: bool
    reason: str


NO_ARTIFACTS = "no_artifacts"
FORCED = "forced"
"""The request asked for a plan (`planning: always`)."""
NO_PLANNER = "no_planner"
NOTHING_TO_PLAN = "nothing_to_plan"
"""Not a reason of the table: a plan was called for, but could change nothing."""


class DecisionRow(NamedTuple):
    """One row of the table: its condition as text and as a function, and its result."""

    condition: str
    holds: Callable[[PlanningFacts, ContextSettings], bool]
    use: bool
    reason: str


DECISION_TABLE = (
    DecisionRow("no artifacts", lambda f, _: f.artifacts == 0, False, NO_ARTIFACTS),
    DecisionRow("`context.planning` is `never`", lambda f, _: f.planning == "never", False, "disabled"),
    DecisionRow("`context.planning` is `always`", lambda f, _: f.planning == "always", True, FORCED),
    DecisionRow(
        "no planner, or mode `simple`", lambda f, _: not f.has_planner or f.mode == "simple", False, NO_PLANNER
    ),
    DecisionRow("every artifact has a standing decision", lambda f, _: f.all_standing, False, "standing"),
    DecisionRow(
        "not recognised from request to request, and all fits",
        lambda f, _: f.unrecognised and not f.must_leave,
        False,
        "not_recognised",
    ),
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
    """Decides by the first row of the table that holds; a pure function."""
    return next(PlanningDecision(row.use, row.reason) for row in DECISION_TABLE if row.holds(facts, settings))


WITHOUT_A_PLANNER = frozenset(row.reason for row in takewhile(lambda row: row.reason != NO_PLANNER, DECISION_TABLE))
"""Reasons of the rows that come before the question whether there is a planner."""


def without_planner(made: PlanningDecision) -> PlanningDecision:
    """Returns the decision of the table where no planner may be asked: rows above that one stand."""
    return made if made.reason in WITHOUT_A_PLANNER else PlanningDecision(False, NO_PLANNER)


DEFAULT_INTERNAL = "gpt-4o-mini"
INPUT_PRICE = "input_cost_per_token"


@record
class ModelConfig:
    """The models of a request: `primary` answers, `context_planner` and `summarizer` are internal (guarantee §5).

    `chosen` are the internal models that the request or the operator named; the others are defaults, which count only
    if they are known to be served.
    """

    primary: str
    context_planner: str = DEFAULT_INTERNAL
    summarizer: str = DEFAULT_INTERNAL
    chosen: frozenset[str] = frozenset()

    @classmethod
    def from_request(cls, request: ChatRequest, settings: ContextSettings) -> Self:
        """Reads the models from the request's `context.models`, else from the settings (`CONTEXT_PLANNER_MODEL`,
        `SUMMARIZER_MODEL`), else `gpt-4o-mini`."""
        named = request.options.models
        planner = named.get("context_planner") or settings.planner_model
        summarizer = named.get("summarizer") or settings.summarizer_model
        return cls(
            request.model,
            planner or DEFAULT_INTERNAL,
            summarizer or DEFAULT_INTERNAL,
            frozenset(name for name in (planner, summarizer) if name),
        )

    def is_expensive_primary(self, prices: Mapping[str, Decimal], threshold: Decimal) -> bool:
        """Returns whether the primary model's input price (USD per token) is above the threshold; an unknown price
        counts as cheap (guarantee §5).
        `prices`: the primary model's, by LiteLLM's names."""
        price = prices.get(INPUT_PRICE)
        return price is not None and price > threshold


@record
class PlanEconomics:
    """What asking a planner would cost and could save. Money in USD, None if a price is unknown."""

    must_leave: bool
    """Something more has to leave the window, and a plan decides what. If a client is not recognised, that is so at
    each step, and only the first counts."""
    asked_this_turn: bool
    """An earlier step of the same turn has asked a planner."""
    can_last: bool
    """A decision made now can hold in later requests; not with `store: false`."""
    price: Decimal | None = None
    """Price of the planner's call."""
    saving: Decimal | None = None
    """The most that a plan could save, over all requests in which it is expected to stand."""
    resting: bool = False
    """The planner's last answers to this tenant were unusable."""

    @property
    def cannot_pay(self) -> bool:
        """Whether the price exceeds the possible saving; unknown prices do not count."""
        return self.price is not None and self.saving is not None and self.price > self.saving


class PlanObjection(NamedTuple):
    """One reason not to ask, as text and as a function. `also_forced`: it holds against `planning: always`, too."""

    condition: str
    holds: Callable[[PlanEconomics], bool]
    reason: str
    also_forced: bool = False


OBJECTIONS = (
    PlanObjection("this turn has asked already", lambda p: p.asked_this_turn, "asked_this_turn", also_forced=True),
    PlanObjection("nothing that is decided could stand", lambda p: not p.can_last, "nothing_stands"),
    PlanObjection("asking costs more than it could save", lambda p: p.cannot_pay, "cannot_pay"),
    PlanObjection("the planner's last answers were unusable", lambda p: p.resting, "planner_resting"),
)
"""They count only while nothing has to leave; the first that holds is the reason."""


def weighed(decision: PlanningDecision, prospects: PlanEconomics) -> PlanningDecision:
    """Returns the table's decision, or not to ask if an objection holds; the first is the reason. A pure function."""
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
    """Collects the facts of a request.
    `stored`: how many of the material's messages were forwarded with an earlier request; `budget`: in tokens; None if
    the window is unknown; `historical_turns`: how many turns back an artifact counts as historical."""
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
    """Returns whether there is anything to plan: artifacts, or old turns that have to leave. Quotes of old turns are an
    artifact, too, the only one of a plain chat; planning it would cost time in every turn of a long chat, so that it is
    done only with `planning: always`."""
    return bool(material.artifacts) or (options.planning == "always" and material.current > 0)


class _HistoricalTurns:
    """The turns before the current one in which an artifact counts as historical."""

    def __init__(self, material: WindowInputs, count: int) -> None:
        begins = tool_steps.turn_starts(message.role for message in material.messages[: material.current])
        self._none = not count
        self._first = begins[-count] if 0 < count <= len(begins) else 0
        self._since: datetime | None = material.messages[self._first].created_at if self._first else None
        begun = bool(material.messages) and material.messages[material.current].message_id is not None
        self._until: datetime | None = material.messages[material.current].created_at if begun else None

    def has(self, artifact: Artifact) -> bool:
        """Returns whether an artifact is from one of these turns; without a message, by the time when it came."""
        if self._none:
            return False
        if artifact.place.message is not None:
            return artifact.place.message >= self._first
        came = artifact.timestamp
        if came is None:
            return True
        is_current = self._until is not None and came >= self._until  # with the first step of the current turn
        return not is_current and (self._since is None or came >= self._since)


MAX_UNUSABLE = 3
"""Unusable answers in a row, after which a planner rests."""
REST_SECONDS = 600.0
MAX_NOTICED = 10_000
"""How many resting planners are counted at most."""
REMEMBERED_SECONDS = 86_400.0
"""How long unusable answers count towards the next rest."""


class PlannerCooldown:
    """Counts planners' latest unusable answers for each tenant, in the cache, so that replicas share them. If the cache
    is down, planners do not rest; nothing else is lost."""

    def __init__(self, cache: ports.CacheBackend, clock: ports.Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._resting: dict[str, float] = {}

    def __len__(self) -> int:
        """How many rest now, as far as this process knows: by planner and tenant."""
        now = self._clock.now().timestamp()
        self._resting = {key: until for key, until in self._resting.items() if until > now}
        return len(self._resting)

    async def is_resting(self, tenant: str, planner: str) -> bool:
        """Returns whether this planner's last answers to the tenant were unusable, the latest within minutes."""
        cooldown = await self._read(key := _key(tenant, planner))
        rests = cooldown.remaining(self._clock.now().timestamp()) > 0
        if rests and (key in self._resting or len(self) < MAX_NOTICED):
            self._resting[key] = cooldown.until
        return rests

    async def answered(self, tenant: str, planner: str, *, usable: bool) -> None:
        """Counts an answer. A usable one resets the count; after a rest, one more unusable answer begins the next."""
        cooldown, now = await self._read(key := _key(tenant, planner)), self._clock.now().timestamp()
        if not usable:
            cooldown.failed(now)
        elif cooldown.failures:
            cooldown.answered()
        else:
            return
        await self._cache.set(key, jsons.dumps({"unusable": cooldown.failures, "latest": now}), REMEMBERED_SECONDS)

    async def _read(self, key: str) -> Cooldown:
        """Reads the state from the cache; empty if the entry is invalid, such as an answer from the future."""
        cooldown, value = Cooldown(MAX_UNUSABLE, REST_SECONDS), await self._cache.get(key)
        with suppress(ValueError, TypeError, AttributeError, OverflowError):
            found = jsons.loads(value) if value is not None else {}
            cooldown.failures, latest = int(found.get("unusable", 0)), float(found.get("latest", 0))
            if cooldown.failures >= MAX_UNUSABLE and latest <= self._clock.now().timestamp() + REST_SECONDS:
                cooldown.until = latest + REST_SECONDS
        return cooldown


def _key(tenant: str, planner: str) -> str:
    return "planner_rest:" + ids.content_digest(f"{tenant}\0{planner}")


LOOP_SECONDS = 3600.0
"""How long a loop is remembered after its first step, or after its planner was asked."""
ASKED, ANSWERED = b"asked", b"answered"
Body = dict[str, Any]


class ToolLoops:
    """Keyed digests of first calls and how many messages their loops had, stored in the cache so that replicas share
    them; they contain no text of a client. If the cache is down, nothing else is lost.
    `secret`: reads the storage's secret; may raise StorageUnavailable."""

    def __init__(self, cache: ports.CacheBackend, secret: Callable[[], Awaitable[bytes]]) -> None:
        self._cache, self._secret = cache, secret

    async def seen_in(self, tenant: str, history: ConversationHistory, *, stored: bool) -> ConversationHistory:
        """Adds to the conversation what is known of its latest tool loop, if that loop is not stored.
        `stored`: the request leaves stored content. Content that is not stored is never recognised."""
        bodies = [message.body for message in history.messages]
        call, index, current = _latest_loop(bodies, history.stored if stored else 0)
        if call is None:
            return history
        found = await self._cache.get(key) if (key := await self._key(tenant, call)) is not None else None
        if found is None:
            return history
        state, _, more = found.partition(b" ")
        result, _, count = more.partition(b" ")
        if result and result != await self._result(bodies[index + 1 :], call):
            return history  # local servers and scripts repeat ids: that was another conversation's loop
        if count.isdigit() and len(bodies) - index <= int(count):
            return history  # asked again, not a later step
        return replace(history, unrecognised=stored, planned=state == ASKED and index >= current)

    async def note(self, tenant: str, messages: Sequence[Body], answers: Sequence[Body], *, asked: bool) -> None:
        """Records the loop of a turn when it begins, and when its planner was asked.
        `messages`: those of the request, the current turn last; `answers`: the answers to them; `asked`: a planner was
        asked for this request."""
        called = next((calls[0] for answer in answers if (calls := tool_steps.calls_of(answer))), None)
        if called is None and not asked:
            return
        call, index, current = _latest_loop(messages, 0)
        results, count = messages[index + 1 :], len(messages) - index
        if call is None or index < current:
            call, results, count = called, (), 1
        elif not asked:
            return
        if call is not None and (key := await self._key(tenant, call)) is not None:
            result = await self._result(results, call)
            value = b"%s %s %d" % (ASKED if asked else ANSWERED, result, count)
            await self._cache.set(key, value, LOOP_SECONDS)

    async def _result(self, results: Sequence[Body], call: Body) -> bytes:
        """Returns the digest of the call's result, or nothing if it has none yet."""
        answer = next((body for body in results if body.get("tool_call_id") == call.get("id")), None)
        return await self._digest(b"result\0", tool_steps.text_of(answer.get("content"))) if answer is not None else b""

    async def _digest(self, of: bytes, value: object) -> bytes:
        return hmac.digest(await self._secret(), of + jsons.canonical(value), "sha256").hex().encode()

    async def _key(self, tenant: str, call: Body) -> str | None:
        function = call.get("function") or {}
        arguments = function.get("arguments")
        try:  # clients may reformat them
            arguments = jsons.loads(arguments or "{}")
        except (jsons.JSONDecodeError, TypeError):
            pass
        who = [tenant, call.get("id"), function.get("name"), arguments, call.get("custom")]
        try:
            return "tool_loop:" + (await self._digest(b"loop\0", who)).decode()
        except errors.StorageUnavailable:
            return None


def _latest_loop(bodies: Sequence[Body], since: int) -> tuple[Body | None, int, int]:
    """Returns the first call of the latest turn with calls, the index of its message, and that at which the current
    turn begins. The call is None if its message is before `since`."""
    starts = [0, *tool_steps.turn_starts(map(itemgetter("role"), bodies))]
    end = len(bodies)
    for start in reversed(starts):
        if end <= since:
            break
        called = ((index, calls[0]) for index in range(start, end) if (calls := tool_steps.calls_of(bodies[index])))
        if (found := next(called, None)) is not None:
            return found[1] if found[0] >= since else None, found[0], starts[-1]
        end = start
    return None, 0, starts[-1]
