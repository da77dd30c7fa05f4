"""Encodes the forwarded form of a message as ranges of what its client sends again (ADR 12).

A form consists of text from the request's messages, stored as positions, and of the gateway's own words, which are few
and known: no client's text is stored.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from gateway.context.assembly import ARTIFACT_ID, BLOCK_NOTE
from gateway.core.types import items, tool_steps
from gateway.core.types.content_parts import as_parts, texts_of
from gateway.core.types.prompt_digests import plain_parts

Piece = str | list[int]
"""The gateway's own words; or a range: message, its field, start and end; or the number of an artifact's id."""
Pieces = list[Piece]
COMPACTED = 1000
"""Fields from this number on are the message's fields after `compact`."""
RANGE_CHUNK_CHARS = (96, 24)
"""Sizes of the pieces that are searched for first; single words follow."""
MAX_SHORT_PIECES = 24
"""With more pieces shorter than a chunk, a text is also searched for in the compacted messages: an extract of those
shares only single words with what its client sent."""
END_CHARS = 16
OWN_RUN = re.compile(
    rf"<context_data note=\"{re.escape(BLOCK_NOTE)}\">\n|"
    r"\[(?:Left out:|Extract of|Summary of) (?:tool result|document) \"|\", id (?=art_)|"
    r"\[Unchanged: lines \d{1,6}-\d{1,6} are as in (?=art_)|"
    r", from (?:step_\d{1,6}:|history:msg_\d{1,9}:)|; [\d,]{1,15} characters\.\]|"
    r": [\d,]{1,15} of [\d,]{1,15} characters; \[…\] marks what was left out\.\]\n|"
    r"\[…\]|\[\d{1,6} (?:user|assistant)\] |</?(?:context_data|artifact)\b|"
    r" (?:type|source|title|kind|origin|shown|note|lines|arguments|id|speaker|tool)=[\"']|"
    r"extract, [\d,]{1,15} of [\d,]{1,15} characters|history:msg_\d{1,9}:|turns:\d{1,6}-\d{1,6}\""
)
"""The gateway's own words that are recognised at once, without a search."""
RANGE_TOKEN = re.compile(r"[^\W\d_]+|\d+|.", re.DOTALL)
TOOL_NAME = re.compile(r"(?<=[\":])[\w.-]+(?=\", id art_|[:;] [\d,]{1,15} (?:of|characters))")
"""A tool's name in a label: the gateway's own words follow it, so nothing longer can match."""
OWN_WORDS = frozenset(
    """left out extract of tool result document id from step history msg characters marks what was summary selected by
    reference material for the message below gateway it is data not instructions but its element citing context
    artifact note type source title kind origin shown full nothing elsewhere in a model s words focus then extracts
    lines turn turns speaker head only where changes user assistant system developer function conversation called
    more arguments attachment file same as memory kept earlier which pinned amp lt gt quot x the and
    unchanged are above times on
    page pages slide slides chapter chapters cell cells line sheet table database""".split()  # noqa: SIM905
)
"""Words of labels, of the block, of the memory message (`assembly`) and of escapes."""


class UnencodableForm(Exception):
    """A form holds what its client does not send: it cannot be stored without content."""


class MessageTexts:
    """The texts of messages by message and field, read on demand."""

    def __init__(self, bodies: Sequence[dict[str, Any]], compact: Callable[[str], str]) -> None:
        self._bodies, self._compact = bodies, compact
        self._known: dict[int, list[str]] = {}
        self._compacted: dict[tuple[int, int], str] = {}

    def fields(self, message: int) -> list[str]:
        """Returns the texts of a message: of its content, its calls, its name and its refusal."""
        if message not in self._known:
            self._known[message] = _fields(self._bodies[message])
        return self._known[message]

    def field(self, message: int, number: int) -> str:
        """Returns the text of a field, compacted from `COMPACTED` on. Raises IndexError: there is none."""
        if number < COMPACTED:
            return self.fields(message)[number]
        key = message, number - COMPACTED
        if key not in self._compacted:
            self._compacted[key] = self._compact(self.fields(message)[key[1]])
        return self._compacted[key]


def _fields(body: dict[str, Any]) -> list[str]:
    found = list(texts_of(body.get("content")))
    for call in tool_steps.calls_of(body):
        found += tool_steps.asked(call)
    return [*found, *(text for name in ("name", "refusal") if isinstance(text := body.get(name), str))]


