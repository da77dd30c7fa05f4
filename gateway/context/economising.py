"""Makes the pass that pays, where one does: old tool results become labels, and all else stays (guarantee §4 I7)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gateway.context.build import FinalFit, MeasuredInputs, Proposal
from gateway.economy.kept import ToolUse, kept_results
from gateway.economy.passes import CarriedResult, cleared_when_cold, cleared_when_paid, may_pay
from gateway.economy.rates import LIFETIME, cache_lifetime, cache_rates
from gateway.models.artifacts import Artifact, ArtifactType, ProcessingStrategy
from gateway.models.conversation import History
from gateway.models.economy import AUTO, COLD, OFF, PAID, EconomyNote, PassKind
from gateway.models.exchange import ChatRequest
from gateway.models.items import SIGNED
from gateway.models.tool_steps import calls_of, text_of
from gateway.models.window import Rendering
from gateway.telemetry.logs import get_logger
from gateway.window.fitting import Fitting

MESSAGE_TOKENS = 4
log = get_logger("gateway.context.economy")


def economised(proposal: Proposal, final: FinalFit) -> tuple[Proposal, FinalFit]:
    """The context with the pass that pays, where `context.economy` is `auto`; with `observe` as it is, and with a note
    of what a pass would have cleared. A fault in it costs the saving, never the answer."""
    request = proposal.measured.inputs.request
    if request.options.economy == OFF or request.options.mode == "off":
        return proposal, final
    try:
        measured, final = _economised(proposal.measured, final)
    except Exception as fault:  # noqa: BLE001 - the window without it stands
        log.fault("economy_failed", fault, request_id=request.request_id)
        return proposal, final
    return (proposal if measured is proposal.measured else replace(proposal, measured=measured)), final


def _economised(measured: MeasuredInputs, final: FinalFit) -> tuple[MeasuredInputs, FinalFit]:
    source = measured.inputs
    request, history, mode = source.request, source.history, source.request.options.economy
    uses = _tool_uses(measured)
    if not uses or cache_rates(source.facts.prices, final.fitted.tokens) is None:
        return measured, final
    is_cold = _is_cold(request, history, measured)
    clearable = history.costs.clearable if history.costs is not None else 0
    note = EconomyNote(mode, is_cold, clearable=clearable if mode != AUTO else 0)
    if final.fitted.new_pass or _may_not_change(measured):
        return measured, replace(final, economy=note)
    if mode != AUTO:
        if is_cold:
            found = _cold(measured, final, uses, [])
            note = replace(note, clearable=sum(each.spared for each in found))
        return measured, replace(final, economy=note)
    sizes = _sizes(measured, final)
    kind: PassKind = COLD if is_cold else PAID
    chosen = _cold(measured, final, uses, sizes) if is_cold else _paid(measured, final, uses, sizes)
    if not chosen:
        return measured, replace(final, economy=note)
    changed, made = _cleared(measured, final, {final.fitted.forwarded.indexes[each.index] for each in chosen})
    spared = final.fitted.tokens - made.fitted.tokens
    if spared <= 0:
        return measured, replace(final, economy=note)
    return changed, replace(made, economy=replace(note, passed=kind, cleared=spared))


def _is_cold(request: ChatRequest, history: History, measured: MeasuredInputs) -> bool:
    """Whether nothing of the prompt can be in the provider's cache any more."""
    if history.used_at is None:
        return False
    idle = request.arrived_at - history.used_at
    return idle > LIFETIME and idle > cache_lifetime(request, measured.inputs.facts.prices)


def _may_not_change(measured: MeasuredInputs) -> bool:
    """Whether the current turn has signed thoughts, which would leave with what stands before them (guarantee §10.10);
    or whether its client wants nothing left out."""
    material = measured.material
    now = material.messages[material.current :]
    return measured.inputs.request.options.whole or any(message.body.get(SIGNED) for message in now)


def _tool_uses(measured: MeasuredInputs) -> list[ToolUse]:
    """All results of the conversation, oldest first, with the answers since each."""
    material = measured.material
    results = [a for a in material.placed if a.artifact_type is ArtifactType.TOOL_RESULT]
    if not results:
        return []
    since, answers = [0] * len(material.messages), 0
    for index in range(len(material.messages) - 1, -1, -1):
        since[index] = answers
        answers += material.messages[index].role == "assistant"
    found = [(a.place.message or 0, a) for a in results]
    return [ToolUse(i, a.title or "", a.arguments, a.size_chars, since[i]) for i, a in sorted(found, key=_first)]


