"""`ArtifactProcessor`: one planner call, and the summaries that its plan asks for (guarantee §5)."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from gateway.context.planner import ArtifactProcessor
from gateway.context.planning.prompt import PlannerTask
from gateway.context.planning.summaries import (
    PIECE_CHARS_PER_TOKEN,
    PROMPT_TOKENS,
    SUMMARY_TOKENS,
    ArtifactSummarizer,
    SummaryCache,
)
from gateway.core.clock import SystemClock
from gateway.core.config.settings import ContextSettings
from gateway.core.ids import artifact_id
from gateway.core.types.agents import InternalAnswer, InternalModelFailed, InternalRequest, OverBudget
from gateway.core.types.artifacts import Artifact, ArtifactDecision, ArtifactPlan, ArtifactType, ContextGoal
from gateway.core.types.artifacts import ProcessingStrategy as Strategy
from gateway.storage.cache.memory_cache import MemoryCache

SECONDS = 30.0
PROCESSOR = ArtifactProcessor(ContextSettings())
Answer = Callable[[InternalRequest], str | InternalAnswer]


@dataclass
class Model:
    """Answers as it is told; remembers what it was asked."""

    answer: str | InternalAnswer | Exception | Answer
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    asked: list[InternalRequest] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    name: str = "openai/cheap"

    async def ask(self, ask: InternalRequest) -> InternalAnswer:
        self.asked.append(ask)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        said = self.answer(ask) if callable(self.answer) else self.answer
        return InternalAnswer(said) if isinstance(said, str) else said

    async def allow(self, asks: Sequence[InternalRequest]) -> None:
        """Nothing is limited."""

    def price(self, ask: InternalRequest) -> Decimal | None:
        """Nobody knows."""


def artifact(content: str) -> Artifact:
    return Artifact(artifact_id(content), ArtifactType.TOOL_RESULT, content, len(content), "step_1:search")


def summarizer(model: Model, cache: SummaryCache | None = None) -> ArtifactSummarizer:
    kept = cache or SummaryCache(MemoryCache(10**6, SystemClock()), SystemClock(), 60.0, 30.0)
    return ArtifactSummarizer(model, kept, "tenant", b"s" * 32, reads=True, keeps=True, timeout_seconds=20.0)


def wants(*artifacts: Artifact, focus: str | None = None) -> ArtifactPlan:
    decisions = [
        ArtifactDecision(artifact_id=a.artifact_id, strategy=Strategy.SUMMARIZE, summarization_focus=focus)
        for a in artifacts
    ]
    return ArtifactPlan(artifacts=tuple(decisions))


def task(*artifacts: Artifact) -> PlannerTask:
    return PlannerTask("Who?", ContextGoal.SYNTHESIS, 4000, artifacts)


async def test_s5_the_planner_is_one_call_with_the_ids_as_an_enumeration() -> None:
    one = artifact("x" * 9000)
    entry: dict[str, Any] = {"artifact_id": one.artifact_id, "strategy": "exclude", "priority": 1}
    model = Model(json.dumps({"artifacts": [entry], "search_queries": ["q"]}))
    plan = await PROCESSOR.plan_context(task(one), model)
    assert [d.strategy for d in plan.artifacts] == [Strategy.EXCLUDE]
    (asked,) = model.asked
    assert plan.prompt == "\n\n".join(each["content"] for each in asked.messages)[:24_000], "it is stored with the plan"
    assert asked.schema is not None
    items = asked.schema["schema"]["properties"]["artifacts"]["items"]
    assert items["properties"]["artifact_id"]["enum"] == [one.artifact_id]
    assert asked.timeout_seconds == ContextSettings().planner_timeout


async def test_s5_a_planner_is_asked_no_more_than_its_window_takes() -> None:
    """What a small model had to refuse would be no plan at all, and a plan longer than it may answer none either."""
    many = [artifact(f"{number} " + "word " * 2000) for number in range(300)]
    model = Model(json.dumps({"search_queries": ["q"]}), max_input_tokens=4096, max_output_tokens=512)
    await PROCESSOR.plan_context(task(*many), model)
    roomy = Model(json.dumps({"search_queries": ["q"]}), max_input_tokens=128_000, max_output_tokens=16_384)
    await PROCESSOR.plan_context(task(*many), roomy)
    (small,), (large,) = model.asked, roomy.asked
    assert small.max_tokens == 512
    assert len(json.dumps(small.messages)) < (4096 - 512) * 3 < len(json.dumps(large.messages))
    assert 512 < large.max_tokens <= 16_384


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("No.", "planner_answer_no_json"), (InternalModelFailed("planner_timeout"), "planner_timeout")],
)
async def test_s5_a_planner_that_fails_says_why(answer: str | Exception, reason: str) -> None:
    with pytest.raises(InternalModelFailed, match=reason):
        await PROCESSOR.plan_context(task(artifact("x")), Model(answer))


async def test_s5_summaries_are_made_at_once_and_kept() -> None:
    first, second = artifact("a" * 5000), artifact("b" * 5000)
    model = Model(lambda ask: f"about {ask.messages[1]['content'][-20:-10]}")
    cache = SummaryCache(MemoryCache(10**6, SystemClock()), SystemClock(), 60.0, 30.0)
    made = await PROCESSOR.execute_plan(wants(first, second), [first, second], summarizer(model, cache), SECONDS)
    assert {key: (s.text, s.hit) for key, s in made.summaries.items()} == {
        first.artifact_id: ("about aaaaaaaaaa", False),
        second.artifact_id: ("about bbbbbbbbbb", False),
    }
    assert model.most_at_once == 2
    again = await PROCESSOR.execute_plan(wants(first, second), [first, second], summarizer(model, cache), SECONDS)
    assert again.hits == {first.artifact_id, second.artifact_id}
    assert len(model.asked) == 2


async def test_s5_the_focus_is_asked_for_and_part_of_the_key() -> None:
    one, model = artifact("a" * 5000), Model("short")
    cache = SummaryCache(MemoryCache(10**6, SystemClock()), SystemClock(), 60.0, 30.0)
    for focus in ("prices", "dates", "prices"):
        await PROCESSOR.execute_plan(wants(one, focus=focus), [one], summarizer(model, cache), SECONDS)
    assert ["prices" in ask.messages[1]["content"] for ask in model.asked] == [True, False]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("y" * 6000, "summary_not_shorter"),
        ("  ", "summarizer_empty"),
        (InternalModelFailed("summarizer_over_quota"), "summarizer_over_quota"),
    ],
)
async def test_s5_a_summary_that_cannot_be_used_leaves_its_artifact(answer: str | Exception, reason: str) -> None:
    one = artifact("a" * 5000)
    made = await PROCESSOR.execute_plan(wants(one), [one], summarizer(Model(answer)), SECONDS)
    assert (made.summaries, made.failed) == ({}, (reason,))


async def test_s5_a_summary_that_is_no_shorter_is_not_kept() -> None:
    """One bad answer would be every later request's for a week."""
    one, cache = artifact("a" * 5000), SummaryCache(MemoryCache(10**6, SystemClock()), SystemClock(), 60.0, 30.0)
    await PROCESSOR.execute_plan(wants(one), [one], summarizer(Model("y" * 6000), cache), SECONDS)
    made = await PROCESSOR.execute_plan(wants(one), [one], summarizer(Model("short"), cache), SECONDS)
    assert made.summaries[one.artifact_id].text == "short"


