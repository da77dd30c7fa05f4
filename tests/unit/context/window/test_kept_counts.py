"""Counts that are stored with messages are made once, and are the same as fresh ones (guarantee §4 I1); a candidate is
measured as exactly as it matters (§5), and of an estimate a little stays free."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.artifacts.lossless_compaction import compact
from gateway.context.assembly.render import assemble, worded
from gateway.context.tokens.counter import CounterRegistry
from gateway.context.window.counting import PromptCount, PromptCounter
from gateway.context.window.fit import count_full, fit
from gateway.context.window.fitting import FittingCallbacks, SelectionLimits, WindowFitter
from gateway.core.config.settings import ContextSettings
from gateway.core.errors import ContextLengthExceeded
from gateway.core.jsons import Json
from gateway.core.ports import TokenCounter
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.chat import ModelFacts
from gateway.core.types.conversation import ConversationMessage, TokenCounts
from gateway.core.types.turn import NewAnswer, StoredTurn
from gateway.core.types.window import ForwardedMessages, WindowInputs
from gateway.pipeline.stored_turn import with_counts
from gateway.retrieval.index_cache import PassageFinder
from tests.support.answers import image_part, text_part
from tests.unit.making import assistant, build, stored, system, tool, user

GPT = ModelFacts("gpt-4o")
MODELS = [GPT, ModelFacts("gpt-3.5-turbo"), ModelFacts("openai/some-llama", token_margin=1.17)]
WORDS = st.text('abc XYZ\n.,é数据🙂<|endoftext|>{}"', max_size=60)
PICTURE = image_part("https://example.org/a.png")
BODIES = st.one_of(
    WORDS.map(user),
    WORDS.map(assistant),
    WORDS.map(system),
    WORDS.map(lambda text: assistant(text, "c", arguments=text)),
    WORDS.map(lambda text: tool("c", text)),
    WORDS.map(lambda text: user([text_part(text), PICTURE])),
    WORDS.map(lambda text: user([text_part(text), {"type": "input_audio", "input_audio": {"data": text}}])),
    WORDS.map(lambda text: {**assistant(text), "reasoning_content": text}),
)


class Watched:
    """A counter that remembers what it had to count."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self.asked: list[Json] = []
        self.tokenizer, self.margin = counter.tokenizer, counter.margin
        self.text, self.tools, self.with_margin = counter.text, counter.tools, counter.with_margin
        self.least, self.is_own, self.saved = counter.least, counter.is_own, counter.saved
        self.added_per_message = counter.added_per_message
        self.estimate, self.estimate_texts = counter.estimate, counter.estimate_texts
        self.parts, self.estimate_parts = counter.parts, counter.estimate_parts

    def message(self, message: Json) -> int:
        self.asked.append(message)
        return self._counter.message(message)

    def plain(self, message: Json) -> int | None:
        self.asked.append(message)
        return self._counter.plain(message)


def counting(messages: Sequence[ConversationMessage], counter: TokenCounter) -> PromptCounter:
    return PromptCounter(counter, {}, WindowInputs((), tuple(messages), len(messages) - 1))


def exact(messages: Sequence[ConversationMessage], made: PromptCounter) -> PromptCount:
    bodies = [m.rendered if m.rendered is not None else m.body for m in messages]
    return made.exact(ForwardedMessages(bodies, list(range(len(bodies)))))


def as_stored(message: ConversationMessage, number: int, by: Mapping[str, int] | None) -> ConversationMessage:
    form = message.rendered if message.rendered is not None else message.body
    return replace(message, message_id=f"msg_{number}", tokens=TokenCounts(form, by or {}))


def kept(new: Sequence[ConversationMessage], answers: Sequence[Json], made: PromptCounter) -> StoredTurn:
    replies = [
        NewAnswer(ConversationMessage("assistant", body, message_id="msg_a"), n) for n, body in enumerate(answers)
    ]
    turn = StoredTurn(
        conversation_id="conv_1",
        created=False,
        parent_id=None,
        at_head=True,
        instructions=(),
        new_messages=tuple(new),
        answers=tuple(replies),
    )
    return with_counts(turn, made)


