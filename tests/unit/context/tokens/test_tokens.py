"""Tokens of messages, tools and texts: counted, estimated by samples, and bounded without counting."""

import base64
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.tokens.counter import (
    MAX_COUNTED_CHARS,
    CounterRegistry,
    encoding_name,
    estimated_tokens,
    vocabulary_folder,
)
from gateway.context.tokens.model_margins import PromptReport
from gateway.context.window.counting import PromptCounter
from gateway.core import jsons
from gateway.core.types.chat import ModelFacts
from gateway.core.types.window import ForwardedMessages, WindowInputs
from tests.support.o200k import message_tokens, prompt_tokens, text_tokens
from tests.unit.making import assistant, system, tool, user

GPT = ModelFacts("gpt-4o")
OTHER = ModelFacts("openai/some-llama")
WORDS = st.text('abc XYZ\n\t.,é数据🙂<|endoftext|>{}"\\', max_size=80)


@given(text=st.one_of(WORDS, st.text('\t"数🙂🏴\U000e0067', min_size=1, max_size=3)))
def test_a_text_is_counted_as_the_models_tokenizer_does(text: str) -> None:
    assert CounterRegistry().counter(GPT).text(text) == text_tokens(text)
    assert CounterRegistry().counter(GPT).text(text * 40) == text_tokens(text * 40)


@given(text=WORDS, other=WORDS)
def test_a_message_is_never_counted_less_than_the_model_does(text: str, other: str) -> None:
    counter = CounterRegistry().counter(GPT)
    parts = [{"type": "text", "text": text}, {"type": "text", "text": other}]
    for message in (user(text), system(other), user(parts), assistant(text, "c", arguments=other), tool("c", text)):
        counted, true = counter.message(message), message_tokens(message)
        quoted = 2 * len(other) if message.get("tool_calls") else 0
        assert true <= counted <= true + 20 + quoted


@given(arguments=WORDS)
def test_a_short_call_is_never_counted_less_than_its_json(arguments: str) -> None:
    """Who counts calls as JSON, arguments quoted, is not exceeded by a token; long arguments count as they are."""
    counter = CounterRegistry().counter(GPT)
    call = assistant("", "c", name="search", arguments=arguments)
    functions = [each["function"] for each in call["tool_calls"]]
    assert counter.message(call) >= 4 + 4 + text_tokens(json.dumps(functions, ensure_ascii=False))
    many = assistant("", "c", name="search", arguments='"' * 10_000)
    assert counter.message(many) < text_tokens(json.dumps('"' * 10_000))


def test_a_special_token_in_a_text_is_text() -> None:
    assert CounterRegistry().counter(GPT).text("<|endoftext|>" * 50) == text_tokens("<|endoftext|>" * 50) > 100


@pytest.mark.parametrize(("image", "tokens"), [({"url": "x", "detail": "low"}, 85), ({"url": "x"}, 1445), ("x", 1445)])
def test_a_picture_costs_by_the_providers_formula_and_not_by_its_bytes(image: Any, tokens: int) -> None:
    counter = CounterRegistry().counter(GPT)
    bare = counter.message(user([]))
    assert counter.message(user([{"type": "image_url", "image_url": image}])) == bare + tokens


@pytest.mark.parametrize(
    ("model", "encoding", "exact"),
    [
        ("gpt-4o", "o200k_base", True),
        ("openai/gpt-4o-mini", "o200k_base", True),
        ("gpt-3.5-turbo", "cl100k_base", True),
        ("openai/some-llama", "o200k_base", False),
    ],
)
def test_a_model_is_counted_with_its_own_encoding_where_that_is_known(model: str, encoding: str, exact: bool) -> None:
    assert encoding_name(ModelFacts(model)) == (encoding, exact)
    assert encoding_name(ModelFacts(model, tokenizer="cl100k_base")) == ("cl100k_base", True)


def test_a_model_of_unknown_tokenizer_learns_from_what_upstream_reports() -> None:
    counters = CounterRegistry()
    before = counters.counter(OTHER).text("word " * 500)
    counters.learn(OTHER, PromptReport(1000, 1500, 1000))
    after = counters.counter(OTHER).text("word " * 500)
    assert 1.5 * before <= after <= 1.5 * before + 2
    assert counters.counter(OTHER).margin == 1.5
    counters.learn(OTHER, PromptReport(1000, 900, 1000))
    assert before < counters.counter(OTHER).text("word " * 500) < after


