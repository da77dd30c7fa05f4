"""Economises a window: a pass, if one pays, replaces old tool results by labels and leaves all else (guarantee §4 I7);
and new results get shorter forms, once, before a model is first sent them (I8)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import accumulate
from typing import Any

from gateway.billing import passes, prompt_cache
from gateway.context.artifacts.lossless_compaction import compact
from gateway.context.artifacts.shaping import ShapedText, StandingText, of_failed_run, shaped
from gateway.context.assembly.render import NO_MARKS, as_data, beginning, one_line
from gateway.context.build import (
    FinalFit,
    MeasuredInputs,
    WindowProposal,
    clears_exactly,
    difference,
    economic_rates,
    prices_decide,
    prompt_cache_lifetime,
)
from gateway.context.window import tuning
from gateway.context.window.candidates import candidates, current_steps
from gateway.context.window.fit import counted, fit, fits_compacted
from gateway.core.instrumentation import logs
from gateway.core.types import bill, items, tool_steps, upstreams, window
from gateway.core.types.artifacts import Artifact, ArtifactType, ProcessingStrategy
from gateway.core.types.short_inputs import with_short_inputs
from gateway.core.types.window import ArtifactRendering, PackedWindow, WindowInputs, WindowSelection

ARGUMENT_CHARS = 80
"""Characters of a call's arguments by which a reference names its result."""
STANDING_CHARS = 4_000_000
"""Characters of the latest results that a new one may refer to."""
READ_TOOL_NAME = re.compile(r"read|view|open|file", re.IGNORECASE)
"""Names of tools that return a file as it is."""
RUNS = re.compile(r"cat|search|grep|edit|write|patch|shell|bash|exec|command|terminal", re.IGNORECASE)
"""Names of other tools whose results may hold a file."""
log = logs.get_logger("gateway.context.economising")


def with_room(measured: MeasuredInputs) -> MeasuredInputs:
    """Clears results near the end of a window that has no space left, if that is cheaper than a new pass. A fault here
    costs the saving, never the answer."""
    try:
        return _with_room(measured)
    except Exception as fault:  # noqa: BLE001 - a new pass decides everything
        log.fault("economy_failed", fault, step="room", request_id=measured.inputs.request.request_id)
        return measured


def _with_room(measured: MeasuredInputs) -> MeasuredInputs:
    full, limits, material = measured.unreduced, measured.limits, measured.material
    costs, usable = measured.inputs.history.costs, limits.usable
    rates = economic_rates(measured.inputs, material, full.tokens)
    if rates is None or costs is None or usable is None or not prices_decide(measured.inputs):
        return measured
    if material.has_memory_due or material.moves or _is_cold(measured) or _may_not_change(measured):
        return measured
    if any(message.shown_in_full for message in material.messages[: material.current]):
        return measured  # old blocks leave before anything is reduced (guarantee §4 I5)
    if material.things:  # nothing else leaves for memories (guarantee §11.14)
        bare = measured.having(things=())
        roomier = _with_room(bare) if bare.unreduced.new_pass else None
        if roomier is None:
            return bare
        return measured if roomier is bare else roomier
    fitting = measured.fitter()
    prompt = _PromptFigures(measured, fitting.fitted(full.selection, full.forwarded))
    for read_within in (passes.READ_WITHIN_PASS, 0):
        chosen = prompt.cleared_for_room(usable, rates, costs, read_within)
        gone = prompt.with_references(chosen, passes.ROOM_AGE, read_within)
        if not gone:
            continue
        without, selection = _without(material, full.selection, gone)
        made = counted(measured.fitter(without), selection)
        if not (made.new_pass or fits_compacted(fitting, full.selection)):
            return replace(measured, material=without, unreduced=made, without_room=full)
    return measured


def economised(proposal: WindowProposal, final: FinalFit) -> tuple[WindowProposal, FinalFit]:
    """Applies the pass that pays if `context.economy` is `auto`; with `observe` the context stays, with a note of what
    a pass would have cleared. A fault here costs the saving, never the answer."""
    try:
        measured, made = _economised(_as_fitted(proposal.measured, final.fitted), final)
        final = shaped_on_arrival(measured, made)
    except Exception as fault:  # noqa: BLE001 - the window stays as it was
        log.fault("economy_failed", fault, step="pass", request_id=proposal.measured.inputs.request.request_id)
        return proposal, final
    return (proposal if measured is proposal.measured else replace(proposal, measured=measured)), final