class RangeFinder:
    """Locates the texts of forms in the messages of a request."""

    def __init__(self, texts: MessageTexts, count: int, ids: list[str]) -> None:
        """`count`: of the messages; `ids` receives the ids of artifacts that forms name."""
        self._texts, self._ids = texts, ids
        self._places = [(i, n) for i in range(count) for n in range(len(texts.fields(i)))]
        self._has_compacted = False
        self._build()

    def _build(self) -> None:
        whole = [self._texts.field(*place) for place in self._places]
        self._all, self._starts = "\n".join(whole), [0, *accumulate(len(text) + 1 for text in whole)]

    def _with_compacted(self) -> None:
        """Also searches the compacted texts where they differ."""
        self._has_compacted = True
        field = self._texts.field
        more = [(i, n + COMPACTED) for i, n in self._places]
        self._places += [(i, n) for i, n in more if field(i, n) != field(i, n - COMPACTED)]
        self._build()

    def encoded(self, text: str, own: int | None = None) -> Pieces:
        """Encodes a text as pieces.
        `own`: the message whose form it is, which is searched first.
        Raises UnencodableForm: one of its words is in no message, and is not the gateway's."""
        pieces: Pieces = []
        at, last, short = 0, 0, 0
        first = next((s for s, place in zip(self._starts, self._places, strict=False) if place[0] == own), 0)
        while at < len(text):
            if (name := ARTIFACT_ID.match(text, at)) is not None:
                if name[0] not in self._ids:
                    self._ids.append(name[0])
                pieces.append([self._ids.index(name[0])])
                at = name.end()
                continue
            if (run := OWN_RUN.match(text, at)) is not None:
                _put(pieces, run[0])
                at = run.end()
                continue
            token = RANGE_TOKEN.match(text, at)
            assert token is not None
            found = self._range(text, at, token[0], (last, first))
            is_unencodable = found is None and token[0][0].isalpha() and token[0].lower() not in OWN_WORDS
            if found is not None:
                number, start, end = found
                end -= _chars_of_own_word(text, at, at + end - start)
                _add(pieces, [*self._places[number], start, end])
                last = self._starts[number] + end
                at += end - start
                short += end - start < RANGE_CHUNK_CHARS[-1]
            elif is_unencodable and self._has_compacted:
                raise UnencodableForm(token[0])
            else:
                _put(pieces, token[0])
                at = token.end()
            if (is_unencodable or short > MAX_SHORT_PIECES) and not self._has_compacted:
                self._with_compacted()
                return self.encoded(text, own)
        return pieces

    def _range(self, text: str, at: int, token: str, starts: tuple[int, ...]) -> tuple[int, int, int] | None:
        """Finds the longest match in a message for a text from `at` on: the number of the place, and start and end in
        it."""
        is_own = not token[0].isalpha() or token.lower() in OWN_WORDS
        sizes = [size for size in RANGE_CHUNK_CHARS if at + size <= len(text)]
        least = RANGE_CHUNK_CHARS[-1]
        if (name := TOOL_NAME.match(text, at)) is not None:
            sizes = [len(name[0])]
        elif sizes and sizes[0] > least and next(self._found(text[at : at + least], starts), None) is None:
            sizes = []  # what is longer begins with it
        line = text.find("\n", at)
        if at < line < at + least:
            sizes.append(line + 1 - at)
        if not (is_own and len(token) == 1 and not token.isdigit()):
            sizes.append(len(token))
        for size in sizes:
            for where in self._found(text[at : at + size], starts):
                if (found := self._extended(text, at, where, size)) is not None:
                    return found
        return None

    def _found(self, chunk: str, starts: tuple[int, ...]) -> Iterator[int]:
        """Yields positions of a chunk: from the first of `starts` on, then from each next one up to the one before."""
        stop = len(self._all)
        for start in (*starts, 0):
            if start < stop:
                if (where := self._all.find(chunk, start, stop + len(chunk) - 1)) >= 0:
                    yield where
                stop = start

    def _extended(self, text: str, at: int, where: int, size: int) -> tuple[int, int, int] | None:
        number = bisect_right(self._starts, where) - 1
        start, end = where - self._starts[number], self._starts[number + 1] - 1
        size = min(size, end - where)
        if size <= 0:
            return None
        step = size
        while step:
            more = size + step
            if where + more <= end and text[at : at + more] == self._all[where : where + more]:
                size, step = more, step * 2
            else:
                step //= 2
        return number, start, start + size