def test_an_exact_tokenizer_learns_from_an_overflow_alone() -> None:
    counters = CounterRegistry()
    counters.learn(GPT, PromptReport(1000, 1500, 2000))
    assert counters.counter(GPT).text("word " * 500) == text_tokens("word " * 500)
    counters.learn(GPT, PromptReport(1000, 1100, 2000, refused=True))
    assert counters.counter(GPT).margin == 1.1


@pytest.mark.parametrize(
    "another",
    [
        ModelFacts("openai/another-llama"),
        replace(OTHER, served_at="http://b/v1"),
        replace(OTHER, tokenizer="p50k_base"),
    ],
)
def test_one_model_learns_nothing_from_another(another: ModelFacts) -> None:
    counters = CounterRegistry()
    counters.learn(OTHER, PromptReport(1000, 2000, 1000))
    assert counters.counter(another).margin == 1.0


@given(texts=st.lists(WORDS, min_size=1, max_size=4), margin=st.sampled_from([1.0, 1.3]))
def test_the_upper_bound_is_one(texts: list[str], margin: float) -> None:
    """What is forwarded uncounted because of its size alone really fits."""
    messages = [user(texts[0]), *(assistant(text, "c", arguments=text) for text in texts)]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}]
    forward = {"tools": tools}
    facts = ModelFacts("gpt-4o", token_margin=margin)
    counting = PromptCounter(CounterRegistry().counter(facts), forward, WindowInputs((), (), 0))
    forwarded = ForwardedMessages(messages, [-1] * len(messages))
    assert counting.exact(forwarded).total <= counting.upper_bound(forwarded)
    assert prompt_tokens(messages) * margin <= counting.upper_bound(forwarded)


def test_the_vocabularies_come_from_a_wheel_and_not_from_the_network() -> None:
    folder = vocabulary_folder()
    assert folder is not None
    assert len(list(folder.iterdir())) >= 2
    assert jsons.dumps(user("x")) == b'{"role":"user","content":"x"}'


def test_sealed_thoughts_take_room() -> None:
    """The model reads them, though nobody else can: about a token in six characters of their seal. What the provider
    ran itself counts as its text; a picture does not."""
    counter = CounterRegistry().counter(ModelFacts("gpt-4o"))
    bare = {"role": "assistant", "content": "x"}
    thought = {"type": "reasoning", "summary": [], "encrypted_content": "s" * 6000}
    picture = {"type": "image_generation_call", "result": "p" * 10**6}
    plain = counter.message(bare)
    assert 1000 <= counter.message({**bare, "reasoning_items": [thought]}) - plain < 1100
    assert counter.message({**bare, "output_items": [picture]}) - plain < 100
    ran = {
        "type": "code_execution_tool_result",
        "content": {"stdout": "so and so " * 50, "encrypted_content": "s" * 6000},
    }
    blocks = [{"type": "text", "text": "x"}, ran]
    assert 150 <= counter.message({**bare, "native_blocks": blocks}) - plain < 200
    spoken = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "so and so " * 50}]}
    said = {**bare, "reasoning_content": "so and so " * 50}
    for name in ("reasoning_items", "output_items"):
        assert counter.message({**said, name: [spoken]}) == counter.message(said), "a thought counts once"


ROOT = Path(__file__).parents[4]
SENTENCES = {
    "Russian": "Городской совет вчера вечером одобрил ремонт старой библиотеки, и работы начнутся уже весной. ",
    "Bulgarian": "Снощи общинският съвет одобри ремонта на старата библиотека, а работата започва през пролетта. ",
    "Chinese": "市议会昨晚批准了旧图书馆的翻修计划，工程将于春季开始，预计持续十八个月。",
    "Japanese": "市議会は昨夜、古い図書館の改修を承認しました。工事は春に始まり、およそ十八か月続く予定です。",
    "Korean": "시의회는 어젯밤 오래된 도서관의 보수 공사를 승인했고 공사는 봄에 시작될 예정입니다. ",
    "Arabic": "وافق مجلس المدينة مساء أمس على ترميم المكتبة القديمة وستبدأ الأعمال في الربيع. ",
    "Hindi": "नगर परिषद ने कल शाम पुराने पुस्तकालय की मरम्मत को मंज़ूरी दी और काम वसंत में शुरू होगा। ",
    "Thai": "สภาเมืองอนุมัติการปรับปรุงห้องสมุดเก่าเมื่อคืนนี้และงานจะเริ่มในฤดูใบไม้ผลิ ",
    "German": "Der Gemeinderat hat gestern Abend der Renovierung der alten Bibliothek zugestimmt. ",
    "pictures": "Great job 🎉🎉 see you 👋🏽 lunch 🍕😋 don't forget the demo 🚀🔥 ok? 👍 ❤️❤️ ",
}


