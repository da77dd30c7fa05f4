"""What is cached of a stored path from request to request is what would be worked out anew (ADR 20): artifacts, counts,
records and what a bill leaves out, over growing and branching conversations, turns, models and frames."""

import random
from dataclasses import replace
from typing import Any

import pytest

from gateway.context.artifacts.collect import extract_artifacts_from_messages, unique_ids
from gateway.context.assembly.render import assemble
from gateway.context.planning.artifact_decisions import EarlierWindow, records_of
from gateway.context.tokens.counter import CounterRegistry
from gateway.context.window.counting import PromptCounter
from gateway.core.types.chat import ModelFacts
from gateway.core.types.conversation import ConversationMessage, FrozenDecision, MessageCache, PromptFrame, TokenCounts
from gateway.core.types.omitted_records import unlisted_among
from gateway.core.types.window import ForwardedMessages, FullPrompt, PackedWindow, WindowInputs, WindowSelection
from tests.support.marks import some_or_all

Json = dict[str, Any]
MODELS = [
    ModelFacts("gpt-4o"),
    ModelFacts("claude-sonnet-4"),
    ModelFacts("gpt-3.5-turbo"),
    ModelFacts("openai/some-llama", token_margin=1.17),
]
TEXTS = ["", "a", "the lamp is lit " * 20, "same", "same", "é数据🙂 " * 30, "x" * 1500]
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}


class Talk:
    """A stored conversation, of which each request has a beginning and something new behind it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.stored: list[ConversationMessage] = []
        self.made = 0

    def grow(self) -> list[ConversationMessage]:
        """What a request brings."""
        if self.random.random() < 0.3 or not self.stored:
            text = self.random.choice(TEXTS)
            content = [{"type": "text", "text": text}, PICTURE] if self.random.random() < 0.3 else text
            return [self._new({"role": "user", "content": content})]
        ids = [f"c{self.made}{n}" for n in range(self.random.choice((1, 1, 2)))]
        calls = [{"id": i, "type": "function", "function": {"name": "read", "arguments": "{}"}} for i in ids]
        made = [self._new({"role": "assistant", "content": None, "tool_calls": calls})]
        answered = ids[: self.random.choice((1, 2))]  # one may be left open
        texts = [self.random.choice((*TEXTS, *(f"{self.made}: {text}" for text in TEXTS))) for _ in answered]
        results = [{"role": "tool", "tool_call_id": i, "content": t} for i, t in zip(answered, texts, strict=True)]
        return [*made, *map(self._new, results)]

    def store(self, new: list[ConversationMessage]) -> None:
        """As they are read back: other objects under ids."""
        for message in new:
            body = dict(message.body)
            number = len(self.stored)
            counted = {"o200k_base/2": 7} if self.random.random() < 0.1 else {}
            kept = replace(message, body=body, sequence_number=number, message_id=f"msg_{self.made}_{number}")
            self.stored.append(replace(kept, tokens=TokenCounts(body, counted)))

    def branch(self) -> None:
        """Goes back to an earlier message."""
        del self.stored[self.random.randint(0, len(self.stored)) :]

    def _new(self, body: Json) -> ConversationMessage:
        self.made += 1
        return ConversationMessage(body["role"], body, sequence_number=len(self.stored))


def told(
    messages: tuple[ConversationMessage, ...], stored: int, facts: ModelFacts, how: Json, cache: MessageCache
) -> Any:
    """All that a request works out of its messages with this cache."""
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    current = users[-1] if users else 0
    placed = tuple(unique_ids(extract_artifacts_from_messages(messages, current, cache)))
    material = WindowInputs((), messages, current, placed, frame=how["frame"])
    selection = WindowSelection(first=how["first"])
    forwarded: ForwardedMessages = assemble(material, selection)
    counting = PromptCounter(CounterRegistry().counter(facts), {}, material, cache)
    count, bound = counting.estimate(forwarded), counting.upper_bound(forwarded)
    fitted = PackedWindow(selection, forwarded, count.total, False, count.breakdown, estimated=count.estimated)
    unreduced = FullPrompt(WindowSelection(), assemble(material, WindowSelection()), count.total)
    earlier = EarlierWindow.of(material, unreduced, stored)
    fitted = replace(fitted, new_pass=how["new_pass"])
    records = records_of(material, fitted, named=how["named"], earlier_window=earlier, cache=cache)
    unlisted = unlisted_among(records, messages, current, cache)
    left_out = [records.index(each) for each in records if unlisted and id(each) in unlisted.gone]
    as_json = unlisted.as_json() if unlisted else None
    return placed, count, bound, records, as_json, left_out, unlisted.chars if unlisted else 0


@pytest.mark.long
@pytest.mark.parametrize("block", some_or_all(range(5), (0, 1)))
def test_what_is_kept_is_what_is_worked_out_anew(block: int) -> None:
    """Also by two requests at once, which begin with the same cache."""
    known = 0
    for seed in range(16 * block, 16 * block + 16):
        talk, cache = Talk(seed), MessageCache()
        for number in range(12):
            new = talk.grow()
            messages = (*talk.stored, *new)
            first = talk.random.choice((0, 0, 0, len(talk.stored) // 2))
            results = [m for m in talk.stored if m.role == "tool"]
            decided = {}
            if results and talk.random.random() < 0.1:
                one = talk.random.choice(extract_artifacts_from_messages(talk.stored, 0))
                holder = talk.stored[one.place.message or 0].message_id or ""
                decided = {holder: (FrozenDecision(one.artifact_id, "rag_extract", 1),)}
            how = {
                "first": first,
                "frame": PromptFrame(decisions=decided) if decided or talk.random.random() < 0.1 else None,
                "new_pass": talk.random.random() < 0.1,
                "named": talk.random.random() < 0.9,
            }
            facts = talk.random.choice(MODELS[:1] * 3 + MODELS)
            before, at_once = cache.found, replace(cache)
            fresh = told(messages, len(talk.stored), facts, how, MessageCache())
            assert told(messages, len(talk.stored), facts, how, cache) == fresh, (seed, number)
            assert told(messages, len(talk.stored), facts, how, at_once) == fresh, (seed, number)
            known += before is not None and bool(before.artifacts) and before.begins(messages, before.current)
            if talk.random.random() < 0.9:
                talk.store([*new, *([talk._new({"role": "assistant", "content": "yes"})] if number % 3 == 2 else [])])
            if talk.random.random() < 0.15:
                talk.branch()
    assert known > 60  # the cache was of use


def test_a_message_that_was_replaced_is_looked_at_anew() -> None:
    """After a deletion a path has other objects; equal ones do not count as the same."""
    body = {"role": "tool", "tool_call_id": "c", "content": "before"}
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    asked = ConversationMessage("assistant", {"role": "assistant", "tool_calls": [call]}, 0, "msg_0")
    cache = MessageCache()
    extract_artifacts_from_messages([asked, ConversationMessage("tool", body, 1, "msg_1")], 0, cache)
    changed = ConversationMessage("tool", {**body, "content": "[gone]"}, 1, "msg_1")
    (artifact,) = extract_artifacts_from_messages([asked, changed], 0, cache)
    assert artifact.content == "[gone]"
