"""Subtitles (SRT and WebVTT): each cue with its time (guarantee §14.11)."""

import re
from html import unescape

from gateway.core.types import places
from gateway.documents.document import Reading, ReadOptions
from gateway.documents.plain import checked_text

CUE_TIMES = re.compile(r"^[ \t]*(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})[.,]\d{1,3}[ \t]+-->[ \t]")
CUE_TAG = re.compile(r"<v(?:\.[^<> \t]{1,100})?[ \t]+([^<>]{1,200})>|<[^<>]{0,200}>|\{\\[^{}]{0,200}\}")
"""The speaker, in WebVTT; other markup, in both formats; and that of other programs."""


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Renders each cue as a line: `[00:01:23] what is said`. A text without times stays unchanged.
    Raises UnreadableDocument: it is no text."""
    text = checked_text(raw)
    said = _cues(text.splitlines())
    return Reading("\n".join(said) if said else places.plain_lines(text))


def _cues(lines: list[str]) -> list[str]:
    said: list[str] = []
    time: str | None = None
    words: list[str] = []
    for number, line in enumerate([*lines, ""]):
        found = CUE_TIMES.match(line)
        if found is not None:
            if time is not None and words:
                # The line before a time is the name of a cue, where no empty line ends the one before.
                said.append(_line(time, words[:-1] if words[-1].isdecimal() else words))
            hours, minutes, seconds = (int(each or 0) for each in found.groups())
            time, words = f"{hours:02}:{minutes:02}:{seconds:02}", []
        elif not line.strip() or number == len(lines):
            if time is not None and words:
                said.append(_line(time, words))
            time, words = None, []
        elif time is not None:
            words.append(line)
    return [each for each in said if each]


def _line(time: str, words: list[str]) -> str:
    text = CUE_TAG.sub(lambda found: f"{found[1]}: " if found[1] else "", " ".join(words))
    plain = " ".join(unescape(text).split())
    return f"[{time}] {plain}" if plain else ""