@given(bodies=st.lists(BODIES, min_size=1, max_size=6), data=st.data(), facts=st.sampled_from(MODELS))
def test_a_stored_count_is_what_a_fresh_one_would_be(
    bodies: list[Json], data: st.DataObject, facts: ModelFacts
) -> None:
    """§4 I1: whatever of a conversation was counted before, and with whichever tokenizer."""
    messages = [replace(m, message_id=None) for m in stored(bodies)]
    if data.draw(st.booleans()):
        messages[-1] = replace(messages[-1], rendered=user("a block, and " + str(messages[-1].content)))
    first = counting(messages, CounterRegistry().counter(data.draw(st.sampled_from(MODELS))))
    exact(messages, first)
    counted = [m.tokens.by if m.tokens else None for m in kept(messages, [], first).new_messages]
    known = [as_stored(m, n, counted[n] if data.draw(st.booleans()) else None) for n, m in enumerate(messages)]
    fresh = exact(messages, counting(messages, CounterRegistry().counter(facts)))
    assert exact(known, counting(known, CounterRegistry().counter(facts))) == fresh


def test_a_request_counts_only_what_is_new_to_it() -> None:
    """The new message and the answer are counted once; what was stored without a count is counted once more."""
    path = [as_stored(m, n, None) for n, m in enumerate(stored([user("one"), assistant("two")]))]
    question, answer = ConversationMessage("user", user("three")), assistant("four")
    first = Watched(CounterRegistry().counter(GPT))
    made = counting([*path, question], first)
    exact([*path, question], made)
    assert first.asked == [user("one"), assistant("two"), user("three")]
    turn = kept([question], [answer], made)
    assert first.asked[3:] == [answer]
    assert [key for key, _ in turn.counts] == ["msg_0", "msg_1"]

    tokens = [by for _, by in turn.counts]
    tokens += [m.tokens.by for m in (*turn.new_messages, turn.answers[0].message) if m.tokens]
    bodies = [user("one"), assistant("two"), user("three"), answer]
    path = [as_stored(m, n, tokens[n]) for n, m in enumerate(stored(bodies))]
    second = Watched(CounterRegistry().counter(GPT))
    question = ConversationMessage("user", user("five"))
    made = counting([*path, question], second)
    exact([*path, question], made)
    assert second.asked == [user("five")]
    assert kept([question], [], made).counts == ()


def test_a_message_that_is_forwarded_in_another_form_is_counted_in_that() -> None:
    """A count is of the very form that is stored: another provider's thoughts are left out, a call is left out …"""
    (message,) = stored([{**assistant("said"), "reasoning_content": "thought " * 50}])
    whole = as_stored(message, 0, {CounterRegistry().counter(GPT).tokenizer: 1000})
    assert counting([whole], CounterRegistry().counter(GPT)).message(whole.body) == 1000
    other = replace(whole, body=assistant("said"))
    made = counting([other], CounterRegistry().counter(GPT))
    assert made.message(other.body) == CounterRegistry().counter(GPT).message(assistant("said"))
    assert made.new_counts() == []


@pytest.mark.parametrize("facts", MODELS)
def test_what_depends_on_more_than_the_tokenizer_is_not_kept(facts: ModelFacts) -> None:
    message = ConversationMessage("user", user([PICTURE]))
    made = counting([message], CounterRegistry().counter(facts))
    exact([message], made)
    assert made.counted(message.body) == {}


def test_where_nothing_is_counted_nothing_is_kept() -> None:
    """What surely fits costs no count, and a long answer keeps nobody waiting."""
    question, answer = ConversationMessage("user", user("one")), assistant("two")
    made = counting([question], CounterRegistry().counter(GPT))
    turn = kept([question], [answer], made)
    assert [m.tokens for m in (*turn.new_messages, turn.answers[0].message)] == [None, None]
    assert turn.counts == ()
    exact([question], made)
    (long,) = kept([question], [assistant("word " * 5000)], made).answers
    assert long.message.tokens is not None
    assert long.message.tokens.by == {}


SHARES = (0.7, 0.9)
CALLBACKS = FittingCallbacks(assemble, PassageFinder(None, "tenant"), compact, worded)
PAPER = "The lamp of the lighthouse is lit at dusk. " * 40


