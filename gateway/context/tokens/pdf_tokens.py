"""What a PDF costs that a model reads itself, by its provider's published formula (guarantee §14.1).

| provider | each page costs | published in |
|---|---|---|
| OpenAI, and all others | its text, and a picture of it in high detail | "PDF files", "Images and vision" |
| Anthropic | its text, and a picture of it | "PDF support", "Vision" |
| Google | 560 tokens, 258 before Gemini 3; the text is free | "Document understanding", "Media resolution" |

No provider says in which size it renders pages: taken is one that all formulas scale down, so that it does not matter.
"""

import re
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, NamedTuple

from gateway.context.tokens.images import picture_tokens
from gateway.core.bounded_cache import BoundedCache
from gateway.core.types.provider_facts import family_of
from gateway.documents.document import PageFacts

RENDERED = 2200
"""Pixels of a page's longer side."""
MARKED = re.compile(r"^\[page \d+\]\n?", re.MULTILINE)
GUESSED_BYTES = 40_000
"""Bytes of base64 for a page, where nobody has read the PDF."""
GUESSED_TEXT = 500
"""Tokens of the text of a page then."""
LETTER = PageFacts(612.0, 792.0, has_picture=False)
MAX_REMEMBERED = 10_000


class PdfTokens(NamedTuple):
    """Tokens of a PDF: those of its texts, which vary with the model's tokenizer, and those of its pictures."""

    texts: int
    pictures: int


def pdf_tokens(pages: Sequence[PageFacts], text: str, model: str, count: Callable[[str], int]) -> PdfTokens:
    """What a PDF of these pages costs.

    Args:
        text: of all pages, with their marks.
        model: its name, with or without its provider.
        count: tokens of a text.
    """
    page_tokens = family_of(model).page
    if page_tokens is not None:
        return PdfTokens(0, page_tokens * len(pages))
    pictures = sum(picture_tokens(_pixels(page), model) for page in pages)
    return PdfTokens(count(MARKED.sub("", text)), pictures)


def guessed_tokens(data: str, model: str) -> int:
    """About what a PDF costs that nobody could read."""
    pages = ceil(len(data) / GUESSED_BYTES)
    one = pdf_tokens([LETTER], "x" * GUESSED_TEXT, model, len)
    return pages * sum(one)


def _pixels(page: PageFacts) -> tuple[int, int]:
    width, height = max(1.0, page.width), max(1.0, page.height)
    scale = RENDERED / max(width, height)
    return max(1, round(width * scale)), max(1, round(height * scale))


class KnownPdfs:
    """Costs of the PDFs that were read, by content, model and vocabulary, and the ids of what they say, which are those
    of the same PDFs attached; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._known: BoundedCache[tuple[Any, ...], PdfTokens] = BoundedCache(MAX_REMEMBERED)
        self._said: BoundedCache[tuple[int, int], str] = BoundedCache(MAX_REMEMBERED)

    def get(self, data: str, model: str, encoding: str) -> PdfTokens | None:
        """What a PDF costs with this data; None if it was not read."""
        return self._known.peek(_key(data, model, encoding))

    def put(self, data: str, model: str, encoding: str, tokens: PdfTokens, content_id: str) -> None:
        """Remembers both."""
        self._known.put(_key(data, model, encoding), tokens)
        self._said.put((len(data), hash(data)), content_id)

    def content_id(self, data: str) -> str | None:
        """The id of what a PDF says with this data; None if it was not read."""
        return self._said.peek((len(data), hash(data)))


def _key(data: str, model: str, encoding: str) -> tuple[Any, ...]:
    return len(data), hash(data), model, encoding
