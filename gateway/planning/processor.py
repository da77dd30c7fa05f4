"""`ArtifactProcessor`: asks the planner, and has made what its plan needs before anything is fitted (guarantee §5)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Self

from gateway.config.settings import ContextSettings
from gateway.models.artifacts import Artifact, ArtifactDecision, ArtifactPlan, ProcessingStrategy
from gateway.models.exchange import ChatRequest
from gateway.models.internal import InternalModelFailed, InternalRequest
from gateway.planning.answer import InvalidPlan, is_plan, read_plan
from gateway.planning.prompt import PlannerTask, plan_schema, planner_messages
from gateway.planning.summaries import Summarizer, Summary
from gateway.ports import InternalModel

# Which models a request uses: its own, and the two internal ones (guarantee §5).


DEFAULT_INTERNAL = "gpt-4o-mini"
INPUT_PRICE = "input_cost_per_token"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """`primary` answers; `context_planner` and `summarizer` are internal, by the names that they are asked for by.

    `chosen` are the internal ones that somebody named: the request, or the operator. The others are defaults, which
    count only where they are known to be served.
    """

    primary: str
    context_planner: str = DEFAULT_INTERNAL
    summarizer: str = DEFAULT_INTERNAL
    chosen: frozenset[str] = frozenset()

    @classmethod
    def from_request(cls, request: ChatRequest, settings: ContextSettings) -> Self:
        """The request's `context.models`, else the settings (`CONTEXT_PLANNER_MODEL`, `SUMMARIZER_MODEL`), else
        `gpt-4o-mini`."""
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
        """Whether the primary model's input price (USD per token) is above the threshold; an unknown one is cheap
        (guarantee §5).

        Args:
            prices: the primary model's, by LiteLLM's names.
        """
        price = prices.get(INPUT_PRICE)
        return price is not None and price > threshold


TOKENS_PER_DECISION = 90
TOKENS_BESIDE = 400
MOST_TOKENS = 16_000
"""What a plan takes at most, where nobody says how long the planner's answers may become."""
LEAST_SHOWN = 4
CHARS_PER_TOKEN = 2.5
"""Of a prompt of many short previews; fewer than in most text."""
LEAST_PROMPT_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a plan needs before it can be fitted: the summaries that could be made, by artifact. `failed` are the
    reasons why others could not."""

    plan: ArtifactPlan
    summaries: dict[str, Summary] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    @property
    def texts(self) -> dict[str, str]:
        """The summaries by themselves."""
        return {artifact_id: summary.text for artifact_id, summary in self.summaries.items()}

    @property
    def hits(self) -> frozenset[str]:
        """The artifacts whose summaries cost this request nothing."""
        return frozenset(artifact_id for artifact_id, summary in self.summaries.items() if summary.hit)


class ArtifactProcessor:
    """Plans with one call, and executes what of a plan needs a model."""

    def __init__(self, settings: ContextSettings) -> None:
        self._settings = settings

    async def plan_context(self, task: PlannerTask, planner: InternalModel) -> ArtifactPlan:
        """The planner's plan: one call, within its deadline.

        Raises:
            InternalModelFailed: no answer in time, or rubbish; the message is the `fallback_reason`.
        """
        most = most_tokens(planner)
        room = prompt_chars(planner, self._settings.planner_prompt_chars)
        messages, ids = planner_messages(task, room, max(LEAST_SHOWN, (most - TOKENS_BESIDE) // TOKENS_PER_DECISION))
        ask = InternalRequest(
            purpose="planner",
            messages=messages,
            max_tokens=min(most, TOKENS_BESIDE + TOKENS_PER_DECISION * len(ids)),
            timeout_seconds=self._settings.planner_timeout,
            schema=plan_schema(ids),
            is_useful=lambda text: is_plan(text, ids),
        )
        answer = await planner.ask(ask)
        try:
            return read_plan(answer.text, ids)
        except InvalidPlan as rubbish:
            raise InternalModelFailed(str(rubbish)) from None

    async def execute_plan(
        self, plan: ArtifactPlan, artifacts: Sequence[Artifact], summarizer: Summarizer | None, seconds: float
    ) -> Prepared:
        """Makes the summaries that a plan asks for, all at once and within `seconds`; one that fails leaves its
        artifact to be extracted."""
        by_id = {artifact.artifact_id: artifact for artifact in artifacts}
        wanted = [d for d in plan.artifacts if d.strategy is ProcessingStrategy.SUMMARIZE and d.artifact_id in by_id]
        if not wanted or summarizer is None:
            return Prepared(plan, failed=("no_summarizer",) if wanted else ())
        made = await asyncio.gather(*(_made(summarizer, by_id[d.artifact_id], d, seconds) for d in wanted))
        summaries = {d.artifact_id: one for d, one in zip(wanted, made, strict=True) if isinstance(one, Summary)}
        failed = dict.fromkeys(one for one in made if isinstance(one, str))
        return Prepared(plan, summaries, tuple(failed))


def most_tokens(planner: InternalModel) -> int:
    """How long its answer may become: half of a small window is for what it is asked."""
    window = planner.max_input_tokens
    return min(planner.max_output_tokens or MOST_TOKENS, window // 2 if window else MOST_TOKENS)


def prompt_chars(planner: InternalModel, most: int) -> int:
    """How much a planner may be shown: `most` characters, and no more than its window takes beside its answer. A prompt
    that it had to refuse would be no plan at all."""
    if planner.max_input_tokens is None:
        return most
    left = int((planner.max_input_tokens - most_tokens(planner)) * CHARS_PER_TOKEN)
    return min(most, max(LEAST_PROMPT_CHARS, left))


async def _made(
    summarizer: Summarizer, artifact: Artifact, decision: ArtifactDecision, seconds: float
) -> Summary | str:
    """The summary, or why there is none."""
    try:
        async with asyncio.timeout(seconds):  # it may wait for somebody else who is making it
            return await summarizer.summarize(artifact, decision.summarization_focus or "")
    except InternalModelFailed as error:
        return str(error)
    except TimeoutError:
        return "summarizer_over_time_ceiling"
