"""Shortens a new tool result before it is forwarded, if it repeats what is in the window already or what no reader
needs twice (guarantee §4 I8). Nothing else is removed: what a reference replaces is in the window, word for word."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from gateway.core import jsons
from gateway.core.frozen_records import record
from gateway.core.types import artifacts

MIN_CHARS = 400
"""A shorter result is forwarded as it came."""
MIN_SPARED = 200
"""Characters that a reference, or a run of equal lines, has to save beyond its label."""
MARGIN = 8
"""Lines of a block that are repeated at each of its ends: an edit may quote them with adjacent lines."""
MIN_LINE = 12
"""Characters of a line that is searched for; shorter ones are everywhere."""
MAX_PLACES = 16
"""The latest occurrences of one line that are examined."""
MAX_LINES = 20_000
"""Lines of a result that are searched for; a result with more is forwarded as it came."""
MAX_FAILED = 60_000
"""Characters of a failed run that are forwarded as they came."""
FAILED_HEAD, FAILED_TAIL, FAILED_FAULTS = 4_000, 16_000, 16_000
"""Characters of a longer run that stay: its beginning, its end, and what looks like a fault between them."""
BESIDE_FAULT = 400
"""Characters before and after what looks like a fault."""
TERMINAL = (
    r"(?:{escape}(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\\]{{0,500}}(?:{bell}|{escape}{slash})|[()][0-9A-B]|[=>78MDEc]))+"
)
TERMINAL_ESCAPES = re.compile(TERMINAL.format(escape=r"\x1b", bell=r"\x07", slash=r"\\"), re.ASCII)
"""Terminal sequences for colours, titles and cursor movements (ECMA-48, xterm)."""
ESCAPES_IN_JSON = re.compile(TERMINAL.format(escape=r"\\u001[bB]", bell=r"\\u0007", slash="\x00"), re.ASCII)
JSON_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)"(\s*:)?', re.DOTALL)
"""A string in JSON, and whether it is a member's name."""
EXIT_CODE_WORDS = r"(?:exit|return)[ _-]?(?:code|status)"
EXIT = re.compile(
    rf"^[ \t\[(<*#>-]*(?:[a-z]+ ){{0,5}}(?:{EXIT_CODE_WORDS}|exit(?:ed|s)?(?: with)?(?: (?:code|status)|(?=[:=])))"
    rf"(?: of)?[ \t]*[:=>]?[ \t]*(-?\d+)\b[^\w\n]*(?:</?{EXIT_CODE_WORDS}>)?[ \t\r]*$|"
    rf"\"{EXIT_CODE_WORDS}\"\s*:\s*(-?\d+)",
    re.IGNORECASE | re.MULTILINE,
)
"""A line with the exit code of a run and nothing else, or a key for it."""
ERROR_WORDS = re.compile(
    r"\b(?:\w*(?:error|exception)|traceback|fail(?:ed|ure|ures|ing)?|fatal|panic(?:ked)?|undefined|segfault)\b",
    re.IGNORECASE,
)
EXIT_CHARS = 1_000
"""Characters at the beginning and at the end of a result that are searched for an exit code."""


