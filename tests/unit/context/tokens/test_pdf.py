"""What PDFs cost that models read themselves, by formulas written down here a second time (guarantee §14.1)."""

import base64
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.tokens.counter import CounterRegistry, pdf_tokens
from gateway.core.types.chat import ModelFacts
from gateway.documents.document import PageFacts, Reading
from tests.support.documents import file_part, tokens

LETTER = PageFacts(612, 792, has_picture=True)
A4 = PageFacts(595.28, 841.89, has_picture=True)
SLIDE = PageFacts(960, 540, has_picture=False)


def openai_picture(page: PageFacts) -> int:
    """High detail: within 2,048 pixels, then the shorter side 768; 85 and 170 for each tile of 512."""
    short, long = sorted((page.width, page.height))
    height = min(2048.0, 768 * long / short)
    return 85 + 170 * ceil(768 / 512) * ceil(height / 512)


@pytest.mark.parametrize("page", [LETTER, A4, SLIDE])
def test_s14_1_openai_charges_text_and_a_picture_of_each_page(page: PageFacts) -> None:
    text = "[page 1]\nThe keeper\n\n[page 2]\nof the lamp"
    found = pdf_tokens([page, page], text, "openai/gpt-4o", tokens)
    assert found.pictures == 2 * openai_picture(page)
    assert abs(found.texts - tokens("The keeper\n\nof the lamp")) <= 1


def test_s14_1_anthropic_charges_text_and_a_picture_of_each_page() -> None:
    """Pixels by 750, the longer side at most 1,568; a picture takes about 1,600 tokens at most."""
    found = pdf_tokens([LETTER] * 3, "[page 1]\nwords", "anthropic/claude-sonnet-4-5", tokens)
    assert found == (tokens("words"), 3 * 1640)
    narrow = pdf_tokens([PageFacts(100, 1000, has_picture=False)], "", "claude-sonnet-4-5", tokens)
    assert narrow.pictures == pytest.approx(157 * 1568 / 750, abs=2)


@pytest.mark.parametrize(
    ("model", "page"),
    [("gemini-2.0-flash", 258), ("gemini-2.5-pro", 258), ("gemini-3-pro-preview", 560), ("gemini-flash-latest", 560)],
)
def test_s14_1_google_charges_by_the_page(model: str, page: int) -> None:
    assert sum(pdf_tokens([LETTER] * 4, "[page 1]\n" + "word " * 900, f"gemini/{model}", tokens)) == 4 * page


def test_s14_1_a_message_costs_what_its_pages_cost_and_never_its_base64() -> None:
    registry, facts = CounterRegistry(), ModelFacts("gpt-4o")
    part = file_part("a.pdf", b"%PDF-1.4" + bytes(300_000), "application/pdf")
    message = {"role": "user", "content": [part]}
    guessed = registry.counter(facts).message(message)
    assert guessed < 20_000, "of a PDF that nobody has read an estimate"
    registry.note_pdf(facts, part["file"]["file_data"], Reading("[page 1]\nThe keeper", pages=(LETTER,)))
    assert registry.counter(facts).message(message) == 3 + 1 + 765 + tokens("The keeper")
    assert registry.counter(facts).plain(message) is None, "it is not stored, since it depends on the model"


@given(raw=st.binary(max_size=400), name=st.sampled_from(["a.pdf", "a", ""]), model=st.text(max_size=30))
def test_s14_1_whatever_the_bytes_are_counting_never_fails(raw: bytes, name: str, model: str) -> None:
    part = {"type": "file", "file": {"filename": name, "file_data": base64.b64encode(raw).decode()}}
    assert CounterRegistry().counter(ModelFacts(model)).message({"role": "user", "content": [part]}) > 0


@given(
    size=st.tuples(st.floats(-1e9, 1e9), st.floats(0, 1e-9)),
    model=st.sampled_from(["gpt-4o", "claude-3", "gemini-2", "o4-mini", "x"]),
)
def test_s14_1_whatever_the_size_of_a_page_is(size: tuple[float, float], model: str) -> None:
    assert pdf_tokens([PageFacts(*size, has_picture=False)], "", model, tokens).pictures > 0