async def test_s5_a_summarizer_is_not_asked_for_more_than_it_may_answer() -> None:
    model = Model("short", max_output_tokens=200)
    await PROCESSOR.execute_plan(wants(artifact("a" * 5000)), [artifact("a" * 5000)], summarizer(model), SECONDS)
    assert [ask.max_tokens for ask in model.asked] == [200]


async def test_s5_an_artifact_larger_than_the_window_is_summarized_by_map_and_reduce() -> None:
    window = SUMMARY_TOKENS + PROMPT_TOKENS + 1000
    one = artifact("\n\n".join(f"paragraph {number} " + "word " * 100 for number in range(40)))
    model = Model(lambda ask: "a part" if "Part " in ask.messages[1]["content"] else "the whole", window)
    made = await PROCESSOR.execute_plan(wants(one), [one], summarizer(model), SECONDS)
    assert made.summaries[one.artifact_id].text == "the whole"
    assert len(model.asked) > 3
    assert model.most_at_once == 4
    sizes = [len(ask.messages[1]["content"]) for ask in model.asked]
    assert max(sizes) < 1000 * PIECE_CHARS_PER_TOKEN + 400


@pytest.mark.parametrize("answer", [InternalModelFailed("summarizer_timeout"), "z" * 4000])
async def test_s5_a_part_that_fails_fails_the_summary(answer: str | Exception) -> None:
    one = artifact("word " * 4000)
    model = Model(answer, SUMMARY_TOKENS + PROMPT_TOKENS + 1000)
    made = await PROCESSOR.execute_plan(wants(one), [one], summarizer(model), SECONDS)
    expected = str(answer) if isinstance(answer, Exception) else "summary_not_shorter"
    assert (made.summaries, made.failed) == ({}, (expected,))


