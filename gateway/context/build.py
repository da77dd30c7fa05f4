"""Makes a context from the gathered inputs: `measure`, `decide`, `fit_as_planned`. Nothing here waits for I/O.

`measure` counts all that may be forwarded. `decide` makes the window without a model's plan, and decides whether a plan
is called for. `fit_as_planned` follows a plan if there is one that is worth its price (guarantee §5, ADR 16).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import cache, partial
from typing import Any, ParamSpec, Self, TypeVar

from gateway.billing import cost, passes, prompt_cache
from gateway.context.artifacts.lossless_compaction import compact
from gateway.context.assembly.render import assemble, worded
from gateway.context.gather import ContextInputs, MissingInput, OnForwarded, collect
from gateway.context.planning.decision import FORCED, ModelConfig, PlanningDecision, facts_of, should_use_llm_planning
from gateway.context.whole_files import NativeFiles
from gateway.context.window.candidates import SegmentRoom, bounded
from gateway.context.window.counting import PromptCounter
from gateway.context.window.fit import count_full, fit
from gateway.context.window.fitting import (
    MIN_CACHED_TOKENS,
    FittingCallbacks,
    SelectionLimits,
    WindowFitter,
    no_results,
)
from gateway.core import errors, ports
from gateway.core.formats.anthropic import edits
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.tasks import offload_if
from gateway.core.types import bill, upstreams
from gateway.core.types.artifacts import Artifact, ArtifactType, ProcessingStrategy
from gateway.core.types.chat import ChatRequest
from gateway.core.types.conversation import ConversationHistory
from gateway.core.types.relevance import Relevance
from gateway.core.types.window import (
    ForwardedMessages,
    FullPrompt,
    PackedWindow,
    PlanToFollow,
    ShownPages,
    WindowInputs,
)
from gateway.retrieval import ContentIndexes, EmbeddingModel, PassageFinder, RequestMeaning

P = ParamSpec("P")
T = TypeVar("T")
SMALL_SHARE = 0.25
"""Share of the budget up to which PDFs stay when something has to leave, as long as no turn leaves for them."""
DEFAULT_LOW_WATER = 0.4
"""Share of the budget that a pass fills if neither a setting nor prices decide (ADR 12)."""
PLANNING_PURPOSES = ("planner", "summarizer")
SAVES_TOO_LITTLE = "plan_saves_too_little"
CHANGES_NOTHING = "plan_changes_nothing"
DOES_NOT_FIT = "plan_does_not_fit"
NOT_FOLLOWED = "plan_not_followed"
log = logs.get_logger("gateway.context")


class RequestRanking:
    """Ranks passages for one request, and runs the steps that rank."""

    def __init__(self, tenant: str, indexes: ContentIndexes | None, meaning: RequestMeaning | None) -> None:
        self._tenant, self._indexes, self.meaning = tenant, indexes, meaning

    def finder(self, material: WindowInputs) -> PassageFinder:
        """Returns a finder that ranks the material's passages by their words."""
        cached = material.recall_cache.indexes if material.earlier else None
        return PassageFinder(self._indexes, self._tenant, cached)

    def relevance(self, finder: PassageFinder) -> Relevance:
        """Returns the ranking by words, and also by meaning if an embedder is configured."""
        return finder if self.meaning is None else self.meaning.relevance(finder)

    async def run(self, small: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work(*args)`: as `RequestMeaning.run` if vectors may be requested; else in this thread if `small`, in
        another one if not."""
        if self.meaning is not None:
            return await self.meaning.run(work, *args, **kwargs)
        return await offload_if(not small, work, *args, **kwargs)


@record
class PassageRanking:
    """What ranks passages: cached indexes of contents, and an embedder if one is configured."""

    indexes: ContentIndexes | None = None
    meaning: EmbeddingModel | None = None

    def of(self, request: ChatRequest, scope: upstreams.CallScope) -> RequestRanking:
        """Returns the ranking for one request; in mode `simple` only with an unbilled embedder (guarantee §2)."""
        meaning = None
        if self.meaning is not None and not (request.options.mode == "simple" and self.meaning.is_billed):
            meaning = self.meaning.of(scope)
        return RequestRanking(request.caller.tenant, self.indexes, meaning)


@record
class MeasuredInputs:
    """What a context is made of, and its size before anything is left out.

    `unreduced` is what was forwarded before, unchanged, and everything new in full (guarantee §5: decisions are based
    on it). `without_room`: `unreduced` before results were cleared to make space.
    """

    inputs: ContextInputs
    material: WindowInputs
    counting: PromptCounter
    limits: SelectionLimits
    callbacks: FittingCallbacks
    finder: PassageFinder
    unreduced: FullPrompt
    without_room: FullPrompt | None = None

    def having(self, **changes: Any) -> Self:
        """Returns the inputs with these fields of the material changed, counted again."""
        material = replace(self.material, **changes)
        unreduced = count_full(self.fitter(material), _shares(self.inputs))
        return replace(self, material=material, unreduced=unreduced, without_room=None)

    def fitter(self, material: WindowInputs | None = None) -> WindowFitter:
        """Returns what fits a window of these inputs, or of other material."""
        return WindowFitter(material or self.material, self.limits, self.counting, self.callbacks)

    @property
    def known(self) -> int:
        """How many of the messages an earlier request forwarded."""
        return _known(self.inputs.history, self.material)

    @property
    def answers(self) -> int:
        """How many answers the conversation has had, tool calls included; one for each turn that was not read."""
        material = self.material
        return material.turns_before + sum(message.role == "assistant" for message in material.messages)


@record
class WindowProposal:
    """A window that fits, made by the heuristic, and whether a model's plan is called for."""

    measured: MeasuredInputs
    fitted: PackedWindow
    decision: PlanningDecision

    @property
    def lacks(self) -> MissingInput | None:
        """What has to be read after all, so that the window is made again."""
        inputs = self.measured.inputs
        if not self._may_stay(inputs.files.native):
            return MissingInput.PDF_TEXTS
        return MissingInput.OLDER_MESSAGES if self.fitted.new_pass and inputs.waiting else None

    def _may_stay(self, natives: Mapping[Any, dict[str, Any]]) -> bool:
        """Returns whether the PDFs stay unchanged: everything fits, or they are small and no turn leaves for them."""
        measured, fitted = self.measured, self.fitted
        usable, budget = measured.limits.usable, measured.limits.tokens
        if not natives or not fitted.new_pass or usable is None or budget is None:
            return True
        if measured.unreduced.tokens <= usable:
            return True
        selection, material = fitted.selection, measured.material
        if selection.first > material.frozen_first or selection.left_out - material.left:
            return False
        return measured.counting.message({"role": "user", "content": list(natives.values())}) <= SMALL_SHARE * budget


@record
class FinalFit:
    """What will be forwarded. `follows_plan`: by the plan; else `fallback_reason` gives the reason, if a plan was
    called for. A plan that is followed may have a reason, too: why a summary is missing."""

    fitted: PackedWindow
    follows_plan: bool = False
    fallback_reason: str | None = None
    comparison: bill.PlanComparison | None = None
    economy: bill.EconomyNote | None = None
    """The result of economising, if there is anything to economise."""


OnProposal = Callable[[WindowProposal, NativeFiles, RequestRanking], Awaitable[tuple[ShownPages, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextHooks:
    """Points where a feature acts on the making of a context (ADR 35); a hook that is not set does nothing. The hooks
    of a whole request are in `pipeline/stages.py`.

    Attributes:
        on_forwarded: gets the conversation as it was forwarded before, and the request's PDFs; returns it changed.
        on_proposal: gets the context without a plan; returns pages of PDFs to show beside its block.
        on_step: wraps the steps `plan` and `fit`; a trace has a span there.
    """

    on_forwarded: OnForwarded | None = None
    on_proposal: OnProposal | None = None
    on_step: ports.Spans = nullcontext


NO_HOOKS = ContextHooks()


def measure(inputs: ContextInputs, counter: ports.TokenCounter, ranking: RequestRanking) -> MeasuredInputs:
    """Collects and counts everything that may be forwarded."""
    request, tokens, history, settings = inputs.request, inputs.budget.tokens, inputs.history, inputs.settings
    material = collect(inputs)
    finder = ranking.finder(material)
    is_weighed = prices_decide(inputs) and economic_rates(inputs, material, 0) is not None
    kept = _kept(request, inputs.history.costs) if is_weighed else no_results
    callbacks = FittingCallbacks(assemble, ranking.relevance(finder), compact, worded, kept)
    counting = PromptCounter(counter, request.forward, material, history.cache)
    estimated = counter.margin != 1.0
    window = inputs.budget.context_window
    is_roomy = tokens is not None and (window is None or 2 * tokens >= window)
    is_economic = is_roomy and is_weighed
    limits = SelectionLimits(
        tokens, settings.history_share, estimated=estimated, budget=inputs.budget, is_economic=is_economic
    )
    if material.segments or inputs.budget.turns is not None:
        shown = SegmentRoom(material, counting).shown(limits.usable) if material.segments else 0
        material = bounded(material, inputs.budget.turns, shown)
    # What the client clears after the window is made takes its references with it (guarantee §4 I8).
    material = material.in_full(material.references.keys() if clears_exactly(request) else material.dangling)
    is_known = history.goes_on or _known(history, material) > 0
    if tokens is not None and (history.stored or history.unread or (is_weighed and is_known)):
        # At first nothing is cached yet, and the conversation may not go on: then all of the budget is filled.
        fresh = cache(partial(_tokens_of_fresh, material, counting, tokens))
        share = DEFAULT_LOW_WATER if settings.low_water is None else settings.low_water
        low_water = MIN_CACHED_TOKENS if is_weighed else int(share * tokens)  # deeper is always cheaper
        keeps = is_weighed and passes.may_keep_more(history.costs)
        limits = replace(limits, low_water=low_water, count_fresh=fresh, may_keep_more=keeps)
    unreduced = count_full(WindowFitter(material, limits, counting, callbacks), _shares(inputs))
    return MeasuredInputs(inputs, material, counting, limits, callbacks, finder, unreduced)


def _tokens_of_fresh(material: WindowInputs, counting: PromptCounter, budget: int) -> int:
    """Counts content that the model has not seen yet, if it may fit: an estimate that is too low by a percent would cut
    its last lines."""
    texts = [each.content for each in material.fresh]
    estimate = counting.texts(texts)
    return estimate if estimate > budget else sum(map(counting.text, texts))


def clears_exactly(request: ChatRequest) -> bool:
    """Returns whether the client names the tool uses to clear, after the window is made and whatever it holds."""
    native = request.native
    return native is not None and native.protocol == "anthropic" and edits.has_exact_edits(native.fields)


def _kept(request: ChatRequest, costs: bill.BranchCosts | None) -> Callable[[WindowInputs], Sequence[Artifact]]:
    """Returns a function that finds the results a pass keeps whole. A fault costs these, never the answer."""

    def found(material: WindowInputs) -> Sequence[Artifact]:
        try:
            return passes.kept_in_pass(material, costs)
        except Exception as fault:  # noqa: BLE001 - the pass goes on without them
            log.fault("economy_failed", fault, step="kept_results", request_id=request.request_id)
            return ()

    return found


def prices_decide(inputs: ContextInputs) -> bool:
    """Returns whether known prices decide how deep a necessary pass is, instead of a constant (guarantee §4 I7)."""
    economy = inputs.request.options.economy
    return economy == bill.AUTO or (economy == bill.OBSERVE and inputs.settings.low_water is None)


def prompt_cache_lifetime(inputs: ContextInputs, material: WindowInputs) -> timedelta:
    """Returns how long the provider's cache holds this prompt at most, as marks in its conversation want it."""
    said = (message.body for message in material.messages)
    return prompt_cache.cache_lifetime(inputs.request, inputs.facts.prices, said)


def economic_rates(inputs: ContextInputs, material: WindowInputs, prompt_tokens: int) -> prompt_cache.CacheRates | None:
    """Returns the rates by which economy weighs passes over a prompt of so many tokens; None if it has nothing to do:
    it is switched off, no result can leave, or cached input has no known price."""
    request, of_tools = inputs.request, ArtifactType.TOOL_RESULT
    if request.options.economy == bill.OFF or request.options.mode == "off" or request.is_worded:
        return None
    if not any(each.artifact_type is of_tools for each in material.placed):
        return None
    prices, tier = inputs.facts.prices, request.forward.get("service_tier")
    is_bought = prices_decide(inputs) and prompt_cache.WRITE_HOUR in prices
    for_an_hour = is_bought and prompt_cache_lifetime(inputs, material) == prompt_cache.FOR_AN_HOUR
    return prompt_cache.cache_rates(prices, prompt_tokens, for_an_hour=for_an_hour, service_tier=tier)


def _known(history: ConversationHistory, material: WindowInputs) -> int:
    """Returns how many messages an earlier request forwarded: the stored ones; if none is stored, all up to the last
    answer of a branch whose costs are known."""
    if history.stored or history.costs is None:
        return history.stored
    messages = material.messages
    return next((at + 1 for at in range(len(messages) - 2, -1, -1) if messages[at].role == "assistant"), 0)


def _shares(inputs: ContextInputs) -> Sequence[float]:
    """Returns the shares of the budget on which decisions depend."""
    return inputs.settings.fits_share, inputs.settings.near_limit_share


def decide(measured: MeasuredInputs) -> WindowProposal:
    """Fits the measured inputs without a plan, and decides whether a plan is called for. Memories leave first: nothing
    else is reduced and no request is refused for them (guarantee §11.14).
    Raises ContextLengthExceeded: the context cannot be made to fit, whatever the plan (guarantee §4 I1)."""
    if not measured.material.things:
        return _proposed(measured)
    bare = measured.having(things=())
    if measured.unreduced.new_pass and not bare.unreduced.new_pass:
        return _proposed(bare)
    proposal = _proposed(measured)
    if not proposal.fitted.new_pass or bare.unreduced.new_pass:
        return proposal
    without = _proposed(bare)
    return proposal if without.fitted.new_pass else without


def beside_pages(proposal: WindowProposal, pages: tuple[ShownPages, ...]) -> WindowProposal:
    """Adds PDF pages beside the current message's block; returns the window unchanged if more would leave for them."""
    try:
        fuller = decide(proposal.measured.having(pages=pages))
    except errors.ContextLengthExceeded:
        return proposal
    new, old = fuller.fitted, proposal.fitted
    drops_turns = new.selection.first > old.selection.first or new.selection.left_out - old.selection.left_out
    return proposal if (new.new_pass and not old.new_pass) or drops_turns else fuller


def _proposed(measured: MeasuredInputs) -> WindowProposal:
    unreduced = measured.unreduced
    fitted = fit(measured.fitter(), unreduced)
    if fitted.new_pass and not unreduced.new_pass:  # space for what the question needs: no old decision holds
        measured = replace(measured, unreduced=replace(unreduced, new_pass=True))
    return WindowProposal(measured, fitted, _decision(measured))


def _decision(measured: MeasuredInputs) -> PlanningDecision:
    """Decides whether a plan is called for if there is a planner, with the reason (guarantee §5)."""
    inputs, settings = measured.inputs, measured.inputs.settings
    models = ModelConfig.from_request(inputs.request, settings)
    facts = facts_of(
        inputs.request.options,
        measured.material,
        measured.unreduced,
        stored=inputs.history.forwarded,
        budget=inputs.budget.tokens,
        historical_turns=settings.historical_turns,
        has_planner=True,
        expensive_primary=models.is_expensive_primary(inputs.facts.prices, settings.expensive_input_cost_per_token),
        unrecognised=inputs.history.unrecognised,
    )
    return should_use_llm_planning(facts, settings)


def fit_as_planned(
    proposal: WindowProposal, planned: PlanToFollow | None, reason: str | None, spent: Sequence[bill.InternalCall]
) -> FinalFit:
    """Fits the window by the plan; returns it as proposed if there is no plan, or it is faulty or not worth its price.
    `reason`: why there is no plan, or why a summary is missing in it; `spent`: the calls of internal models that this
    request has made."""
    if planned is None:
        return FinalFit(proposal.fitted, fallback_reason=reason)
    try:
        return _followed(proposal, planned, reason, spent)
    except errors.ContextLengthExceeded:
        return FinalFit(proposal.fitted, fallback_reason=DOES_NOT_FIT)
    except Exception as fault:  # noqa: BLE001 - a faulty plan costs quality, never the answer: the proposal stands
        log.fault("plan_not_followed", fault, request_id=proposal.measured.inputs.request.request_id)
        return FinalFit(proposal.fitted, fallback_reason=NOT_FOLLOWED)


def _followed(
    proposal: WindowProposal, planned: PlanToFollow, reason: str | None, spent: Sequence[bill.InternalCall]
) -> FinalFit:
    measured = proposal.measured
    fitted = fit(replace(measured.fitter(), planned=planned), measured.unreduced)
    compared = _comparison(proposal, fitted, spent)
    refusal = _why_not(proposal, fitted, planned, compared)
    if refusal is None:
        return FinalFit(fitted, follows_plan=True, fallback_reason=reason, comparison=compared)
    if refusal == CHANGES_NOTHING:  # the same messages; its records name what a guard kept
        return FinalFit(fitted, fallback_reason=reason or refusal, comparison=compared)
    return FinalFit(proposal.fitted, fallback_reason=refusal, comparison=compared)


def _why_not(
    proposal: WindowProposal, fitted: PackedWindow, planned: PlanToFollow, compared: bill.PlanComparison
) -> str | None:
    """Returns why a plan is not used; None if it is. If something has to leave, the plan decides what, at any price."""
    if proposal.fitted.new_pass:
        return None
    if fitted.forwarded.messages == proposal.fitted.forwarded.messages:
        wants_less = any(d.strategy is not ProcessingStrategy.INCLUDE_FULL for d in planned.plan.artifacts)
        return CHANGES_NOTHING if wants_less else None
    return None if proposal.decision.reason == FORCED or compared.pays is not False else SAVES_TOO_LITTLE


def _comparison(
    proposal: WindowProposal, fitted: PackedWindow, spent: Sequence[bill.InternalCall]
) -> bill.PlanComparison:
    """Compares the proposal with a context fitted by a plan, over all requests that will forward it."""
    costs = [cost.price_internal(call).total for call in spent if call.purpose in PLANNING_PURPOSES]
    known = [cost for cost in costs if cost is not None]
    measured = proposal.measured
    return cost.compare(
        measured.inputs.facts.prices,
        candidate_tokens=proposal.fitted.tokens,
        saved_tokens=_spared_tokens(proposal, fitted),
        invalidated_tokens=sum(map(measured.counting.message, _frozen_prefix(measured, fitted)[1])),
        requests=cost.expected_requests(measured.answers),
        planning_cost=sum(known, Decimal(0)) if len(known) == len(costs) else None,
    )


def left_out(measured: MeasuredInputs, final: FinalFit) -> bill.LeftOutTokens | None:
    """Returns the tokens that a request saves; None if no plan and no pass left anything out of this conversation.

    Each frame records how much was left out up to it, so that only the change by this request is counted: beside a
    frozen window, what a plan takes from new artifacts, and what a question recalls. A pass decides everything again,
    so the whole is counted again, by samples if it is long. More than the model's window could never have been sent.
    """
    fitted, note = final.fitted, final.economy
    passed = note.passed if note is not None else None
    before = _left_before(measured)
    if not (before or fitted.new_pass or final.follows_plan or passed or (note is not None and note.shaped)):
        return None
    counting, whole, sent = measured.counting, measured.unreduced.forwarded, fitted.forwarded
    same, changed = _frozen_prefix(measured, fitted)
    kept = len(same) if changed else 0
    unchanged, known = counting.nearly(ForwardedMessages(same, [])), measured.known
    window = measured.inputs.facts.max_input_tokens or measured.inputs.budget.context_window
    latest = 0
    if measured.inputs.history.costs is None:
        answers = (at for at, message in enumerate(measured.material.messages) if message.role == "assistant")
        after = known or 1 + max(answers, default=-1)
        latest = counting.nearly(_since(whole, after)) if after else 0
    if not fitted.new_pass:
        change = difference(counting, whole, sent)
        tokens = before + change if window is None else min(before + change, window - fitted.tokens)
        fresh, frame = 0 if passed == bill.PAID else max(0, change), measured.material.frame
        if tokens < before + change:  # the window's end
            return bill.LeftOutTokens(tokens, fresh, unchanged, kept, latest)
        if passed:
            return bill.LeftOutTokens(tokens, fresh, unchanged, kept, latest, gained=_gained(measured))
        goes_on = frame is not None and not frame.borrowed and before > 0 and _follows_answer(measured)
        return bill.LeftOutTokens(tokens, fresh, unchanged, kept, latest, change if goes_on else None)
    everything = before + max(counting.nearly(whole), measured.unreduced.tokens)  # `whole` lacks huge texts
    tokens = (everything if window is None else min(everything, window)) - counting.total(sent)
    gained = _gained(measured) if window is None or everything <= window else None
    fresh = counting.nearly(_since(whole, known)) - counting.nearly(_since(sent, known))
    return bill.LeftOutTokens(tokens, min(max(0, fresh), max(0, tokens)), unchanged, kept, latest, gained=gained)


def _gained(measured: MeasuredInputs) -> int | None:
    """Returns the tokens of the latest answer that an earlier request led to, and of all that follows it; None if there
    is none."""
    if not _follows_answer(measured):
        return None
    new, counting = _since(measured.unreduced.forwarded, measured.known - 1), measured.counting
    return counting.nearly(new) - counting.nearly(ForwardedMessages([], []))


def _follows_answer(measured: MeasuredInputs) -> bool:
    """Returns whether what is known of the conversation ends with an answer. Where a client sends a request again, the
    branch's costs are of an earlier one than its frame."""
    if measured.inputs.history.has_earlier_costs:
        return False
    return measured.known > 0 and measured.material.messages[measured.known - 1].role == "assistant"


def _left_before(measured: MeasuredInputs) -> int:
    """Returns the tokens that earlier requests left out. Where the client has gone back, the frame's figure is of the
    branch that it left, so that what both share is counted."""
    material, frame = measured.material, measured.material.frame
    if frame is None or not frame.borrowed or measured.inputs.history.unread:
        return frame.left_out_tokens if frame is not None else 0
    known, sent = measured.known, measured.unreduced.forwarded
    shown = [message for index, message in zip(sent.indexes, sent.messages, strict=True) if 0 <= index < known]
    whole = [message.body for message in material.messages[:known]]
    one, other = (measured.counting.nearly(ForwardedMessages(each, [])) for each in (whole, shown))
    return one - other


def _spared_tokens(proposal: WindowProposal, fitted: PackedWindow) -> int:
    """Returns the tokens that a plan leaves out beyond those that the heuristic leaves out."""
    one, other = proposal.fitted.forwarded, fitted.forwarded
    if one.indexes == other.indexes:  # the rest of the messages is the same, and may only be estimated
        return difference(proposal.measured.counting, one, other)
    return proposal.fitted.tokens - fitted.tokens


def _frozen_prefix(measured: MeasuredInputs, fitted: PackedWindow) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the messages that an earlier request forwarded, so that a provider may have cached them: those with which
    this request begins, too, and the others."""
    before, known = measured.unreduced.forwarded, measured.known
    if not any(0 <= index < known for index in before.indexes):
        return [], []  # nothing but system messages was there before
    old = [message for index, message in zip(before.indexes, before.messages, strict=True) if index < known]
    same = 0
    for one, other in zip(old, fitted.forwarded.messages, strict=False):
        if one is not other and one != other:
            break
        same += 1
    return old[:same], old[same:]


def difference(counting: PromptCounter, whole: ForwardedMessages, sent: ForwardedMessages) -> int:
    """Returns the tokens by which the messages of `whole` are longer than the same messages of `sent`."""
    pairs = zip(whole.messages, sent.messages, strict=True)
    differing = [(one, other) for one, other in pairs if one is not other and one != other]
    return sum(counting.message(one) - counting.message(other) for one, other in differing)


def _since(forwarded: ForwardedMessages, stored: int) -> ForwardedMessages:
    """Returns the messages that no earlier request forwarded."""
    new = [message for i, message in zip(forwarded.indexes, forwarded.messages, strict=True) if i >= stored]
    return ForwardedMessages(new, [])