def _economised(measured: MeasuredInputs, final: FinalFit) -> tuple[MeasuredInputs, FinalFit]:
    inputs, costs = measured.inputs, measured.inputs.history.costs
    rates = economic_rates(inputs, measured.material, final.fitted.tokens)
    if rates is None:
        return measured, final
    is_cold, is_made = _is_cold(measured), inputs.request.options.economy == bill.AUTO
    has_pass = final.fitted.new_pass or measured.without_room is not None
    clearable = costs.clearable if costs is not None and not (is_made or has_pass) else 0
    note = bill.EconomyNote(inputs.request.options.economy, is_cold, clearable=clearable)
    if (before := measured.without_room) is not None:
        measured = replace(measured, unreduced=before, without_room=None)
        if not final.fitted.new_pass:
            cleared = difference(measured.counting, before.forwarded, final.fitted.forwarded)
            note = replace(note, passed=bill.PAID, cleared=cleared)
        return measured, replace(final, economy=note)
    as_it_is = measured, replace(final, economy=note)
    may_buy = is_made and costs is not None and passes.credit(costs) > 0
    if not (is_cold or may_buy) or final.fitted.new_pass or _may_not_change(measured):
        return as_it_is
    prompt = _PromptFigures(measured, final.fitted)
    if not is_made:
        spared = sum(each.spared for each in prompt.cleared_when_cold())
        return measured, replace(final, economy=replace(note, clearable=spared))
    kind: bill.PassKind = bill.COLD if is_cold else bill.PAID
    age, read_within = (passes.COLD_AGE, passes.READ_WITHIN_COLD) if is_cold else (passes.PAID_AGE, passes.READ_WITHIN)
    chosen = prompt.cleared_when_cold() if is_cold or costs is None else prompt.cleared_when_paid(rates, costs)
    if not (is_cold or costs is None or final.follows_plan):
        new_window = _new_pass_if_it_pays(measured, prompt, rates, costs, chosen)
        if new_window is not None:
            note = replace(note, passed=kind, cleared=final.fitted.tokens - new_window.tokens)
            return _as_fitted(measured, new_window), replace(final, fitted=new_window, economy=note)
    gone = prompt.with_references(chosen, age, read_within)
    if not gone:
        return as_it_is
    changed, fitted = _cleared(measured, final, gone)
    spared = final.fitted.tokens - fitted.tokens
    if spared <= 0:
        return as_it_is
    return changed, replace(final, fitted=fitted, economy=replace(note, passed=kind, cleared=spared))


def _new_pass_if_it_pays(
    measured: MeasuredInputs,
    prompt: "_PromptFigures",
    rates: prompt_cache.CacheRates,
    costs: bill.BranchCosts,
    chosen: Sequence[passes.CarriedResult],
) -> PackedWindow | None:
    """Returns the window of a new pass, as if it were full, if that gains more than clearing `chosen`; else None. Only
    for branches from which something has left for space before: otherwise only results and inputs leave a window
    (guarantee §4 I7)."""
    material, limits = measured.material, measured.limits
    has_left = material.frame is not None and (material.frozen_first > 0 or bool(material.left))
    if not has_left or limits.low_water is None:
        return None
    least = prompt.gain_of(chosen, rates)
    if prompt.gain_of_new_pass(prompt.tokens_after_new_pass, rates, costs) <= least:
        return None
    full = replace(measured.unreduced, new_pass=True)
    made = fit(measured.fitter(), full)
    return made if prompt.gain_of_new_pass(made.tokens, rates, costs) > least else None


def _as_fitted(measured: MeasuredInputs, fitted: PackedWindow) -> MeasuredInputs:
    """Returns the material of the window: a pass for space removes the shorter forms (guarantee §4 I8)."""
    shaped = measured.material.shaped if fitted.new_pass else None
    return replace(measured, material=measured.material.in_full(shaped)) if shaped else measured


