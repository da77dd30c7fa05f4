"""Token counts, offline: tiktoken with the vocabularies of litellm's wheel (ADR 3).

A vocabulary is loaded (0.3 s, 76 MB) when the server answers, or at the first count; never at import.

Images are counted by the provider's published formula (guarantee §4 I1).

PDFs that a model reads itself are counted by its provider's published formula (guarantee §14.1).

| provider | each page costs | published in |
|---|---|---|
| OpenAI, and all others | its text, and an image of it in high detail | "PDF files", "Images and vision" |
| Anthropic | its text, and an image of it | "PDF support", "Vision" |
| Google | 560 tokens, 258 before Gemini 3; the text is free | "Document understanding", "Media resolution" |

No provider states the size in which it renders pages: one is assumed that all formulas scale down, so any will do.
"""

import asyncio
import base64
import binascii
import importlib.util
import io
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from json.encoder import encode_basestring
from math import ceil, isqrt
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import imagesize

from gateway.context.tokens.model_margins import ModelMargins, PromptReport
from gateway.core import ids, jsons
from gateway.core.bounded_cache import BoundedCache
from gateway.core.clock import SystemClock
from gateway.core.formats import tool_calls
from gateway.core.types import items, upstreams
from gateway.core.types.chat import ModelFacts
from gateway.core.types.content_parts import parts_of
from gateway.core.types.conversation import MessageParts
from gateway.documents import PageFacts, Reading

if TYPE_CHECKING:
    import tiktoken

HEADER_BYTES = 96 * 1024
PIXELS_PER_BYTE = 16
"""More than real images have."""
BYTES_OF_BASE64 = 3
"""Bytes in four characters of base64."""
TILE, LONG_SIDE, SHORT_SIDE, MAX_TILES = 512, 2048, 768, 8
PATCH, MAX_PATCHES = 32, 1536
LOW_DETAIL = "low"
MAX_REMEMBERED_FILES = 10_000
Size = tuple[int, int]
"""Width and height in pixels."""


def image_tokens(image: Any, model: str) -> int:
    """Returns the tokens of an `image_url` part's image; if its size is not known here (an address), the most that the
    formula can give.
    `image`: the part's `image_url`, an object with `url` and `detail`, or the address itself; `model`: the model's
    name, with or without its provider."""
    detail = image.get("detail") if isinstance(image, dict) else None
    url = image.get("url") if isinstance(image, dict) else image
    return picture_tokens(picture_size(url) if isinstance(url, str) else None, model, detail)


def picture_tokens(size: Size | None, model: str, detail: Any = None) -> int:
    """Returns the tokens of an image of this size; `None`: the size is unknown."""
    costs = upstreams.family_of(model).pictures
    if isinstance(costs, upstreams.ScaledPictures):
        if size is None:
            return costs.most
        width, height = _within(size, costs.long_side)
        return min(costs.most, ceil(width * height / costs.pixels_per_token))
    if isinstance(costs, upstreams.PatchedPictures):
        patches = ceil(size[0] / PATCH) * ceil(size[1] / PATCH) if size is not None else MAX_PATCHES
        return ceil(min(MAX_PATCHES, patches) * costs.factor)
    return costs.base if detail == LOW_DETAIL else costs.base + costs.tile * _tiles(size)