def fitter(made: WindowInputs, tokens: int | None, counting: PromptCounter) -> WindowFitter:
    """What fits a window within so many tokens."""
    return WindowFitter(made, SelectionLimits(tokens, 0.1), counting, CALLBACKS)


def material(words: int) -> WindowInputs:
    """A short talk beside a document that stands in the block."""
    path = tuple(replace(m, message_id=None) for m in stored([user("word " * words), assistant("yes"), user("When?")]))
    paper = Artifact("art_1", ArtifactType.DOCUMENT, PAPER, len(PAPER), "attachment:0")
    return WindowInputs((), path, 2, attached=(paper,))


def counter(made: WindowInputs) -> tuple[PromptCounter, Watched]:
    watched = Watched(CounterRegistry().counter(GPT))
    return PromptCounter(watched, {}, made), watched


@given(words=st.integers(0, 600), budget=st.integers(1, 4000))
def test_it_is_known_on_which_side_of_each_share_it_is(words: int, budget: int) -> None:
    made = material(words)
    counting, _ = counter(made)
    exact = counting.total(assemble(made, count_full(fitter(made, None, counting)).selection))
    found = count_full(fitter(made, budget, counter(made)[0]), SHARES)
    for share in (*SHARES, 1.0):
        assert (found.tokens > share * budget) == (exact > share * budget)
        assert (found.tokens >= share * budget) == (exact >= share * budget)
    assert found.new_pass == (exact > budget)
    assert found.tokens == exact or exact <= SHARES[0] * budget or exact > budget


def test_what_is_surely_below_all_shares_is_not_counted() -> None:
    made = material(100)
    counting, watched = counter(made)
    found = count_full(fitter(made, 100_000, counting), SHARES)
    assert (watched.asked, counting.is_exact, found.new_pass) == ([], False, False)
    assert found.tokens == counting.estimate(found.forwarded).total


KINDS = {
    "prose": "The lamp of the lighthouse is lit at dusk, and the keeper goes up. ",
    "code": "    for index, (name, value) in enumerate(sorted(found.items())):\n        rows[index].add(name)\n",
    "figures": "2026-11-27T04:26:51.318,17.25,-0.0041,88123907,0x7fe3a1\n",
    "base64": "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
    "script": "灯塔的灯在黄昏时点亮。🙂",
}


def much(kinds: Sequence[str], sizes: Sequence[int]) -> WindowInputs:
    """A loop of tool results that nobody has counted, each of a kind and about so many characters."""
    said = [user("What does it say?")]
    for number, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        text = f"{number} " + KINDS[kind] * (1 + size // len(KINDS[kind]))
        said += [assistant(None, f"call_{number}"), tool(f"call_{number}", text[:size])]
    return WindowInputs((), tuple(replace(m, message_id=None, tokens=None) for m in stored(said)), 0)


LOOPS = st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(500, 20_000)), min_size=6, max_size=12)


@settings(max_examples=40, deadline=None)
@given(loop=LOOPS, share_of_bytes=st.floats(0.1, 1.6))
def test_what_samples_show_to_fit_does(loop: list[tuple[str, int]], share_of_bytes: float) -> None:
    made = much(*zip(*loop, strict=True))
    budget = max(1, int(share_of_bytes * sum(size for _, size in loop)))
    counting, _ = counter(made)
    found = count_full(fitter(made, budget, counting), SHARES)
    exact = counter(made)[0].total(found.forwarded)
    for share in (*SHARES, 1.0):
        assert (found.tokens > share * budget) == (exact > share * budget)
    if not counting.is_exact:
        assert abs(found.tokens - exact) <= 0.15 * exact


@pytest.mark.parametrize("sparse", [" ", "-" * 60 + "\n", "aaaa"], ids=["spaces", "rules", "letters"])
@pytest.mark.parametrize("dense", ["\U00013000\U00013001", "🙂灯Ω", KINDS["base64"]], ids=["rare", "signs", "base64"])
def test_what_lies_between_two_samples_may_be_all_tokens(sparse: str, dense: str) -> None:
    """Beside what has hardly any, that is many times the estimate."""
    chars, start, end = 200_000, 49_000, 59_000
    text = (sparse * chars)[:start] + (dense * chars)[: end - start] + (sparse * chars)[: chars - end]
    said = stored([user("What?"), assistant(None, "call_0"), tool("call_0", text)])
    made = WindowInputs((), tuple(replace(each, message_id=None, tokens=None) for each in said), 0)
    counting, _ = counter(made)
    forwarded = assemble(made, count_full(fitter(made, None, counting)).selection)
    budget = counter(made)[0].total(forwarded) - 1
    assert count_full(fitter(made, budget, counter(made)[0]), SHARES).new_pass