def _is_cold(measured: MeasuredInputs) -> bool:
    """Returns whether the provider's cache of this prompt has expired: the conversation was idle for longer than the
    lifetime that this request and the previous one asked for."""
    inputs, history = measured.inputs, measured.inputs.history
    if history.used_at is None:
        return False
    idle = inputs.request.arrived_at - history.used_at
    if idle <= prompt_cache.LIFETIME:
        return False
    sent = history.costs.sent if history.costs is not None else None
    if sent is not None and idle <= timedelta(seconds=sent.lifetime):
        return False
    return idle > prompt_cache_lifetime(inputs, measured.material)


def _may_not_change(measured: MeasuredInputs) -> bool:
    """Returns whether the current turn has signed thoughts, which would leave with what precedes them (guarantee
    §10.10), whether its client wants nothing left out, or whether a past request is inspected."""
    options, material = measured.inputs.request.options, measured.material
    now = material.messages[material.current :]
    return options.whole or options.what_if is not None or any(message.body.get(items.SIGNED) for message in now)


class _PromptFigures:
    """Figures of a prompt and its tool results; `indexes` are those of its messages in the conversation."""

    def __init__(self, measured: MeasuredInputs, fitted: PackedWindow) -> None:
        self._measured = measured
        self.indexes = fitted.forwarded.indexes
        self._beside = fitted.breakdown.get("tools", 0)
        inputs, messages = measured.inputs, fitted.forwarded.messages
        self._sizes = _sizes(fitted)
        self._prompt = passes.PromptTokens(
            self._sizes,
            sum(index < measured.known for index in self.indexes),
            prompt_cache.all_breakpoints(inputs.request, inputs.facts.prices, messages),
        )
        self._uses = passes.tool_uses(measured.material, measured.inputs.history.costs)
        self._carried = self._found(fitted)

    def cleared_when_cold(self) -> list[passes.CarriedResult]:
        """Returns the results that a free pass clears: the provider's cache is cold."""
        found = passes.cleared_when_cold(self._carried)
        return passes.cleared_when_cold(self._without_kept(found, passes.READ_WITHIN_COLD)) if found else []

    def cleared_when_paid(self, rates: prompt_cache.CacheRates, costs: bill.BranchCosts) -> list[passes.CarriedResult]:
        """Returns the results that a paid pass clears; none if it does not pay."""
        figures = (self._prompt, rates, self._measured.answers, costs)
        if not passes.cleared_when_paid(self._carried, *figures):  # would not pay even if nothing had to stay
            return []
        free = self._without_kept(self._carried, passes.READ_WITHIN, passes.MAX_SMALL_READING)
        return passes.cleared_when_paid(free, *figures)

    def cleared_for_room(
        self, budget: int, rates: prompt_cache.CacheRates, costs: bill.BranchCosts, read_within: int
    ) -> list[passes.CarriedResult]:
        """Returns the results that leave near the end of a window without space: those of earlier turns, if there are
        any (guarantee §4 I5)."""
        free, current = self._without_kept(self._carried, read_within), self._measured.material.current
        old = [each for each in free if self.indexes[each.index] < current and each.tokens >= passes.MIN_RESULT_TOKENS]
        return passes.cleared_for_room(old or free, self._prompt, rates, budget, costs)

    def gain_of(self, chosen: Sequence[passes.CarriedResult], rates: prompt_cache.CacheRates) -> Decimal:
        """Returns the expected saving of clearing these results, in USD."""
        return passes.gain_of_clearing(chosen, self._prompt, rates, self._measured.answers)

    def gain_of_new_pass(self, stays: int, rates: prompt_cache.CacheRates, costs: bill.BranchCosts) -> Decimal:
        """Returns the expected saving of a new pass after which `stays` tokens remain, in USD."""
        is_answer = [int(index >= 0 and self._role(index) == "assistant") for index in self.indexes]
        ages = list(accumulate(reversed(is_answer)))[::-1]
        other = max(0, stays - self._beside)
        return passes.gain_of_new_pass(other, self._sizes, ages, rates, self._measured.answers, costs)

    @cached_property
    def tokens_after_new_pass(self) -> int:
        """Estimated tokens of the prompt after a new pass."""
        material, limits = self._measured.material, self._measured.limits
        steps = current_steps(material)
        stays = {*range(steps[-1].start, steps[-1].end)} if steps else set()
        stays |= {material.current, window.SYSTEM_INDEX}
        kept = set(passes.kept_results(self._uses, passes.READ_WITHIN_PASS)) - stays
        of = dict(zip(self.indexes, self._sizes, strict=True))
        fixed = self._beside + sum(of.get(index, 0) for index in stays)
        room = max(0, (limits.usable or 0) - fixed)
        return int(fixed + tuning.FREE_SHARE * room + limits.count_fresh() + sum(of.get(index, 0) for index in kept))

    def _role(self, index: int) -> str:
        return str(self._measured.material.messages[index].role)

    def with_references(self, chosen: Sequence[passes.CarriedResult], age: int, read_within: int) -> set[int]:
        """Returns the message indexes of these results and of those that refer to them and may leave, too; without
        those that a staying result refers to, directly or through others (guarantee §4 I8): that result would bring
        back as much as they take away."""
        gone = {self.indexes[each.index] for each in chosen}
        references = sorted((index, targets or ()) for index, targets in self._measured.material.references.items())
        if not gone or not references:
            return gone
        free = self._without_kept(self._carried, read_within)
        may_leave = {self.indexes[each.index] for each in free if each.age >= age} | gone
        held: set[int] = set()
        for index, targets in reversed(references):  # each refers to earlier messages
            if index not in may_leave or index in held:
                held.update(targets)
        gone = gone - held
        for index, targets in references:
            if not gone.isdisjoint(targets):
                gone.add(index)
        return gone

    def _found(self, fitted: PackedWindow) -> list[passes.CarriedResult]:
        """Returns the results in full, original or compacted, and the inputs of calls, that may leave."""
        material, at = self._measured.material, {index: number for number, index in enumerate(self.indexes)}
        ages, found = {use.index: use.age for use in self._uses}, []
        pinned = {each.index for each in material.pinned}
        for artifact in material.placed:
            number = at.get(artifact.place.message) if artifact.place.message is not None else None
            if number is None or artifact.artifact_type is not ArtifactType.TOOL_RESULT:
                continue
            is_free = not (artifact.pinned or artifact.documents or artifact.artifact_id in fitted.selection.renderings)
            if is_free and not material.was_reduced(artifact):
                found.append(passes.CarriedResult(number, self._sizes[number], ages[self.indexes[number]]))
        for index, age in passes.free_calls(self._uses).items():
            number, message = at.get(index), material.messages[index]
            if number is None or message.rendered is not None or index in pinned:
                continue
            chars = max(1, _chars(message.body))
            spared = chars - _chars(with_short_inputs(message.body))
            tokens = round(self._sizes[number] * spared / chars) + passes.LABEL_TOKENS
            found.append(passes.CarriedResult(number, tokens, age))
        return sorted(found, key=lambda each: each.index)

    def _without_kept(
        self, found: Sequence[passes.CarriedResult], read_within: int, small: int = 0
    ) -> list[passes.CarriedResult]:
        kept = self._asked_for.union(passes.kept_results(self._uses, read_within, small))
        return [each for each in found if self.indexes[each.index] not in kept]

    @cached_property
    def _asked_for(self) -> frozenset[int]:
        """Message indexes of the results that a new question calls for (guarantee §4 I6)."""
        material = self._measured.material
        if not material.question or material.current < len(material.messages) - 1:
            return frozenset()
        here = {self.indexes[each.index] for each in self._carried}
        results = [each for each in material.placed if each.place.message in here]
        found = candidates(material, results, [], self._measured.callbacks.relevance)
        called = (each.of for each in found if each.passage.called and each.passage.score > 0)
        return frozenset(each.place.message or 0 for each in called if isinstance(each, Artifact))


