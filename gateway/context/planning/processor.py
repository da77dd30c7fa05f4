"""`ArtifactProcessor`: asks the planner, and makes the summaries that its plan needs (guarantee §5)."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Self

from gateway.context.planning.prompt import PlannerTask, plan_schema, planner_messages
from gateway.context.planning.summaries import ArtifactSummarizer, CachedSummary, Make
from gateway.core import jsons
from gateway.core.config.settings import ContextSettings
from gateway.core.ports import InternalModel
from gateway.core.types.agents import InternalModelFailed, InternalRequest
from gateway.core.types.artifacts import (
    MAX_QUERIES,
    PLANNED,
    Artifact,
    ArtifactDecision,
    ArtifactPlan,
    ProcessingStrategy,
)
from gateway.core.types.chat import ChatRequest

# Reads a planner's answer: strictly where it keeps the schema, tolerantly where it means well (guarantee §5).

MAX_ANSWER_CHARS = 200_000
"""Many times what a planner may answer; a longer answer is not searched for a plan."""
MAX_QUERY_CHARS = 1000
"""Of one search query: a passage, not a document."""
MAX_TEXT_CHARS = 500
"""Of rationale, focus and extraction query: they go into prompts and metadata."""
MAX_PRIORITY = 1000
"""The last; also of a decision without a usable one."""
MAX_OBJECTS_TRIED = 8
"""At so many braces of an answer a plan is looked for: each costs one reading of the rest."""
THOUGHTS_END = "</think>"
PLAN_DECODER = json.JSONDecoder()
STRATEGIES = {  # the schema's names, and those that models without a schema use
    "full": ProcessingStrategy.INCLUDE_FULL,
    "include": ProcessingStrategy.INCLUDE_FULL,
    "summary": ProcessingStrategy.SUMMARIZE,
    "summarise": ProcessingStrategy.SUMMARIZE,
    "extract": ProcessingStrategy.RAG_EXTRACT,
    "rag": ProcessingStrategy.RAG_EXTRACT,
    "omit": ProcessingStrategy.EXCLUDE,
} | {each.value: each for each in PLANNED}


class InvalidPlan(ValueError):
    """The planner's answer cannot be used; the message is the `fallback_reason`."""


def read_plan(text: str, known: Collection[str]) -> ArtifactPlan:
    """The plan in a planner's answer, its decisions by priority.

    Unknown ids are dropped, of two entries for one id the first counts, fields of the wrong type are as if they were
    not there.
    Raises InvalidPlan: it is no JSON object, or names no known artifact and brings no query."""
    if len(text) > MAX_ANSWER_CHARS:
        raise InvalidPlan("planner_answer_too_long")
    value = _object(text)
    if value is None:
        raise InvalidPlan("planner_answer_no_json")
    decisions: dict[str, ArtifactDecision] = {}
    entries = value.get("artifacts")
    for entry in entries if isinstance(entries, list) else ():
        decision = _decision(entry, known)
        if decision is not None:
            decisions.setdefault(decision.artifact_id, decision)
    queries = _queries(value.get("search_queries"))
    if not decisions and not queries:
        raise InvalidPlan("planner_answer_rubbish")
    ordered = sorted(decisions.values(), key=lambda decision: decision.priority)
    return ArtifactPlan(artifacts=tuple(ordered), search_queries=queries, reasoning=_text(value.get("reasoning")) or "")


def is_plan(text: str, known: Collection[str]) -> bool:
    """Whether a planner's answer can be used."""
    try:
        read_plan(text, known)
    except InvalidPlan:
        return False
    return True


def _object(text: str) -> dict[str, Any] | None:
    """The plan that an answer is, or the last object in it that looks like one, whatever is said before; else any."""
    found = [value for value in map(_unwrapped, _values(text)) if isinstance(value, dict)]
    plans = [value for value in found if "artifacts" in value or "search_queries" in value]
    return next(reversed(plans or found), None)


def _values(text: str) -> Iterator[Any]:
    """The JSON values in an answer, from the first braces on. No part is read twice, so that no answer takes long."""
    try:
        yield jsons.loads(text)
        return
    except jsons.JSONDecodeError:
        pass
    at = text.rfind(THOUGHTS_END) + 1  # what comes after the thoughts, else all of it
    for _ in range(MAX_OBJECTS_TRIED):
        at = text.find("{", at)
        if at < 0:
            return
        end = at + 1
        try:
            _, end = PLAN_DECODER.raw_decode(text, at)
            yield jsons.loads(text[at:end])
        except (ValueError, RecursionError):
            end = at + 1
        at = end