@pytest.mark.parametrize(
    ("times_exact", "chars", "is_counted"),
    [(1.5, 60_000, False), (0.6, 60_000, True), (1.5, 25_000, True)],
    ids=["far below", "near", "little to count"],
)
def test_much_is_counted_where_its_figure_is_near_a_limit(times_exact: float, chars: int, is_counted: bool) -> None:
    """Little is counted: it costs no more than samples, and later requests need not."""
    made = much(["prose"] * 10, [chars // 10] * 10)
    counting, watched = counter(made)
    forwarded = assemble(made, count_full(fitter(made, None, counting)).selection)
    budget = int(2 * times_exact * counter(made)[0].total(forwarded) / SHARES[0])
    assert counting.upper_bound(forwarded) > SHARES[0] * budget
    assert not watched.asked
    count_full(fitter(made, budget, counting), SHARES)
    assert (bool(watched.asked), counting.is_exact) == (is_counted, is_counted)


def test_without_a_budget_nothing_is_counted() -> None:
    made = material(100)
    counting, watched = counter(made)
    found = count_full(fitter(made, None, counting), SHARES)
    assert (watched.asked, found.new_pass) == ([], False)


@pytest.mark.parametrize("budget", [600, 800, 3000])
def test_what_was_measured_is_not_counted_again(budget: int) -> None:
    """Not even the message with the block, which is a new one in each selection."""
    made = material(100)
    counting, watched = counter(made)
    limits = SelectionLimits(budget, 0.1)
    known = count_full(WindowFitter(made, limits, counting, CALLBACKS), SHARES)
    before = list(watched.asked)
    assert before
    fitted = fit(WindowFitter(made, limits, counting, CALLBACKS), known)
    assert (fitted.new_pass, fitted.tokens <= budget) == (known.new_pass, True)
    assert known.new_pass or watched.asked == before
    assert fitted == fit(WindowFitter(made, limits, counter(made)[0], CALLBACKS))


ESTIMATED = ModelFacts("openai/some-llama", token_margin=0.9)
OWN = ModelFacts("gpt-4o")
FULL = ContextSettings(low_water=1)
TALK = [m for n in range(60) for m in (user(f"question {n} " + "word " * 40), assistant(f"answer {n} " + "word " * 60))]


async def filled(facts: ModelFacts, words: int, budget: int) -> int:
    asked = [*TALK, user("last " + "word " * words)]
    return (await build(asked, budget, settings=FULL, facts=facts)).fitted.tokens


@pytest.mark.long
async def test_s4_i1_an_estimate_leaves_room_for_what_it_may_be_wrong_by() -> None:
    budgets = range(1000, 5000, 500)
    for budget in budgets:
        assert 0.95 * budget < await filled(ESTIMATED, 20, budget) <= 0.99 * budget
    assert any([await filled(OWN, 20, budget) > 0.99 * budget for budget in budgets])


async def test_what_cannot_be_made_shorter_may_take_all_of_the_budget() -> None:
    least = (await build([user("last " + "word " * 900)], None, facts=ESTIMATED)).counting
    assert least is not None
    needed = least.message(user("last " + "word " * 900)) + 3
    assert await filled(ESTIMATED, 900, needed) == needed
    with pytest.raises(ContextLengthExceeded):
        await filled(ESTIMATED, 900, needed - 1)


@pytest.mark.parametrize(
    ("url", "estimated"),
    [
        ("data:image/png;base64,AAAA", False),
        ("DATA:image/png;base64,AAAA", False),
        ("https://example.invalid/a.png", True),
    ],
)
async def test_s6_a_picture_is_guessed_only_where_its_data_is_elsewhere(url: str, estimated: bool) -> None:
    picture = image_part(url)
    asked = user([text_part("What is it?"), picture])
    assert (await build([asked], None, facts=OWN)).fitted.estimated is estimated