def _sizes(fitted: PackedWindow) -> list[int]:
    """Estimates the tokens of each message of the prompt by its share of all characters: exact counts would cost more
    than they are worth."""
    chars = [_chars(message) for message in fitted.forwarded.messages]
    whole = max(1, fitted.tokens - fitted.breakdown.get("tools", 0))
    each = max(0.0, whole - upstreams.MESSAGE_TOKENS * len(chars)) / max(1, sum(chars))
    return [upstreams.MESSAGE_TOKENS + round(each * count) for count in chars]


def _chars(message: dict[str, Any]) -> int:
    content = message.get("content")
    said = len(content) if isinstance(content, str) else len(tool_steps.text_of(content))
    return said + sum(
        len(str((call.get("function") or {}).get("arguments") or "")) for call in tool_steps.calls_of(message)
    )


def _cleared(measured: MeasuredInputs, final: FinalFit, indexes: set[int]) -> tuple[MeasuredInputs, PackedWindow]:
    """Returns the window with these results as labels."""
    fitted = final.fitted
    material, selection = _without(measured.material, fitted.selection, indexes)
    made = measured.fitter(material).fitted(selection, exact=fitted.exact)
    return replace(measured, material=material), replace(made, moved=fitted.moved, guarded=fitted.guarded)


def _without(
    material: WindowInputs, selection: WindowSelection, indexes: set[int]
) -> tuple[WindowInputs, WindowSelection]:
    """Returns the material, and the selection with these results as labels and these calls without their long inputs.
    Drops the form in which an earlier request forwarded them, so that they are rendered again."""
    material = material.in_full(indexes)
    calls = selection.short_inputs | {index for index in indexes if material.messages[index].role == "assistant"}
    gone = {
        artifact.artifact_id: ArtifactRendering(artifact, ProcessingStrategy.EXCLUDE)
        for artifact in material.placed
        if artifact.place.message in indexes and artifact.artifact_type is ArtifactType.TOOL_RESULT
    }
    return material, replace(selection, renderings=selection.renderings | gone, short_inputs=calls)