def _first(pair: tuple[int, Artifact]) -> int:
    return pair[0]


def _carried(
    measured: MeasuredInputs, final: FinalFit, uses: Sequence[ToolUse], sizes: Sequence[int]
) -> list[CarriedResult]:
    """The results that stand in full in the window as they came, or compacted, and may leave; by their places in the
    prompt."""
    material, selection = measured.material, final.fitted.selection
    at = {index: number for number, index in enumerate(final.fitted.forwarded.indexes) if index >= 0}
    sizes = sizes or _sizes(measured, final)
    ages = {use.index: use.age for use in uses}
    found = []
    for artifact in material.placed:
        index = artifact.place.message
        if artifact.artifact_type is not ArtifactType.TOOL_RESULT or index is None or index not in at:
            continue
        if artifact.pinned or artifact.documents or artifact.artifact_id in selection.renderings:
            continue
        if not material.stands_reduced(artifact):
            found.append(CarriedResult(at[index], sizes[at[index]], ages[index]))
    return found


def _cold(
    measured: MeasuredInputs, final: FinalFit, uses: Sequence[ToolUse], sizes: Sequence[int]
) -> list[CarriedResult]:
    found = cleared_when_cold(_carried(measured, final, uses, sizes))
    return cleared_when_cold(_without_kept(final, found, uses)) if found else []


def _paid(
    measured: MeasuredInputs, final: FinalFit, uses: Sequence[ToolUse], sizes: Sequence[int]
) -> list[CarriedResult]:
    source = measured.inputs
    rates, costs = cache_rates(source.facts.prices, final.fitted.tokens), source.history.costs
    carried = _carried(measured, final, uses, sizes)
    if rates is None or costs is None or not may_pay(carried):
        return []
    known = sum(index < source.history.stored for index in final.fitted.forwarded.indexes)
    figures = (sizes, known, rates, measured.answers, costs)
    if not cleared_when_paid(carried, *figures):  # whatever must stay, it would not pay
        return []
    return cleared_when_paid(_without_kept(final, carried, uses), *figures)


def _without_kept(final: FinalFit, found: Sequence[CarriedResult], uses: Sequence[ToolUse]) -> list[CarriedResult]:
    kept = kept_results(uses)
    return [each for each in found if final.fitted.forwarded.indexes[each.index] not in kept]


def _sizes(measured: MeasuredInputs, final: FinalFit) -> list[int]:
    """About the tokens of each message of the prompt, by its share of the characters of all: counting them would cost
    more than the exact figures are worth."""
    chars = [_chars(message) for message in final.fitted.forwarded.messages]
    whole = max(1, final.fitted.tokens - final.fitted.breakdown.get("tools", 0))
    each = max(0.0, whole - MESSAGE_TOKENS * len(chars)) / max(1, sum(chars))
    return [MESSAGE_TOKENS + round(each * count) for count in chars]


def _chars(message: dict[str, Any]) -> int:
    content = message.get("content")
    said = len(content) if isinstance(content, str) else len(text_of(content))
    return said + sum(len(str((call.get("function") or {}).get("arguments") or "")) for call in calls_of(message))


def _cleared(measured: MeasuredInputs, final: FinalFit, indexes: set[int]) -> tuple[MeasuredInputs, FinalFit]:
    """The same window with these results as labels. What an earlier request forwarded in another form has to be worded
    anew, so that form is taken off."""
    messages = tuple(
        replace(message, rendered=None) if index in indexes and message.rendered is not None else message
        for index, message in enumerate(measured.material.messages)
    )
    material = replace(measured.material, messages=messages)
    fitting, fitted = Fitting(material, measured.limits, measured.counting, measured.tools), final.fitted
    gone = {
        artifact.artifact_id: Rendering(artifact, ProcessingStrategy.EXCLUDE)
        for artifact in material.placed
        if artifact.place.message in indexes and artifact.artifact_type is ArtifactType.TOOL_RESULT
    }
    selection = replace(fitted.selection, renderings=fitted.selection.renderings | gone)
    made = fitting.fitted(selection, exact=fitted.exact)
    made = replace(made, new_pass=fitted.new_pass, moved=fitted.moved, guarded=fitted.guarded)
    return replace(measured, material=material), replace(final, fitted=made)
