"""Counts that are stored with messages: the same as fresh ones, and made once (guarantee §4 I1)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.tokens.counter import CounterRegistry
from gateway.context.window.counting import PromptCount, PromptCounter
from gateway.core.jsons import Json
from gateway.core.ports import TokenCounter
from gateway.core.types.chat import ModelFacts
from gateway.core.types.conversation import ConversationMessage, TokenCounts
from gateway.core.types.turn import NewAnswer, StoredTurn
from gateway.core.types.window import ForwardedMessages, WindowInputs
from gateway.pipeline.stored_turn import with_counts
from tests.unit.making import assistant, stored, system, tool, user

GPT = ModelFacts("gpt-4o")
MODELS = [GPT, ModelFacts("gpt-3.5-turbo"), ModelFacts("openai/some-llama", token_margin=1.17)]
WORDS = st.text('abc XYZ\n.,é数据🙂<|endoftext|>{}"', max_size=60)
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
BODIES = st.one_of(
    WORDS.map(user),
    WORDS.map(assistant),
    WORDS.map(system),
    WORDS.map(lambda text: assistant(text, "c", arguments=text)),
    WORDS.map(lambda text: tool("c", text)),
    WORDS.map(lambda text: user([{"type": "text", "text": text}, PICTURE])),
    WORDS.map(
        lambda text: user([{"type": "text", "text": text}, {"type": "input_audio", "input_audio": {"data": text}}])
    ),
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
    assert made.counted_anew() == []


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
