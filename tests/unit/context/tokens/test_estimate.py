"""An estimate from samples is within 15 % of a count, whatever the text (guarantee §6)."""

import base64
import json
import random
from pathlib import Path

import pytest

from gateway.context.tokens.counter import MAX_COUNTED_CHARS, CounterRegistry
from gateway.core.types.chat import ModelFacts

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
    "prose": (ROOT / "docs" / "adr" / "0011-relevance.md").read_text(),
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


def test_s6_short_messages_are_counted() -> None:
    counter = CounterRegistry().counter(ModelFacts("model", tokenizer="o200k_base"))
    messages = [{"role": "user", "content": "word " * 60}, {"role": "assistant", "content": "灯台守"}]
    assert counter.estimate(messages) == (sum(map(counter.message, messages)), True)


def test_s6_pictures_are_in_the_estimate() -> None:
    counter = CounterRegistry().counter(ModelFacts("model", tokenizer="o200k_base"))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    message = {"role": "user", "content": [{"type": "text", "text": TEXTS["prose"]}, picture]}
    assert counter.estimate([message])[0] == pytest.approx(counter.message(message), rel=0.15)