@dataclass(frozen=True)
class StandingText:
    """A result in the window: `index` of its message, its `name` in references, and the text as it was forwarded."""

    index: int
    name: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text; of an envelope those of the text in it."""
        return _lines_of(self.text).lines


@record
class ShapedText:
    """A result in its shorter form, and the indexes of the messages that it refers to."""

    text: str
    targets: frozenset[int] = frozenset()


@record
class _Lines:
    """The lines of a text. Lines from an envelope, a JSON object that holds the text, stay escaped as they are there;
    `before` and `behind` are the rest of the envelope."""

    lines: list[str]
    before: str = ""
    behind: str = ""
    is_escaped: bool = False

    def text(self, lines: Sequence[str]) -> str:
        """Returns the text with other lines. `label`s in them are escaped already."""
        if not self.is_escaped:
            return "\n".join(lines)
        return self.before + "\\n".join(lines).replace("\x00", "\\\\") + self.behind

    def label(self, text: str) -> str:
        """Returns a label as a line, escaped if the lines are."""
        return jsons.dumps_text(text)[1:-1].replace("\\\\", "\x00") if self.is_escaped else text


@record
class _Block:
    """Lines `start` to `end` of a result, which the earlier text with this `number` contains from its line `there`."""

    start: int
    end: int
    number: int
    there: int


def shaped(
    text: str, standing: Sequence[StandingText] = (), *, margin: int = MARGIN, is_plain: bool = False
) -> ShapedText | None:
    """Returns the result in a shorter form; None if there is none.
    `standing`: results that it may refer to, oldest first; `margin`: lines of an unchanged block that are repeated at
    each of its ends; `is_plain`: characters that a terminal would not show are content, as in a file."""
    if len(text) < MIN_CHARS:
        return None
    whole = _lines_of(text, is_plain=is_plain)
    if len(whole.lines) > MAX_LINES:
        return None
    found = _Referring(whole, standing, margin).with_references()
    return found if len(found.text) < len(text) else None


def _lines_of(text: str, *, is_plain: bool = True) -> _Lines:
    """Splits a text, or the text in an envelope, into lines; unless `is_plain`, as a terminal finally shows them."""
    place = _enveloped(text)
    if place is None:
        lines = text.split("\n")
        return _Lines(lines if is_plain else _as_shown(text, lines, "\x1b", TERMINAL_ESCAPES, "\r"))
    start, end = place
    held = text[start:end].replace("\\\\", "\x00")
    lines = held.split("\\n")
    if not is_plain:
        lines = _as_shown(held, lines, "\\u001", ESCAPES_IN_JSON, "\\r")
    return _Lines(lines, text[:start], text[end:], is_escaped=True)


def _enveloped(text: str) -> tuple[int, int] | None:
    """Returns the span of the longest string in a JSON object, if it is multi-line and most of the text; else None."""
    if not text.startswith("{") or "\\n" not in text or "\x00" in text or not jsons.is_json(text):
        return None
    values = (found for found in JSON_STRING.finditer(text) if found[2] is None)
    longest = max(values, key=lambda found: found.end() - found.start(), default=None)
    if longest is None or 2 * len(longest[1]) < len(text):
        return None
    return longest.span(1)


def _as_shown(text: str, lines: list[str], escape: str, escapes: re.Pattern[str], back: str) -> list[str]:
    """Returns the lines of a text without escapes; of a line that was overwritten (`back`) only its last state."""
    if escape in text:
        lines = [escapes.sub(_gap, line) for line in lines]
    return [_last_state(line, back) for line in lines] if back in text else lines


def _gap(found: re.Match[str]) -> str:
    """Returns nothing; within a word the escape itself, since the word would become another."""
    before, after = found.string[max(0, found.start() - 2) : found.start()], found.string[found.end() : found.end() + 1]
    is_within = before[-1:].isalnum() and not before.startswith("\\") and after.isalnum()
    return found[0] if is_within else ""


def _last_state(line: str, back: str) -> str:
    bare = line
    while bare.endswith(back):
        bare = bare.removesuffix(back)
    return bare.rpartition(back)[2] + line[len(bare) :]


class _Referring:
    def __init__(self, whole: _Lines, standing: Sequence[StandingText], margin: int) -> None:
        self._whole, self._lines, self._margin = whole, whole.lines, margin
        self._standing, self._texts = standing, [each.lines for each in standing]

    def with_references(self) -> ShapedText:
        """Returns the lines with references instead of lines that other results contain, and of repeated lines."""
        lines: list[str] = []
        targets: set[int] = set()
        at = 0
        for block in self._blocks() if self._texts else ():
            start = block.start + (self._margin if block.start else 0)
            end = block.end - (self._margin if block.end < len(self._lines) else 0)
            if end <= start or sum(map(len, self._lines[start:end])) <= MIN_SPARED:
                continue
            here = self._standing[block.number]
            name = here.name + self._place(block, start, end)
            label = self._whole.label(f"[{artifacts.UNCHANGED}: lines {start + 1}-{end} are as in {name}.]")
            if sum(map(len, self._lines[start:end])) + end - start <= len(label) + MIN_SPARED:
                continue
            lines += [*self._without_runs(at, start), label]
            targets.add(here.index)
            at = end
        lines += self._without_runs(at, len(self._lines))
        return ShapedText(self._whole.text(lines), frozenset(targets))

    def _place(self, block: _Block, start: int, end: int) -> str:
        """Returns words for the line from which the other text has these lines; none if that is its first line, or if
        a line repeated beside them, which that text holds once, shows it."""
        there = block.there + start - block.start
        beside = [*self._lines[block.start : start], *self._lines[end : block.end]]
        if not there or any(self._is_once(line, block.number) for line in beside):
            return ""
        return f", from its line {there + 1} on"

    def _is_once(self, line: str, number: int) -> bool:
        places = self._places.get(line, ())
        return len(places) < MAX_PLACES and [other for other, _ in places].count(number) == 1

    def _without_runs(self, at: int, end: int) -> list[str]:
        """Returns these lines; of many equal lines only the first, and their number."""
        lines, kept = self._lines[at:end], list[str]()
        starts = [n for n, line in enumerate(lines) if not n or line != lines[n - 1]]
        for start, behind in pairwise([*starts, len(lines)]):
            label = self._whole.label(f"[{artifacts.UNCHANGED}: the line above, {behind - start - 1:,} more times.]")
            is_run = (behind - start - 1) * (len(lines[start]) + 1) > len(label) + MIN_SPARED
            kept += [lines[start], label] if is_run else lines[start:behind]
        return kept

    def _blocks(self) -> list[_Block]:
        """Returns the longest stretches of lines that one earlier text contains, without overlaps, in order."""
        places = self._places
        blocks: list[_Block] = []
        at = 0
        while at < len(self._lines):
            least = blocks[-1].end if blocks else 0
            found = [self._extended(at, least, *place) for place in places.get(self._lines[at], ())]
            if not found:
                at += 1
                continue
            blocks.append(max(found, key=lambda block: block.end - block.start))
            at = blocks[-1].end
        return blocks

    @cached_property
    def _places(self) -> Mapping[str, list[tuple[int, int]]]:
        """Maps each line to the texts and lines where it occurs, the latest first."""
        wanted = {line for line in self._lines if len(line) >= MIN_LINE}
        places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number in range(len(self._texts) - 1, -1, -1):
            if wanted.isdisjoint(self._texts[number]):
                continue
            for at, line in enumerate(self._texts[number]):
                if line in wanted and len(found := places[line]) < MAX_PLACES:
                    found.append((number, at))
        return places

    def _extended(self, at: int, least: int, number: int, line: int) -> _Block:
        lines, text = self._lines, self._texts[number]
        start, end, there = at, at, line
        while start > least and line and lines[start - 1] == text[line - 1]:
            start, line = start - 1, line - 1
        while end < len(lines) and there < len(text) and lines[end] == text[there]:
            end, there = end + 1, there + 1
        return _Block(start, end, number, line)


def of_failed_run(text: str) -> tuple[tuple[int, int], ...]:
    """Returns what stays of a failed run with far too much output, as stretches of whole lines: its beginning, its end,
    and what looks like a fault. Empty for any other result."""
    if len(text) <= MAX_FAILED or _enveloped(text) is not None:
        return ()
    if not _has_failed(text):
        return ()
    seen, tail = _line_end(text, FAILED_HEAD), _line_start(text, len(text) - FAILED_TAIL)
    spans, room = [(0, seen)], FAILED_FAULTS
    for found in ERROR_WORDS.finditer(text, seen, tail):
        end = found.end() + BESIDE_FAULT
        if end <= seen:
            continue
        start = max(_line_start(text, found.start() - BESIDE_FAULT), seen + 1)
        seen = end = min(_line_end(text, end), tail)
        if end - start <= room:
            room -= end - start
            spans.append((start, end))
    joined: list[tuple[int, int]] = []
    for start, end in [*spans, (tail, len(text))]:
        if joined and start <= joined[-1][1] + 1:
            start, end = joined[-1][0], max(end, joined.pop()[1])
        joined.append((start, end))
    return tuple(joined)


def _has_failed(text: str) -> bool:
    """Returns whether a run failed: its first exit code at the beginning or last at the end, and no 0 among them."""
    said = [list(EXIT.finditer(text, *place)) for place in ((0, EXIT_CHARS), (len(text) - EXIT_CHARS,))]
    codes = [int((found[1] or found[2])[-9:]) for found in (*said[0][:1], *said[1][-1:])]
    return bool(codes) and all(codes)


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    return behind if (behind := text.find("\n", at)) >= 0 else len(text)