def _varied(sentence: str) -> str:
    """Sentences with their words in another order each time, so that no sample is like the other."""
    rng, words = random.Random(5), sentence.split(" ")
    return "".join(" ".join(rng.sample(words, len(words))) + f" {n}. " for n in range(150))


def _records() -> str:
    rng = random.Random(6)
    rows = [
        {"id": f"ORD-{rng.randint(1000, 9999)}", "total": round(rng.random() * 500, 2), "note": "left at the door"}
        for _ in range(150)
    ]
    return json.dumps(rows, indent=2)


def _mixed() -> str:
    prose = (ROOT / "docs" / "context.md").read_text()
    return "\n".join([prose[:5000], _records()[:5000], _varied(SENTENCES["Chinese"])[:5000], _records()[-5000:]])


TEXTS = {
    **{name: _varied(sentence) for name, sentence in SENTENCES.items()},
    "prose": (ROOT / "docs" / "economy.md").read_text(),
    "Markdown": (ROOT / "docs" / "configuration.md").read_text(),
    "code": (ROOT / "gateway/pipeline/pipeline.py").read_text(),
    "tests": (ROOT / "tests" / "conftest.py").read_text(),
    "JSON": _records(),
    "compact JSON": json.dumps(json.loads(_records())),
    "base64": base64.b64encode(random.Random(7).randbytes(9000)).decode(),
    "hexadecimal": random.Random(8).randbytes(5000).hex(),
    "numbers": " ".join(str(random.Random(n).randint(0, 10**6)) for n in range(1500)),
    "log": "\n".join(
        f"2026-11-{n % 28 + 1:02d}T10:00:{n % 60:02d}Z INFO [w-{n % 7}] done in {n} ms" for n in range(150)
    ),
    "mixed": _mixed(),
}


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
@pytest.mark.parametrize("name", TEXTS)
def test_s6_an_estimate_is_within_fifteen_percent_of_a_count(name: str, encoding: str) -> None:
    counter = CounterRegistry().counter(ModelFacts("model", tokenizer=encoding))
    for text in (TEXTS[name], TEXTS[name][: MAX_COUNTED_CHARS + 100]):
        message = {"role": "user", "content": text}
        tokens, counted = counter.estimate([message])
        assert not counted
        assert tokens == pytest.approx(counter.message(message), rel=0.15)


def test_s6_a_long_history_is_sampled_in_the_same_places_when_it_grows() -> None:
    sampled: list[list[str]] = []

    def pieces(found: Sequence[str]) -> list[int]:
        sampled.append(list(found))
        return list(map(len, found))

    texts = [_varied(f"What was said in turn {turn}.") for turn in range(40)]
    for more in (0, 1, 5):
        estimated_tokens([*texts, *texts[:more]], len, pieces)
    first, next_one, later = sampled
    assert first[:-1] == next_one[: len(first) - 1] == later[: len(first) - 1]
    assert len(first) >= 32


def test_s6_short_messages_are_counted() -> None:
    counter = CounterRegistry().counter(ModelFacts("model", tokenizer="o200k_base"))
    messages = [{"role": "user", "content": "word " * 60}, {"role": "assistant", "content": "灯台守"}]
    assert counter.estimate(messages) == (sum(map(counter.message, messages)), True)


def test_s6_pictures_are_in_the_estimate() -> None:
    counter = CounterRegistry().counter(ModelFacts("model", tokenizer="o200k_base"))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    message = {"role": "user", "content": [{"type": "text", "text": TEXTS["prose"]}, picture]}
    assert counter.estimate([message])[0] == pytest.approx(counter.message(message), rel=0.15)
