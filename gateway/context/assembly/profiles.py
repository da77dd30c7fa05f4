"""Prompt profiles: a system message that is as long as the mode of the conversation needs (guarantee §11.7)."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.core.config.settings import PromptProfiles
from gateway.core.types.tool_steps import calls_of, text_of, turn_starts

GENERAL = "general"
MODES = (GENERAL, "creation", "search", "modification", "analysis")
WORDS = {
    "creation": "create make build generate write compose draft design add new setup start begin insert",
    "search": "search find look lookup list show where which get fetch retrieve locate browse query",
    "modification": "update change modify edit rename replace remove delete fix correct adjust move extend",
    "analysis": "analyze analyse explain why compare summarize summarise review evaluate assess understand count",
}
"""Words by which a message, or the name of a tool, calls for a mode. English, like the names of tools mostly are."""
MODE_OF = {word: mode for mode, words in WORDS.items() for word in words.split()}
WORD = re.compile(r"[a-z]+", re.IGNORECASE)
FIRST_CHARS = 2000
"""Of a message, in which its words are looked for: what is wanted stands at the beginning, documents behind it."""


@dataclass(frozen=True, slots=True)
class PromptProfile:
    """A composed system message. `source` says what the mode was taken from: the `request`, the `message`, the `tools`
    used last, the `conversation` so far, or the `default`."""

    mode: str
    source: str
    text: str
    tokens: int = 0
    saved_tokens: int = 0

    def as_json(self) -> dict[str, Any]:
        """As bills name it; `saved_tokens` beside a system message with the guidance of all modes."""
        return {
            "mode": self.mode,
            "source": self.source,
            "tokens": self.tokens,
            "saved_tokens": self.saved_tokens,
        }


def inferred(messages: Sequence[dict[str, Any]], before: str | None) -> tuple[str, str]:
    """The mode of a conversation, and what it was taken from: the message that begins the current turn, else the tools
    that were used in the turn before it, else the mode before; the same in each step of a turn.

    Args:
        before: the mode that the conversation had.
    """
    starts = turn_starts(str(message.get("role")) for message in messages)
    if starts:
        if (mode := _mode_of(WORD.findall(text_of(messages[starts[-1]].get("content"))[:FIRST_CHARS]))) is not None:
            return mode, "message"
        first = starts[-2] if len(starts) > 1 else 0
        if (mode := _mode_of(_tools_of(messages[first : starts[-1]]))) is not None:
            return mode, "tools"
    return (before, "conversation") if before is not None else (GENERAL, "default")


def composed(profiles: PromptProfiles, mode: str) -> str:
    """The system message of a mode: core, the mode's own guidance, tools, error handling, with blank lines between."""
    guidance = getattr(profiles.modes, mode)
    return _joined((profiles.core, guidance, profiles.tools, profiles.error_handling))


def monolith(profiles: PromptProfiles) -> str:
    """The system message with the guidance of all modes: what would be sent without profiles."""
    guidance = (getattr(profiles.modes, mode) for mode in MODES)
    return _joined((profiles.core, *guidance, profiles.tools, profiles.error_handling))


def _joined(parts: Iterable[str | None]) -> str:
    return "\n\n".join(part.strip() for part in parts if part and part.strip())


def _tools_of(turn: Sequence[dict[str, Any]]) -> list[str]:
    """The words in the names of the tools that a turn used, the latest first."""
    found: list[str] = []
    for message in reversed(turn):
        for call in calls_of(message):
            function = call.get("function") or call.get("custom") or {}
            found += WORD.findall(str(function.get("name") or ""))
    return found


def _mode_of(words: Iterable[str]) -> str | None:
    """The mode that most words call for; of equally many the one that is called for first."""
    counts: dict[str, int] = {}
    for word in words:
        if (mode := MODE_OF.get(word.lower())) is not None:
            counts[mode] = counts.get(mode, 0) + 1
    return max(counts, key=lambda mode: counts[mode]) if counts else None