def picture_size(url: str) -> Size | None:
    """Reads width and height of a data URL's image from its header alone; None for other URLs. An image that cannot be
    read, which no provider can show its model, counts as a square that so many bytes could hold."""
    header, comma, _ = url[:200].partition(",")
    if not items.is_data_url(header) or not comma or "base64" not in header.lower():
        return None
    start = len(header) + 1
    try:
        raw = base64.b64decode(url[start : start + HEADER_BYTES // 3 * 4])
        width, height = imagesize.get(io.BytesIO(raw))
    except (binascii.Error, ValueError, OSError, KeyError, IndexError, OverflowError):
        width = height = -1
    if width <= 0 or height <= 0:
        width = height = max(1, isqrt((len(url) - start) * BYTES_OF_BASE64 // 4 * PIXELS_PER_BYTE))
    return int(width), int(height)


def _tiles(size: Size | None) -> int:
    if size is None:
        return MAX_TILES
    width, height = _within(size, LONG_SIDE)
    if min(width, height) > SHORT_SIDE:
        scale = SHORT_SIDE / min(width, height)
        width, height = width * scale, height * scale
    return ceil(width / TILE) * ceil(height / TILE)


def _within(size: Size, side: int) -> tuple[float, float]:
    scale = min(1.0, side / max(size))
    return size[0] * scale, size[1] * scale


RENDERED = 2200
"""Pixels of a page's longer side."""
MARKED = re.compile(r"^\[page \d+\]\n?", re.MULTILINE)
GUESSED_BYTES = 40_000
"""Assumed bytes of base64 for a page of a PDF that was not read."""
GUESSED_TEXT = 500
"""Assumed tokens of the text of such a page."""
LETTER_PAGE = PageFacts(612.0, 792.0, has_picture=False)


class PdfTokens(NamedTuple):
    """Tokens of a PDF: those of its texts, which vary with the model's tokenizer, and those of its images."""

    texts: int
    pictures: int


def pdf_tokens(pages: Sequence[PageFacts], text: str, model: str, count: Callable[[str], int]) -> PdfTokens:
    """Returns the tokens of a PDF with these pages.
    `text`: of all pages, with their marks; `model`: its name, with or without its provider; `count`: counts the tokens
    of a text."""
    page_tokens = upstreams.family_of(model).page
    if page_tokens is not None:
        return PdfTokens(0, page_tokens * len(pages))
    pictures = sum(picture_tokens(_pixels(page), model) for page in pages)
    return PdfTokens(count(MARKED.sub("", text)), pictures)


def guessed_tokens(data: str, model: str) -> int:
    """Estimates the tokens of a PDF that could not be read."""
    pages = ceil(len(data) / GUESSED_BYTES)
    one = pdf_tokens([LETTER_PAGE], "x" * GUESSED_TEXT, model, len)
    return pages * sum(one)


def _pixels(page: PageFacts) -> tuple[int, int]:
    width, height = max(1.0, page.width), max(1.0, page.height)
    scale = RENDERED / max(width, height)
    return max(1, round(width * scale)), max(1, round(height * scale))


class KnownPdfs:
    """Caches the costs of the PDFs that were read, by content, model and vocabulary, and the ids of their texts, which
    equal those of the same PDFs attached; evicts the oldest first."""

    def __init__(self) -> None:
        self._known: BoundedCache[tuple[Any, ...], PdfTokens] = BoundedCache(MAX_REMEMBERED_FILES)
        self._said: BoundedCache[tuple[int, int], str] = BoundedCache(MAX_REMEMBERED_FILES)

    def get(self, data: str, model: str, encoding: str) -> PdfTokens | None:
        """Returns the tokens of a PDF with this data; None if it was not read."""
        return self._known.peek(_key(data, model, encoding))

    def put(self, data: str, model: str, encoding: str, tokens: PdfTokens, content_id: str) -> None:
        self._known.put(_key(data, model, encoding), tokens)
        self._said.put((len(data), hash(data)), content_id)

    def content_id(self, data: str) -> str | None:
        """Returns the id of the text of a PDF with this data; None if it was not read."""
        return self._said.peek((len(data), hash(data)))


def _key(data: str, model: str, encoding: str) -> tuple[Any, ...]:
    return len(data), hash(data), model, encoding


# Estimates the tokens of texts that are too long to be encoded for a figure alone, by samples with the model's encoding
# (ADR 3), and lower bounds without counting.
#
# Any piece of a text shows what it is written in (prose, code, JSON, a script of its own, base64); rules of thumb for
# characters per token are wrong by half for most of these.

MAX_COUNTED_CHARS = 3000
"""Texts with no more characters together are counted: samples would take as long."""
SAMPLE_CHARS = 128
MIN_SAMPLES, LONG_SAMPLES = 16, 32
"""The fewest samples of a text, and of a long one; always fewer than twice as many are taken."""
LONG_CHARS = 2**15
GOLDEN = 0.6180339887498949
"""The fractional parts of its multiples are spread evenly, and follow no pattern of the texts."""

BOUND_CHARS = 2**18
"""Characters that a lower bound reads at once."""
_IMPORTING = Lock()
MAX_REMEMBERED_TEXTS = 50_000
"""Texts whose bounds are cached, and whose counts are cached for each encoding."""
_BOUNDS: BoundedCache[tuple[int, int], int] = BoundedCache(MAX_REMEMBERED_TEXTS)
"""Lower bounds by text, oldest forgotten first."""
OTHER, LETTER, DIGIT = 0, 1, 2
BYTE_KINDS = bytes(
    LETTER if byte > 127 or chr(byte).isalpha() else DIGIT if chr(byte).isdigit() else OTHER for byte in range(256)
)
"""The kind of each byte. A byte that is not ASCII may be part of a letter: a run of them counts as one word."""


def estimated_tokens(
    texts: Sequence[str],
    count: Callable[[str], int],
    count_pieces: Callable[[Sequence[str]], Sequence[int]],
    lengths: Sequence[int] | None = None,
) -> tuple[int, bool]:
    """Estimates the tokens of the texts together, and returns whether they were counted.

    It takes a few hundred microseconds, whatever the size of the texts. The estimate is a few percent off. Samples stay
    where they are while texts are added behind, until the whole is twice as long, so that their counts can be cached.
    `count`: counts a whole text; `count_pieces`: counts pieces; `lengths`: characters of each text, if known."""
    lengths = lengths if lengths is not None else list(map(len, texts))
    total = sum(lengths)
    if total <= MAX_COUNTED_CHARS:
        return sum(map(count, texts)), True
    ends = list(accumulate(lengths))
    samples = LONG_SAMPLES if total >= LONG_CHARS else MIN_SAMPLES
    apart = max(SAMPLE_CHARS, 1 << (total // samples).bit_length() - 1)
    pieces, cuts = [], []
    for place in range(total // apart + 1):
        at = int((place + (place * GOLDEN + 0.5) % 1.0) * apart)
        if at >= total:
            break
        index = bisect_right(ends, at)
        length = lengths[index]
        start = max(0, min(at - (ends[index] - length) - SAMPLE_CHARS // 2, length - SAMPLE_CHARS))
        pieces.append(texts[index][start : start + SAMPLE_CHARS])
        cuts.append((start > 0) + (start + SAMPLE_CHARS < length))  # each cuts a token in two, half a token too many
    counts = zip(pieces, cuts, count_pieces(pieces), strict=True)
    density = [max(tokens - cut / 2, tokens / 2) / len(piece) for piece, cut, tokens in counts]  # tokens of a character
    return round(total * sum(density) / len(density)), False


def least_tokens(text: str) -> int:
    """Returns a lower bound of a text's tokens, in a thousandth of the time that counting takes.

    Every byte-level vocabulary of tiktoken splits a text before it searches tokens (`tiktoken_ext/openai_public.py`):
    no token reaches from one word or number into the next, except the end of a contraction (`'s`).
    """
    if len(text) < 2:
        return 0
    key = (len(text), hash(text))
    known = _BOUNDS.peek(key)
    return known if known is not None else _BOUNDS.put(key, _least_tokens(text))


def _least_tokens(text: str) -> int:
    import numpy as np  # takes a quarter of a second to load, and small texts do not need it

    total = 0
    for start in range(0, len(text), BOUND_CHARS):  # in pieces: the whole would take four times its memory
        data = text[start : start + BOUND_CHARS].encode("utf-8", "replace")
        kinds = np.frombuffer(data.translate(BYTE_KINDS), np.uint8)
        begun = np.count_nonzero((kinds[1:] != kinds[:-1]) & (kinds[1:] != OTHER))
        total += max(0, int(begun) - data.count(b"'"))
    return total


def least_of(message: dict[str, Any]) -> int:
    """Returns a lower bound of a message's tokens."""
    content = message.get("content")
    if isinstance(content, str):
        return least_tokens(content)
    texts = (part.get("text") for part in content or () if isinstance(part, dict))
    return sum(least_tokens(text) for text in texts if isinstance(text, str))


DEFAULT_ENCODING = "o200k_base"
AVAILABLE = ("o200k_base", "o200k_harmony", "cl100k_base", "p50k_base")
"""The vocabularies in litellm's wheel."""
COUNTING_VERSION = 3
"""Incremented whenever a message's count changes: counts are stored with the version that made them."""
COUNTED_BY = f"{DEFAULT_ENCODING}/{COUNTING_VERSION}"
"""The counting on which margins are learned: another way to count would need other margins."""
TOOL_TOKENS, PARAMETER_TOKENS, TOOLS_END_TOKENS = 7, 3, 12
"""Tokens that OpenAI's cookbook adds for a tool, for its parameters and each of them, and for the end of all tools."""
AUDIO_BYTES_PER_TOKEN, AUDIO_TOKENS = 1600, 10
"""Estimate for a recording by its base64, since its length is not read; and a few tokens for any recording."""
PIECE_CHARS = 100_000
"""Longer texts are encoded in pieces of this size; a cut may cost a token or two."""


class CounterRegistry:
    """Provides the counter of each model, with the margin learned for it (ADR 13)."""

    def __init__(self, margins: ModelMargins | None = None) -> None:
        self._margins = margins or ModelMargins(SystemClock())
        self._loaded: set[str] = set()
        self.pdfs = KnownPdfs()
        self._pictures: BoundedCache[str, Size] = BoundedCache(MAX_REMEMBERED_FILES)
        """Sizes of stored images, by the ids that parts name; the oldest are evicted first."""

    def counter(self, facts: ModelFacts) -> "TiktokenCounter":
        return TiktokenCounter(facts, self._margins.known(facts, COUNTED_BY), self.pdfs, self._pictures)

    def has_read(self, facts: ModelFacts, data: str) -> bool:
        """Returns whether the model's charge for the PDF with this data is known."""
        return self.pdfs.get(data, facts.name, encoding_name(facts)[0]) is not None

    def note_pdf(self, facts: ModelFacts, data: str, reading: Reading, file_id: str | None = None) -> None:
        """Counts what the model is charged for a PDF (guarantee §14.1), and stores that by its data and the id by which
        a part names it; long ones take some tenths of a second."""
        tokens = pdf_tokens(reading.pages, reading.text, facts.name, self.counter(facts).plain_text)
        for name in (data, file_id) if file_id is not None else (data,):
            self.pdfs.put(name, facts.name, encoding_name(facts)[0], tokens, ids.artifact_id(reading.told))

    def of_pdf(self, facts: ModelFacts, reading: Reading) -> int:
        """Counts the tokens that the model is charged for a PDF."""
        counter = self.counter(facts)
        tokens = pdf_tokens(reading.pages, reading.text, facts.name, counter.plain_text)
        return counter.with_margin(tokens.texts) + tokens.pictures

    def note_picture(self, file_id: str, url: str) -> None:
        """Stores the size of an image that parts name by this id; `url` is the data URL sent upstream instead."""
        size = picture_size(url)
        if size is not None:
            self._pictures.put(file_id, size)

    async def ready(self, facts: ModelFacts) -> None:
        """Waits until the model's vocabulary is loaded."""
        if encoding_name(facts)[0] not in self._loaded:
            await asyncio.to_thread(self.load, facts)

    def load(self, facts: ModelFacts) -> None:
        """Loads the model's vocabulary. That takes half a second, for which other requests must not wait."""
        name = encoding_name(facts)[0]
        _encoding(name)
        self._loaded.add(name)

    def takes_small(self, facts: ModelFacts, messages: Sequence[dict[str, Any]]) -> bool:
        """Returns whether the prompt is counted only to learn from it; see `ModelMargins.takes_small`."""
        return self._margins.takes_small(facts, messages, COUNTED_BY)

    def learn(self, facts: ModelFacts, report: PromptReport) -> None:
        """Calibrates the estimate for a model by upstream's report (guarantee §4 I1)."""
        _, exact = encoding_name(facts)
        self._margins.learn(facts, report, COUNTED_BY, exact=exact)


class TiktokenCounter:
    """Counts with one encoding; `margin` scales the counts for models with another tokenizer (ADR 13)."""

    def __init__(
        self,
        facts: ModelFacts,
        known: upstreams.ModelCalibration | None = None,
        pdfs: KnownPdfs | None = None,
        pictures: BoundedCache[str, Size] | None = None,
    ) -> None:
        self._facts, self._calibration, self._pdfs, self._pictures = facts, known, pdfs, pictures
        self.margin = known.margin if known is not None else facts.token_margin

    @cached_property
    def _name(self) -> str:
        return encoding_name(self._facts)[0]

    @property
    def tokenizer(self) -> str:
        """Name of encoding and way of counting: `plain` counts with the same name can be compared."""
        return f"{self._name}/{COUNTING_VERSION}"

    def text(self, text: str) -> int:
        tokens = self.plain_text(text)
        return tokens if self.margin == 1.0 else self.with_margin(tokens)

    def message(self, message: dict[str, Any]) -> int:
        total, media = self._measure(message)
        return self.with_margin(total) + sum(media) + self.added_per_message

    def least(self, message: dict[str, Any]) -> int:
        """Returns a lower bound of a message's tokens, without counting."""
        return self.with_margin(least_of(message)) + self.added_per_message

    def plain(self, message: dict[str, Any]) -> int | None:
        """Counts a message without any margin; None if it holds images or audio, whose tokens depend on the model."""
        total, media = self._measure(message)
        return None if media else total

    def with_margin(self, plain: int) -> int:
        """Returns the count with the margin for this `plain` count."""
        return plain if self.margin == 1.0 else ceil(plain * self.margin)

    @property
    def added_per_message(self) -> int:
        """Tokens that each message takes beyond its `plain` count, as upstream's reports have shown."""
        return self._calibration.added_per_message if self._calibration is not None else 0

    def saved(self, calls: int) -> int:
        """Returns the tokens that each of `calls` tool calls takes less than in `plain`, by upstream's reports."""
        return self._calibration.saved(calls) if self._calibration is not None and calls else 0

    def estimate(self, messages: Sequence[dict[str, Any]]) -> tuple[int, bool]:
        """Estimates the tokens of messages together, and returns whether they were counted: long ones are sampled."""
        return self.estimate_parts(list(map(self.parts, messages)))

    def parts(self, message: dict[str, Any]) -> MessageParts:
        """Splits a message into the parts that `estimate_parts` needs."""
        return MessageParts(*_parts_of(message, self._facts.name, self._by_file))

    def estimate_parts(self, parts: Sequence[MessageParts]) -> tuple[int, bool]:
        frames, media = 0, 0
        texts: list[str] = []
        for frame, said, found in parts:
            frames += frame
            texts += said
            if found:
                media += sum(found)
        tokens, counted = estimated_tokens(texts, self.plain_text, self._pieces)
        return self.with_margin(frames + tokens) + media + self.added_per_message * len(parts), counted

    def estimate_texts(self, texts: Sequence[str], lengths: Sequence[int]) -> tuple[int, bool]:
        """Estimates the tokens of messages that are one text each, and returns whether they were counted."""
        if not texts:
            return 0, True
        tokens, counted = estimated_tokens(texts, self.plain_text, self._pieces, lengths)
        return self.with_margin(upstreams.MESSAGE_TOKENS * len(texts) + tokens) + self.added_per_message * len(
            texts
        ), counted

    @property
    def is_own(self) -> bool:
        """Whether the model itself counts like this, as far as is known."""
        return self.margin == 1.0 and encoding_name(self._facts)[1]

    def _measure(self, message: dict[str, Any]) -> tuple[int, list[int]]:
        """Counts the tokens of a message's texts and their frame, and those of each of its images and recordings."""
        frame, texts, media = _parts_of(message, self._facts.name, self._by_file)
        return frame + sum(map(self.plain_text, texts)), media

    def _by_file(self, part: dict[str, Any]) -> int | None:
        """Returns the tokens of an image by its file's id, or of a PDF that the model reads itself; None: it is
        neither, or the PDF was not read."""
        if (name := items.named_picture(part)) is not None:
            size = self._pictures.peek(name) if self._pictures is not None else None
            return picture_tokens(size, self._facts.name, part.get("detail"))
        data = items.pdf_data(part) or items.named_file(part) or ""
        known = self._pdfs.get(data, self._facts.name, self._name) if self._pdfs else None
        return self.with_margin(known.texts) + known.pictures if known is not None else None

    def tools(self, forward: dict[str, Any]) -> int:
        """Counts the tokens of tools, functions and response schema.

        A tool is counted by OpenAI's published formula (ADR 3); deeper levels of it count as their JSON.
        """
        extras = [forward.get(name) for name in ("tools", "functions", "response_format")]
        if not any(extras):
            return 0
        written = jsons.dumps(extras)
        key = (-len(written), hash(written))  # no text has that key; cached since clients resend the same tools
        known = _remembered(self._name)
        count = known.peek(key)
        if count is None:
            count = known.put(key, self._tools(forward))
        return self.with_margin(count)

    def _tools(self, forward: dict[str, Any]) -> int:
        total = 0
        named = [t.get("function", t) for t in forward.get("tools") or () if isinstance(t, dict)]
        functions = [f for f in (*named, *(forward.get("functions") or ())) if isinstance(f, dict)]
        for function in functions:
            total += TOOL_TOKENS + self.plain_text(f"{function.get('name')}:{function.get('description') or ''}")
            parameters = function.get("parameters")
            properties = parameters.get("properties") if isinstance(parameters, dict) else None
            rest = {k: v for k, v in function.items() if k not in ("name", "description", "parameters", "strict")}
            if isinstance(parameters, dict) and isinstance(properties, dict):
                lines = (f"{name}:{jsons.dumps_text(value)}" for name, value in properties.items())
                total += PARAMETER_TOKENS + sum(PARAMETER_TOKENS + self.plain_text(line) for line in lines)
                rest["parameters"] = {k: v for k, v in parameters.items() if k in ("$defs", "definitions", "required")}
            elif parameters:
                rest["parameters"] = parameters
            total += self.plain_text(jsons.dumps_text(rest)) if any(rest.values()) else 0
        total += TOOLS_END_TOKENS if functions else 0
        if forward.get("response_format"):
            total += self.plain_text(jsons.dumps_text(forward["response_format"]))
        return total

    def _pieces(self, pieces: Sequence[str]) -> list[int]:
        """Counts the tokens of each of these pieces of texts."""
        known, encode = _remembered(self._name), _encoding(self._name).encode_ordinary
        keyed = [((len(piece), hash(piece)), piece) for piece in pieces]
        found = [known.peek(key) for key, _ in keyed]
        return [
            known.put(key, len(encode(piece))) if count is None else count
            for count, (key, piece) in zip(found, keyed, strict=True)
        ]

    def plain_text(self, text: str) -> int:
        """Counts the tokens of a text without any margin."""
        if not text:
            return 0
        key = (len(text), hash(text))
        known = _remembered(self._name)
        count = known.peek(key)
        if count is None:
            encode = _encoding(self._name).encode_ordinary
            pieces = (text[i : i + PIECE_CHARS] for i in range(0, len(text), PIECE_CHARS))
            count = known.put(key, sum(len(encode(piece)) for piece in pieces))
        return count


MAX_QUOTED = 2000
"""Characters of a call's arguments up to which the call counts as its JSON with the arguments quoted, so that no
upstream that counts like that reports more. For longer arguments that would be far more than any model reads."""
SEALED_CHARS = 6
"""Characters of an encrypted thought for about one token: four and a bit, in base64."""
BARE_FIELDS = {"role", "content", "tool_call_id"}
"""Fields of a message that is nothing but its text."""
BARE_CALLING_FIELDS = {"role", "content", "tool_calls"}
"""Fields of a message that is nothing but its text and calls."""
UNCOUNTED_FIELDS = ("encrypted_content", "result", "id", "status", "summary")
"""Fields of items that no model reads as text: encrypted content, images, a summary of encrypted content."""


def _parts_of(
    message: dict[str, Any], model: str, by_file: Callable[[dict[str, Any]], int | None]
) -> tuple[int, list[str], list[int]]:
    """Returns the tokens that frame a message and its parts, its texts, and the tokens of its images and recordings."""
    content = message.get("content")
    if isinstance(content, str) and message.keys() <= BARE_FIELDS:  # as most are
        return upstreams.MESSAGE_TOKENS, [content], []
    frame, texts, media = upstreams.MESSAGE_TOKENS, [], []
    if isinstance(content, str):
        texts.append(content)
    else:
        for part in parts_of(content):
            text, found = _part(part, model, by_file)
            if text:
                frame += 1
                texts.append(text)
            if found is not None:
                media.append(found)
    for call in message.get("tool_calls") or ():
        name, arguments = _call(call)
        if name and len(arguments) <= MAX_QUOTED:
            frame += upstreams.MESSAGE_TOKENS
            texts.append(f'[{{"name": {encode_basestring(name)}, "arguments": {encode_basestring(arguments)}}}]')
        else:
            frame += upstreams.CALL_TOKENS
            texts += [name, arguments]
    if message.keys() <= BARE_CALLING_FIELDS:
        return frame, texts, media
    for key in ("name", "refusal", "reasoning_content", "function_call"):
        value = message.get(key)
        if value:
            texts.append(value if isinstance(value, str) else jsons.dumps_text(value))
    if isinstance(audio := message.get("audio"), dict) and isinstance(said := audio.get("transcript"), str):
        texts.append(said)
    for key in ("reasoning_items", "output_items"):
        for item in message.get(key) or ():
            if isinstance(item, dict):
                sealed = item.get("encrypted_content")
                frame += len(sealed) // SEALED_CHARS if isinstance(sealed, str) else 0
                if item.get("type") != "reasoning" or not message.get("reasoning_content"):  # which is its text
                    texts.append(jsons.dumps_text({k: v for k, v in item.items() if k not in UNCOUNTED_FIELDS}))
    if items.ANTHROPIC_BLOCKS in message and (block_text := tool_calls.told_blocks(message[items.ANTHROPIC_BLOCKS])):
        texts.append(block_text)
    return frame, texts, media


def _call(call: Any) -> tuple[str, str]:
    """Returns name and arguments of a tool call; for a call in another shape "" and its JSON."""
    function = call.get("function") if isinstance(call, dict) else None
    if isinstance(function, dict):
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and isinstance(arguments, str):
            return name, arguments
    return "", jsons.dumps_text(function or call)


def encoding_name(facts: ModelFacts) -> tuple[str, bool]:
    """Returns the encoding to count a model with, and whether that is the model's own."""
    return (facts.tokenizer, True) if facts.tokenizer else _encoding_of(facts.name)


def _library() -> Any:
    """Imports tiktoken under a lock: its modules import each other, and concurrent imports get halves of them."""
    with _IMPORTING:
        import tiktoken.model
    return tiktoken


@lru_cache(maxsize=1024)
def _encoding_of(model: str) -> tuple[str, bool]:
    try:
        name = _library().model.encoding_name_for_model(model.rsplit("/", 1)[-1])
    except KeyError:
        return DEFAULT_ENCODING, False
    return (name, True) if name in AVAILABLE else (DEFAULT_ENCODING, False)


def vocabulary_folder() -> Path | None:
    """Finds tiktoken's files in litellm's wheel, without importing litellm (it takes seconds); None without it."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"


@lru_cache(maxsize=8)
def _encoding(name: str) -> "tiktoken.Encoding":
    folder = vocabulary_folder()
    if folder is not None:
        # tiktoken has no other setting for the folder of its files; without it, it would download them.
        os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(folder))
    found: tiktoken.Encoding = _library().get_encoding(name)
    return found


@lru_cache(maxsize=8)
def _remembered(encoding: str) -> BoundedCache[tuple[int, int], int]:
    """Returns the cached counts by text of an encoding, oldest evicted first: a resent history is not counted again."""
    return BoundedCache(MAX_REMEMBERED_TEXTS)


def _part(part: Any, model: str, by_file: Callable[[dict[str, Any]], int | None]) -> tuple[str, int | None]:
    """Returns the text of a content part, or the tokens of its image, recording or PDF."""
    if not isinstance(part, dict):
        return "", None
    kind = part.get("type")
    if kind == "image_url":
        return "", image_tokens(part.get("image_url"), model)
    if kind == "input_audio":
        audio = part.get("input_audio")
        data = audio.get("data", "") if isinstance(audio, dict) else ""
        return "", len(str(data)) // AUDIO_BYTES_PER_TOKEN + AUDIO_TOKENS
    if kind in ("file", "input_image"):
        data, tokens = items.pdf_data(part), by_file(part)
        if data is not None and tokens is None:
            tokens = guessed_tokens(data, model)
        if tokens is not None:
            return "", tokens
    text = part.get("text")
    return (text if isinstance(text, str) else jsons.dumps_text(part)), None