def _unwrapped(value: Any) -> Any:
    """A plan without what models without a schema like to put it in: its name, or a list."""
    if isinstance(value, list):
        entries = [item for item in value if isinstance(item, dict)]
        return {"artifacts": entries} if entries and "artifact_id" in entries[0] else next(iter(entries), None)
    if isinstance(value, dict) and len(value) == 1:
        (inner,) = value.values()
        return inner if isinstance(inner, dict) else value
    return value


def _decision(entry: Any, known: Collection[str]) -> ArtifactDecision | None:
    if not isinstance(entry, dict):
        return None
    artifact_id, named = entry.get("artifact_id"), entry.get("strategy")
    strategy = STRATEGIES.get(named.strip().lower()) if isinstance(named, str) else None
    if not isinstance(artifact_id, str) or artifact_id not in known or strategy is None:
        return None
    given = entry.get("priority")
    priority = given if isinstance(given, int) and not isinstance(given, bool) else MAX_PRIORITY
    return ArtifactDecision(
        artifact_id=artifact_id,
        strategy=strategy,
        priority=min(MAX_PRIORITY, max(1, priority)),
        relevance_rationale=_text(entry.get("relevance_rationale")) or "",
        summarization_focus=_text(entry.get("summarization_focus")),
        extraction_query=_text(entry.get("extraction_query")),
    )


def _queries(value: Any) -> tuple[str, ...]:
    """Up to four, each once; a single text is one query."""
    given = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = [" ".join(item.split())[:MAX_QUERY_CHARS] for item in given if isinstance(item, str)]
    return tuple(dict.fromkeys(filter(None, texts)))[:MAX_QUERIES]


def _text(value: Any) -> str | None:
    """One line, cut at its longest; None for an empty text or what is none."""
    return (" ".join(value.split())[:MAX_TEXT_CHARS] or None) if isinstance(value, str) else None


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
        `prices`: the primary model's, by LiteLLM's names."""
        price = prices.get(INPUT_PRICE)
        return price is not None and price > threshold


DECISION_TOKENS = 90
"""What one artifact's decision takes in a plan, with a sentence of rationale and a query."""
QUERIES_TOKENS = 400
"""What search queries and reasoning take beside the decisions."""
MAX_PLAN_TOKENS = 16_000
"""The longest plan of a planner whose output limit is unknown."""
MIN_SHOWN_ARTIFACTS = 4
"""Artifacts that are shown however small the planner's window is."""
PROMPT_CHARS_PER_TOKEN = 2.5
"""Of a prompt of many short previews; fewer than in most text."""
MIN_PROMPT_CHARS = 2000


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """The summaries of a plan that could be made, by artifact id; `failed` are the reasons why others could not."""

    summaries: dict[str, CachedSummary] = field(default_factory=dict)
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
        `once`: shares the call with equal ones.
        Raises InternalModelFailed: no answer in time, or rubbish; the message is the `fallback_reason`."""
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
        messages, ids = planner_messages(
            task, room, max(MIN_SHOWN_ARTIFACTS, (most - QUERIES_TOKENS) // DECISION_TOKENS)
        )
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
        self, plan: ArtifactPlan, artifacts: Sequence[Artifact], summarizer: ArtifactSummarizer | None, seconds: float
    ) -> PreparedPlan:
        """Makes the summaries that a plan asks for, all at once and within `seconds`; one that fails leaves its
        artifact to be extracted."""
        by_id = {a.artifact_id: a for a in artifacts if not a.is_excerpt}  # no summary of a document by parts of it
        wanted = [d for d in plan.artifacts if d.strategy is ProcessingStrategy.SUMMARIZE and d.artifact_id in by_id]
        if not wanted or summarizer is None:
            return PreparedPlan(failed=("no_summarizer",) if wanted else ())
        made = await asyncio.gather(*(_made(summarizer, by_id[d.artifact_id], d, seconds) for d in wanted))
        summaries = {d.artifact_id: one for d, one in zip(wanted, made, strict=True) if isinstance(one, CachedSummary)}
        failed = dict.fromkeys(one for one in made if isinstance(one, str))
        return PreparedPlan(summaries, tuple(failed))


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
    summarizer: ArtifactSummarizer, artifact: Artifact, decision: ArtifactDecision, seconds: float
) -> CachedSummary | str:
    """The summary, or the reason why there is none."""
    try:
        async with asyncio.timeout(seconds):  # it may wait for somebody else who is making it
            return await summarizer.summarize(artifact, decision.summarization_focus or "")
    except InternalModelFailed as error:
        return str(error)
    except TimeoutError:
        return "summarizer_over_time_ceiling"