def shaped_on_arrival(measured: MeasuredInputs, final: FinalFit) -> FinalFit:
    """Replaces new results in the window by their shorter forms, if `context.economy` is `auto`."""
    options, note = measured.inputs.request.options, final.economy
    if options.economy != bill.AUTO or note is None or options.whole or options.what_if is not None:
        return final
    if measured.limits.tokens is None or not _freezes(measured):
        return final
    found = _Arrival(measured, final.fitted)
    renderings = dict(found.renderings())
    if not renderings:
        return final
    fitted, selection = final.fitted, final.fitted.selection
    selection = replace(selection, renderings=selection.renderings | renderings, refers=found.refers)
    made = measured.fitter().fitted(selection, exact=fitted.exact)
    kept = replace(made, new_pass=fitted.new_pass, moved=fitted.moved, guarded=fitted.guarded)
    return replace(final, fitted=kept, economy=replace(note, shaped=fitted.tokens - made.tokens))


def _freezes(measured: MeasuredInputs) -> bool:
    """Returns whether a later request of this conversation will know what this one forwarded, so that it stays."""
    request, history = measured.inputs.request, measured.inputs.history
    return not history.unrecognised and (request.store or history.created)


class _Arrival:
    """The results that this request brings, beside those in its window. `refers`: the messages that they refer to."""

    def __init__(self, measured: MeasuredInputs, fitted: PackedWindow) -> None:
        self._measured, self._material, self._fitted = measured, measured.material, fitted
        self._count = measured.counting.text
        self.refers: dict[int, frozenset[int]] = {}

    def renderings(self) -> Iterator[tuple[str, ArtifactRendering]]:
        """Yields the shorter forms, by the ids of the results."""
        sent = dict(zip(self._fitted.forwarded.indexes, self._fitted.forwarded.messages, strict=True))
        here = [a for a in self._results() if a.place.message in sent]
        new = [a for a in here if self._is_new(a)]
        if not new:
            return
        may_refer = not clears_exactly(self._measured.inputs.request)
        standing = self._standing(here[: here.index(new[0])], sent) if may_refer else []
        for artifact in new:
            found, index = self._shaped(artifact, standing), artifact.place.message or 0
            cut = self._cut(artifact) if found is None else None
            if found is not None:
                if found.targets:
                    self.refers[index] = found.targets
                yield artifact.artifact_id, ArtifactRendering(artifact, ProcessingStrategy.SHAPE, found.text)
            if cut is not None:
                yield artifact.artifact_id, cut
            elif may_refer:
                text = artifact.content if found is None else found.text
                standing.append(StandingText(index, _name_of(artifact), text))

    def _standing(self, before: Sequence[Artifact], sent: Mapping[int, dict[str, Any]]) -> list[StandingText]:
        """Returns the latest earlier results that are in the window with nothing missing, as they are forwarded."""
        standing: list[StandingText] = []
        chars = 0
        for artifact in reversed(before):
            if chars > STANDING_CHARS or artifact.artifact_id in self._fitted.selection.renderings:
                continue
            if self._material.was_reduced(artifact):
                continue
            index = artifact.place.message or 0
            is_as_sent = self._material.messages[index].rendered is None
            text = artifact.content if is_as_sent else tool_steps.text_of(sent[index].get("content"))
            chars += len(text)
            standing.append(StandingText(index, _name_of(artifact), text))
        return standing[::-1]

    def _results(self) -> list[Artifact]:
        """Returns the tool results in the order of their messages."""
        return [each for each in self._material.placed if each.artifact_type is ArtifactType.TOOL_RESULT]

    def _is_new(self, artifact: Artifact) -> bool:
        """Returns whether a result came after the last answer, and nothing was decided on it."""
        index = artifact.place.message or 0
        if index < max(self._first_new, self._measured.inputs.history.stored):
            return False
        if artifact.pinned or artifact.documents or artifact.artifact_id in self._fitted.selection.renderings:
            return False
        message = self._material.messages[index]
        options = self._measured.inputs.request.options
        is_untouched = any(fnmatchcase(artifact.title or "", each) for each in options.untouched_tools)
        return message.rendered is None and not is_untouched

    @cached_property
    def _first_new(self) -> int:
        """Index behind the last answer: everything before it was sent upstream earlier, whoever sent the request."""
        messages = self._material.messages
        return next((i + 1 for i in range(len(messages) - 1, -1, -1) if messages[i].role == "assistant"), 0)

    @cached_property
    def _edited(self) -> set[str]:
        """The files that were changed in the conversation, including the current step."""
        return passes.changed_files(passes.tool_uses(self._material, None))

    def _shaped(self, artifact: Artifact, standing: list[StandingText]) -> ShapedText | None:
        text, tool = artifact.content, artifact.title or ""
        files = passes.named_files(artifact.arguments)
        is_file = bool(files) or READ_TOOL_NAME.search(tool) is not None
        shorter = text if is_file or RUNS.search(tool) is not None else compact(text)
        found = shaped(shorter, standing, is_plain=is_file)
        if found is None and shorter != text:
            found = ShapedText(shorter)
        if found is None or (files and not files.isdisjoint(self._edited)):
            return None  # an edited file has to be quoted as it was read last
        if as_data(text) != text:
            return None  # its text could no longer be distinguished from the gateway's own
        return found if self._count(found.text) < self._count(text) else None

    def _cut(self, artifact: Artifact) -> ArtifactRendering | None:
        """Renders a failed run with far too much output as an extract, if shorter; None for what may hold a file."""
        if READ_TOOL_NAME.search(artifact.title or "") or passes.named_files(artifact.arguments):
            return None
        spans = of_failed_run(artifact.content)
        if not spans:
            return None
        cut = ArtifactRendering(artifact, ProcessingStrategy.RAG_EXTRACT, spans=spans, headings=("",) * len(spans))
        worded = self._measured.callbacks.worded(cut, as_item=False)
        return cut if self._count(worded) < self._count(artifact.content) else None


def _name_of(artifact: Artifact) -> str:
    """Returns a result's name in references: the id of its content, its tool and the arguments. None of that changes
    from turn to turn."""
    asked = beginning(artifact.arguments, ARGUMENT_CHARS)
    asked += "…" if asked != artifact.arguments else ""
    return as_data(one_line(f"{artifact.content_id}:{artifact.title or ''} {asked}".translate(NO_MARKS)))
