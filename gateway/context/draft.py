"""The context of a request without a plan: measured, then fitted by the heuristic.

Nothing here waits for anything, so it can run in a thread. A planner's plan is followed from the same draft.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Self

from gateway.artifacts.compaction import compact
from gateway.assembly.block import worded
from gateway.assembly.messages import assemble
from gateway.base.tasks import offload_if
from gateway.config.settings import ContextSettings
from gateway.context.collect import ContextInput
from gateway.embeddings.meaning import RequestMeaning
from gateway.models.relevance import Relevance
from gateway.models.window import Fitted, Material, ShownPages, Unreduced
from gateway.planning.decision import Decision, facts_of, should_use_llm_planning
from gateway.planning.processor import ModelConfig
from gateway.ports import TokenCounter
from gateway.relevance.index_cache import PassageFinder
from gateway.window.budget import Limits
from gateway.window.counting import PromptCounter
from gateway.window.fit import count_unreduced, fit
from gateway.window.fitting import Tools
from gateway.window.turns import bounded

Run = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Measured:
    """The material of a context, and its size before anything is left out.

    `unreduced` is what was forwarded before as it was, and all that is new in full (guarantee §5: what is decided is
    decided on that).
    """

    source: ContextInput
    material: Material
    counting: PromptCounter
    limits: Limits
    tools: Tools
    finder: PassageFinder
    unreduced: Unreduced

    def without_things(self, settings: ContextSettings) -> Self:
        """The same without the remembered things that the question names."""
        return self._of(replace(self.material, things=()), settings)

    def with_pages(self, pages: tuple[ShownPages, ...], settings: ContextSettings) -> Self:
        """The same with pages of PDFs beside the current message's block."""
        return self._of(replace(self.material, pages=pages), settings)

    def _of(self, material: Material, settings: ContextSettings) -> Self:
        unreduced = count_unreduced(material, self.limits, self.counting, self.tools, _shares(settings))
        return replace(self, material=material, unreduced=unreduced)

    @property
    def answers(self) -> int:
        """How many answers the conversation has had, tool calls among them; one for each turn that was not read."""
        material = self.material
        return material.turns_before + sum(message.role == "assistant" for message in material.messages)


@dataclass(frozen=True, slots=True)
class Draft(Measured):
    """A context that fits, made by the heuristic, and whether a plan by a model is called for."""

    fitted: Fitted
    decision: Decision

    @classmethod
    def of(cls, measured: Measured, fitted: Fitted, decision: Decision) -> Self:
        """What was measured, with how it was fitted and decided on."""
        shared = {each.name: getattr(measured, each.name) for each in fields(Measured)}
        return cls(**shared, fitted=fitted, decision=decision)


def measure(
    source: ContextInput,
    material: Material,
    counter: TokenCounter,
    finder: PassageFinder,
    ranked: Callable[[Relevance], Relevance] | None,
    settings: ContextSettings,
) -> Measured:
    """Counts everything that may be forwarded.

    Args:
        ranked: adds ranks by meaning to the lexical ones of `finder`, where an embedder is configured.
    """
    request, tokens = source.request, source.budget.tokens
    tools = Tools(assemble=assemble, relevance=ranked(finder) if ranked else finder, compact=compact, worded=worded)
    counting = PromptCounter(counter, request.forward, material, max(1.0, counter.margin), source.history.notes)
    estimated = counter.margin != 1.0
    limits = Limits(tokens, settings.history_share, estimated=estimated, budget=source.budget)
    material = bounded(material, source.budget.turns)
    if tokens is not None and (source.history.stored or source.history.unread):
        # At first sight nothing is cached yet, and nobody knows whether it goes on: then all of the budget is filled.
        fresh = counting.texts([each.content for each in material.fresh])
        limits = replace(limits, low_water=int(settings.low_water * tokens), fresh=fresh)
    unreduced = count_unreduced(material, limits, counting, tools, _shares(settings))
    return Measured(source, material, counting, limits, tools, finder, unreduced)


def _shares(settings: ContextSettings) -> Sequence[float]:
    """Shares of the budget on which decisions depend."""
    return settings.fits_share, settings.near_limit_share


def make_draft(measured: Measured, settings: ContextSettings, has_planner: bool) -> Draft:
    """Fits what was measured without a plan, and decides whether one is called for. Remembered things leave first: for
    them nothing else is reduced, and no request is refused (guarantee §11.14).

    Args:
        has_planner: an internal model may be asked.

    Raises:
        ContextLengthExceeded: it cannot be made to fit, whatever a plan may say (guarantee §4 I1).
    """
    if not measured.material.things:
        return _fitted_draft(measured, settings, has_planner)
    bare = measured.without_things(settings)
    if measured.unreduced.new_pass and not bare.unreduced.new_pass:
        return _fitted_draft(bare, settings, has_planner)
    draft = _fitted_draft(measured, settings, has_planner)
    if not draft.fitted.new_pass or bare.unreduced.new_pass:
        return draft
    without = _fitted_draft(bare, settings, has_planner)
    return draft if without.fitted.new_pass else without


def _fitted_draft(measured: Measured, settings: ContextSettings, has_planner: bool) -> Draft:
    unreduced = measured.unreduced
    fitted = fit(measured.material, measured.limits, measured.counting, measured.tools, unreduced=unreduced)
    if fitted.new_pass and not unreduced.new_pass:  # room for what the question needs: no old decision holds
        measured = replace(measured, unreduced=replace(unreduced, new_pass=True))
    return Draft.of(measured, fitted, decide(measured, settings, has_planner))


def decide(measured: Measured, settings: ContextSettings, has_planner: bool) -> Decision:
    """Whether a plan is called for, with the reason (guarantee §5)."""
    source = measured.source
    models = ModelConfig.from_request(source.request, settings)
    facts = facts_of(
        source.request.options,
        measured.material,
        measured.unreduced,
        stored=source.history.stored,
        budget=source.budget.tokens,
        historical_turns=settings.historical_turns,
        has_planner=has_planner,
        expensive_primary=models.is_expensive_primary(source.facts.prices, settings.expensive_input_cost_per_token),
        unrecognised=source.history.unrecognised,
    )
    return should_use_llm_planning(facts, settings)


def runner(meaning: RequestMeaning | None, *, small: bool) -> Run:
    """What runs the steps of a request: ranking by meaning with its own vectors, else this thread for a small context
    and another one for a larger."""
    return meaning.run if meaning is not None else partial(offload_if, not small)
