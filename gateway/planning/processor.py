"""`ArtifactProcessor`: asks the planner, and makes the summaries that its plan needs (guarantee §5)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Self

from gateway.config.settings import ContextSettings
from gateway.models.artifacts import Artifact, ArtifactDecision, ArtifactPlan, ProcessingStrategy
from gateway.models.exchange import ChatRequest
from gateway.models.internal import InternalModelFailed, InternalRequest
from gateway.planning.answer import InvalidPlan, is_plan, read_plan
from gateway.planning.prompt import PlannerTask, plan_schema, planner_messages
from gateway.planning.summaries import Summarizer
from gateway.planning.summary_cache import Make, Summary
from gateway.ports import InternalModel

Once = Callable[[InternalRequest, Make], Awaitable[str]]
"""Makes the answer to a question, unless somebody is being answered the same: then it is theirs."""
DEFAULT_INTERNAL = "gpt-4o-mini"
INPUT_PRICE = "input_cost_per_token"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The models of a request: `primary` answers, `context_planner` and `summarizer` are internal (guarantee §5).

    `chosen` are the internal ones that the request or the operator named; the others are defaults, which count only
    where they are known to be served.
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


DECISION_TOKENS = 90
"""What one artifact's decision takes in a plan, with a sentence of rationale and a query."""
QUERIES_TOKENS = 400
"""What search queries and reasoning take beside the decisions."""
MAX_PLAN_TOKENS = 16_000
"""The longest plan of a planner whose output limit is unknown."""
MIN_SHOWN = 4
"""Artifacts that are shown however small the planner's window is."""
PROMPT_CHARS_PER_TOKEN = 2.5
"""Of a prompt of many short previews; fewer than in most text."""
MIN_PROMPT_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Prepared:
    """The summaries of a plan that could be made, by artifact id; `failed` are the reasons why others could not."""

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
    """Plans with one call of a model, and makes the summaries of a plan."""

    def __init__(self, settings: ContextSettings) -> None:
        self._settings = settings

    async def plan_context(self, task: PlannerTask, planner: InternalModel, once: Once | None = None) -> ArtifactPlan:
        """The planner's plan: one call, within its deadline.

        Args:
            once: shares the call with equal ones.

        Raises:
            InternalModelFailed: no answer in time, or rubbish; the message is the `fallback_reason`.
        """
        ask, ids = self._request(task, planner)

        async def make() -> str:
            text = (await planner.ask(ask)).text
            try:
                read_plan(text, ids)
            except InvalidPlan as rubbish:
                raise InternalModelFailed(str(rubbish)) from None
            return text

        plan = read_plan(await (once(ask, make) if once is not None else make()), ids)
        prompt = "\n\n".join(message["content"] for message in ask.messages)
        return plan.model_copy(update={"prompt": prompt[: self._settings.planner_prompt_chars]})

    def price(self, task: PlannerTask, planner: InternalModel) -> Decimal | None:
        """What asking for such a plan costs in USD, with an answer as long as its ids make it; None if unknown."""
        return planner.price(self._request(task, planner)[0])

    def _request(self, task: PlannerTask, planner: InternalModel) -> tuple[InternalRequest, Sequence[str]]:
        """The call, and the ids that its plan may name."""
        most = most_tokens(planner)
        room = prompt_chars(planner, self._settings.planner_prompt_chars)
        messages, ids = planner_messages(task, room, max(MIN_SHOWN, (most - QUERIES_TOKENS) // DECISION_TOKENS))
        ask = InternalRequest(
            purpose="planner",
            messages=messages,
            max_tokens=min(most, QUERIES_TOKENS + DECISION_TOKENS * len(ids)),
            timeout_seconds=self._settings.planner_timeout,
            schema=plan_schema(ids),
            is_useful=lambda text: is_plan(text, ids),
        )
        return ask, ids

    async def execute_plan(
        self, plan: ArtifactPlan, artifacts: Sequence[Artifact], summarizer: Summarizer | None, seconds: float
    ) -> Prepared:
        """Makes the summaries that a plan asks for, all at once and within `seconds`; one that fails leaves its
        artifact to be extracted."""
        by_id = {a.artifact_id: a for a in artifacts if not a.is_excerpt}  # no summary of a document by parts of it
        wanted = [d for d in plan.artifacts if d.strategy is ProcessingStrategy.SUMMARIZE and d.artifact_id in by_id]
        if not wanted or summarizer is None:
            return Prepared(failed=("no_summarizer",) if wanted else ())
        made = await asyncio.gather(*(_made(summarizer, by_id[d.artifact_id], d, seconds) for d in wanted))
        summaries = {d.artifact_id: one for d, one in zip(wanted, made, strict=True) if isinstance(one, Summary)}
        failed = dict.fromkeys(one for one in made if isinstance(one, str))
        return Prepared(summaries, tuple(failed))


def most_tokens(planner: InternalModel) -> int:
    """The longest answer in tokens; half of a small window is left to the prompt."""
    window = planner.max_input_tokens
    return min(planner.max_output_tokens or MAX_PLAN_TOKENS, window // 2 if window else MAX_PLAN_TOKENS)


def prompt_chars(planner: InternalModel, most: int) -> int:
    """The longest prompt in characters: `most`, and no more than the planner's window takes beside its answer."""
    if planner.max_input_tokens is None:
        return most
    left = int((planner.max_input_tokens - most_tokens(planner)) * PROMPT_CHARS_PER_TOKEN)
    return min(most, max(MIN_PROMPT_CHARS, left))


async def _made(
    summarizer: Summarizer, artifact: Artifact, decision: ArtifactDecision, seconds: float
) -> Summary | str:
    """The summary, or the reason why there is none."""
    try:
        async with asyncio.timeout(seconds):  # it may wait for somebody else who is making it
            return await summarizer.summarize(artifact, decision.summarization_focus or "")
    except InternalModelFailed as error:
        return str(error)
    except TimeoutError:
        return "summarizer_over_time_ceiling"
