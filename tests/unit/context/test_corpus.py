"""Files of real programs: a fact on a late page, sheet, slide or record reaches the model, by each road (§14)."""

import base64
import itertools
from collections.abc import Callable

import pytest

from evals.corpus.broken import broken
from evals.corpus.facts import Fact, tells
from evals.corpus.samples import Sample, corpus, readable
from tests.support.answers import Json, user
from tests.support.documents import file_part, prompt_tokens, text_of
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

BUDGET = 2000
MODEL = "gpt-4o"
READABLE = [sample for sample in corpus() if readable(sample)]
BROKEN = 1
"""Broken files of each format that go over HTTP; more of them are read in `test_malformed_files.py`."""


shared_budget = shared_gateway({"context": {"max_input_tokens": BUDGET}})


@pytest.fixture
def small_budget(shared_budget: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway whose requests have room for 2,000 tokens, before a model that counts as OpenAI's do."""
    upstream.count_prompt = prompt_tokens
    return shared_budget


def encoded(sample: Sample) -> str:
    return base64.b64encode(sample.raw).decode()


def by_attachment(sample: Sample, question: str) -> tuple[str, Json]:
    attached = {"filename": sample.name, "file_data": encoded(sample)}
    return "/chat/completions", {"messages": [user(question)], "attachments": [attached]}


def by_file_part(sample: Sample, question: str) -> tuple[str, Json]:
    parts = [file_part(sample.name, sample.raw, sample.media), {"type": "text", "text": question}]
    return "/chat/completions", {"messages": [user(parts)]}


def by_input_file(sample: Sample, question: str) -> tuple[str, Json]:
    data = f"data:{sample.media};base64,{encoded(sample)}"
    file = {"type": "input_file", "filename": sample.name, "file_data": data}
    return "/responses", {"input": [user([file, {"type": "input_text", "text": question}])]}


def by_document(sample: Sample, question: str) -> tuple[str, Json]:
    source = {"type": "base64", "media_type": sample.media, "data": encoded(sample)}
    document = {"type": "document", "title": sample.name, "source": source}
    asked = user([document, {"type": "text", "text": question}])
    return "/messages", {"messages": [asked], "max_tokens": 100}


def _around(text: str, fact: Fact) -> str:
    """What was forwarded before the fact, or its beginning where the fact is not there."""
    found = fact.pattern.search(text)
    return "..." + text[max(0, found.start() - 400) : found.end()] if found else text[:400]


Road = Callable[[Sample, str], tuple[str, Json]]
ROADS: dict[str, Road] = {
    "attachment": by_attachment,
    "file part": by_file_part,
    "input_file": by_input_file,
    "document": by_document,
}


@pytest.mark.parametrize(
    ("sample", "road"),
    [
        pytest.param(sample, name, id=f"{sample.name}, {name}")
        for sample, name in zip(READABLE, itertools.cycle(ROADS), strict=False)
    ],
)
def test_s14_a_late_fact_reaches_the_model_by_each_road(
    small_budget: GatewayProcess, upstream: MockUpstream, sample: Sample, road: str
) -> None:
    """Each file by one road, in turn. Within 2,000 tokens, and beside it the model is told the page, slide, cells or
    file where it stands."""
    fact = sample.facts[0]
    path, body = ROADS[road](sample, fact.question)
    answer = small_budget.post(path, json={"model": MODEL, **body})
    assert answer.status_code == 200, answer.text[:500]
    sent = upstream.last.body or {}
    text = text_of(sent)
    if not tells(text, fact):
        pytest.fail(f"{fact} is not told in: {_around(text, fact)}", pytrace=False)
    assert prompt_tokens(sent) <= BUDGET


@pytest.mark.parametrize("sample", [each for each in READABLE if not each.needs], ids=lambda sample: sample.name)
def test_s14_12_broken_files_are_no_fault_of_the_gateway(small_budget: GatewayProcess, sample: Sample) -> None:
    """Read, or a 400 that names the file; never a 5xx."""
    for seed in range(BROKEN):
        raw = broken(sample.raw, 500 + seed)
        path, body = by_attachment(Sample(sample.name, sample.media, raw, ()), "What does it say?")
        answer = small_budget.post(path, json={"model": MODEL, **body})
        assert answer.status_code in (200, 400), answer.text
        if answer.status_code == 400:
            assert answer.json()["error"]["param"].startswith("attachments[0]"), answer.text


def test_s14_what_cannot_be_read_says_what_to_do(small_budget: GatewayProcess) -> None:
    """Word's old format: the answer names one that is read."""
    old = next(sample for sample in corpus() if sample.ending == "doc")
    path, body = by_attachment(old, "What does it say?")
    answer = small_budget.post(path, json={"model": MODEL, **body})
    assert answer.status_code == 400, answer.text
    assert "DOCX" in answer.json()["error"]["message"]