def _chars_of_own_word(text: str, start: int, end: int) -> int:
    """Returns how many characters before `end` begin one of the gateway's own words that a range from `start` on would
    cut in two: what is left of it may be in no message."""
    at = end
    while at > start and text[at - 1].isalpha():
        at -= 1
    word = RANGE_TOKEN.match(text, at)
    is_cut = start < at < end and word is not None and word.end() > end
    return end - at if word is not None and is_cut and word[0].lower() in OWN_WORDS else 0


def _put(pieces: Pieces, words: str) -> None:
    if pieces and isinstance(pieces[-1], str):
        pieces[-1] += words
    else:
        pieces.append(words)


def _add(pieces: Pieces, found: list[int]) -> None:
    last = pieces[-1] if pieces else None
    if isinstance(last, list) and len(last) == 4 and last[:2] == found[:2] and last[3] == found[2]:
        last[3] = found[3]
    else:
        pieces.append(found)


def decoded_text(pieces: Pieces, texts: MessageTexts, ids: Sequence[str]) -> str:
    """Decodes pieces to their text. Raises IndexError, TypeError, ValueError: they do not belong to these messages."""
    found = []
    for piece in pieces:
        if isinstance(piece, str):
            found.append(piece)
        elif len(piece) == 1:
            found.append(ids[piece[0]])
        else:
            message, number, start, end = piece
            text = texts.field(message, number)
            if not 0 <= start <= end <= len(text):
                raise ValueError("no such range")
            found.append(text[start:end])
    return "".join(found)


def encoded_parts(form: dict[str, Any], body: dict[str, Any], finder: RangeFinder, own: int | None) -> list[Any]:
    """Encodes a form's content: numbers of parts that the message itself has, and texts as pieces, each with the number
    of the part that it replaces (-1: it is new).
    Raises UnencodableForm: it has something else."""
    if {k: v for k, v in form.items() if k != "content"} != {k: v for k, v in body.items() if k != "content"}:
        raise UnencodableForm("fields")
    before, found = plain_parts(body.get("content")), list[Any]()
    for part in plain_parts(form.get("content")):
        if part in before:
            found.append(before.index(part))
            continue
        if not (isinstance(part, dict) and isinstance(part.get("text"), str)):
            raise UnencodableForm("part")
        rest = {k: v for k, v in part.items() if k != "text"}
        base = -1
        if rest != {"type": "text"} or (
            body.get("role") not in tool_steps.RESULT_ROLES and not isinstance(form["content"], str)
        ):
            same = (n for n, own_part in enumerate(before) if _is_text_of(own_part, rest))
            base = next((n for n in same if _share_an_end(before[n]["text"], part["text"])), -1)
        if base < 0 and rest != {"type": "text"}:
            raise UnencodableForm("part")
        found.append([base, finder.encoded(part["text"], own)])
    return found


def _share_an_end(one: str, other: str) -> bool:
    """Returns whether one may be the other with a part of it reduced."""
    return one[:END_CHARS] == other[:END_CHARS] or one[-END_CHARS:] == other[-END_CHARS:]


def _is_text_of(part: Any, rest: dict[str, Any]) -> bool:
    return isinstance(part, dict) and "text" in part and {k: v for k, v in part.items() if k != "text"} == rest


def decoded_form(parts: list[Any], body: dict[str, Any], texts: MessageTexts, ids: Sequence[str]) -> dict[str, Any]:
    """Decodes parts to the form of a message as its client sends it now.
    Raises IndexError, KeyError, TypeError, ValueError: they do not belong to this message."""
    content = body.get("content")
    own = as_parts(content)
    marks = [
        p[items.BREAKPOINT] for p in own if isinstance(p, dict) and p.get("type") == "text" and p.get(items.BREAKPOINT)
    ]
    found: list[Any] = []
    for part in parts:
        if isinstance(part, int):
            found.append(own[part])
            continue
        base, pieces = part
        text = decoded_text(pieces, texts, ids)
        if base >= 0:
            found.append({**own[base], "text": text})
        else:
            is_result = body.get("role") in tool_steps.RESULT_ROLES
            found.append(
                {"type": "text", "text": text, **({items.BREAKPOINT: marks[-1]} if is_result and marks else {})}
            )
    is_text = len(found) == 1 and found[0].keys() == {"type", "text"} and found[0]["type"] == "text"
    if is_text and (body.get("role") in tool_steps.RESULT_ROLES or isinstance(content, str)):
        return {**body, "content": found[0]["text"]}
    return {**body, "content": found}
