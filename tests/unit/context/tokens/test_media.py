"""Pictures (guarantee §4 I1) and the PDFs that models read themselves (§14.1), by the providers' published formulas."""

import base64
import struct
import zlib
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.tokens.counter import CounterRegistry, image_tokens, pdf_tokens
from gateway.core.types.chat import ModelFacts
from gateway.documents.document import PageFacts, Reading
from tests.support.documents import file_part, tokens


def png(width: int, height: int) -> str:
    """A data URL with the header of a PNG of that size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    raw = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(header)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return "data:image/png;base64," + base64.b64encode(raw).decode()


@pytest.mark.parametrize(
    ("width", "height", "model", "tokens"),
    [
        (1024, 1024, "gpt-4o", 85 + 4 * 170),  # the example of OpenAI's guide
        (2048, 4096, "gpt-4o", 85 + 6 * 170),  # the other one
        (1, 1, "openai/gpt-4.1", 85 + 170),
        (4096, 8192, "gpt-4o", 85 + 6 * 170),
        (1024, 1024, "gpt-5", 70 + 4 * 140),
        (1024, 1024, "o3", 75 + 4 * 150),
        (1024, 1024, "gpt-4.1-mini", 1659),  # 1024 patches * 1.62
        (4000, 4000, "gpt-5-nano", 3779),  # capped at 1536 patches
        (1000, 1000, "anthropic/claude-sonnet-4-5", 1334),
        (100, 100, "claude-opus-4-1", 14),
        (100, 100, "some/llava", 85 + 170),
    ],
)
def test_a_picture_of_known_size(width: int, height: int, model: str, tokens: int) -> None:
    assert image_tokens({"url": png(width, height)}, model) == tokens


@pytest.mark.parametrize(
    "head", ["DATA:image/png;base64,", "data:IMAGE/PNG;BASE64,", "Data:image/png;charset=x;Base64,"]
)
def test_a_data_url_has_no_case(head: str) -> None:
    url = head + png(1024, 1024).partition(",")[2]
    assert image_tokens({"url": url}, "gpt-4o") == 85 + 4 * 170


@pytest.mark.parametrize("url", ["https://example.invalid/a.png", "data:,x"])
def test_a_picture_of_unknown_size_costs_the_most(url: str) -> None:
    assert image_tokens({"url": url}, "gpt-4o") == 85 + 8 * 170
    assert image_tokens(url, "gpt-4o") == 85 + 8 * 170


@pytest.mark.parametrize(("chars", "tiles"), [(0, 1), (4, 1), (20_000, 1), (100_000, 4), (4_000_000, 4)])
def test_a_picture_that_cannot_be_read_costs_what_so_many_bytes_could_hold(chars: int, tiles: int) -> None:
    assert image_tokens({"url": "data:image/png;base64," + "A" * chars}, "gpt-4o") == 85 + tiles * 170


def test_low_detail_costs_the_base_alone() -> None:
    assert image_tokens({"url": png(4000, 4000), "detail": "low"}, "gpt-4o") == 85


@pytest.mark.parametrize("image", [None, 5, {}, {"url": 7}, {"url": None, "detail": ["low"]}])
def test_what_is_no_picture_is_no_error(image: object) -> None:
    assert image_tokens(image, "gpt-4o") == 85 + 8 * 170


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