async def test_s5_without_a_summarizer_nothing_is_summarized() -> None:
    one = artifact("a" * 5000)
    made = await PROCESSOR.execute_plan(wants(one), [one], None, SECONDS)
    assert (made.summaries, made.failed) == ({}, ("no_summarizer",))


async def test_s5_a_summary_that_takes_longer_than_planning_may_is_not_waited_for() -> None:
    one, event = artifact("a" * 5000), asyncio.Event()

    class Slow(Model):
        async def ask(self, ask: InternalRequest) -> InternalAnswer:
            await event.wait()
            return InternalAnswer("too late")

    made = await PROCESSOR.execute_plan(wants(one), [one], summarizer(Slow("")), 0.02)
    assert (made.summaries, made.failed) == ({}, ("summarizer_over_time_ceiling",))


async def test_s5_where_not_all_parts_may_be_asked_for_none_is() -> None:
    """The summaries of some parts are of no use, and would be paid for."""

    class Poor(Model):
        async def allow(self, asks: Sequence[InternalRequest]) -> None:
            assert len(asks) > 2
            raise OverBudget("summarizer_over_token_ceiling")

    model = Poor("A summary.", max_input_tokens=2000)
    with pytest.raises(OverBudget):
        await summarizer(model).summarize(artifact("one line of many\n" * 2000), "")
    assert model.asked == []
    await summarizer(model).summarize(artifact("one line of many\n" * 20), "")
    assert len(model.asked) == 1


@pytest.mark.parametrize("error", [OverBudget("summarizer_over_token_ceiling"), InternalModelFailed("summarizer_late")])
async def test_s5_a_part_that_fails_a_summary_says_whether_the_model_or_a_ceiling_did(
    error: InternalModelFailed,
) -> None:
    """Those that wait for the same summary pay in the place of one that met a ceiling of its own."""
    model = Model(error, max_input_tokens=2000)
    with pytest.raises(InternalModelFailed) as raised:
        await summarizer(model).summarize(artifact("one line of many\n" * 2000), "")
    assert raised.value is error


async def test_s5_a_summary_that_broke_off_is_cut_back_to_what_is_whole() -> None:
    """Half a sentence may say the opposite of the whole one, and half a figure is another figure."""
    one = artifact("a" * 5000)
    broken = InternalAnswer("The lamps are lit. Lamp 41 costs 1.", is_cut=True)
    made = await PROCESSOR.execute_plan(wants(one), [one], summarizer(Model(broken)), SECONDS)
    assert made.summaries[one.artifact_id].text == "The lamps are lit."


async def test_s5_a_summary_of_which_nothing_is_whole_is_none() -> None:
    one = artifact("a" * 5000)
    model = Model(InternalAnswer("The keepers of the lamps and", is_cut=True))
    made = await PROCESSOR.execute_plan(wants(one), [one], summarizer(model), SECONDS)
    assert (made.summaries, made.failed) == ({}, ("summarizer_cut",))


async def test_s5_pieces_of_a_summary_are_cut_back_each_by_itself() -> None:
    """What is put together of them holds no half sentence either."""
    one = artifact("\n\n".join(f"paragraph {number} " + "word " * 100 for number in range(40)))

    def answer(ask: InternalRequest) -> InternalAnswer:
        return InternalAnswer("It is green. It is not", is_cut="Part " in ask.messages[1]["content"])

    model = Model(answer, SUMMARY_TOKENS + PROMPT_TOKENS + 1000)
    made = await PROCESSOR.execute_plan(wants(one), [one], summarizer(model), SECONDS)
    assert made.summaries[one.artifact_id].text == "It is green. It is not"
    last = model.asked[-1].messages[1]["content"]
    assert ("It is green." in last, "It is not" in last) == (True, False)
