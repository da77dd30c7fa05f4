"""Composes the system message for a conversation's mode from the parts that prompt profiles hold (guarantee §11.7)."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gateway.context import BuiltContext
from gateway.context.tokens import CounterRegistry
from gateway.core import jsons
from gateway.core.config.settings import PromptProfiles
from gateway.core.frozen_records import record
from gateway.core.types import tool_steps
from gateway.core.types.chat import ModelFacts, PromptBudget
from gateway.core.types.conversation import ConversationHistory
from gateway.pipeline.stages import PreparedRequest, ReadAs, RequestFeature

GENERAL = "general"
PROFILE_MODES = (GENERAL, "creation", "search", "modification", "analysis")
WORDS = {
    "creation": "create make build generate write compose draft design add new setup start begin insert",
    "search": "search find look lookup list show where which get fetch retrieve locate browse query",
    "modification": "update change modify edit rename replace remove delete fix correct adjust move extend",
    "analysis": "analyze analyse explain why compare summarize summarise review evaluate assess understand count",
}
"""Words in a message, or in a tool's name, that call for a mode. English, as most names of tools are."""
MODE_OF = {word: mode for mode, words in WORDS.items() for word in words.split()}
LETTERS = re.compile(r"[a-z]+", re.IGNORECASE)
FIRST_CHARS = 2000
"""Characters of a message that are searched for words: the wish comes first, documents follow."""


@record
class PromptProfile:
    """A composed system message. `source` names what the mode was taken from: the `request`, the `message`, the `tools`
    used last, the `conversation` so far, or the `default`."""

    mode: str
    source: str
    text: str
    tokens: int = 0
    saved_tokens: int = 0

    def as_json(self) -> dict[str, Any]:
        """Renders the profile for bills; `saved_tokens` compares it with the guidance of all modes."""
        return jsons.picked(self, "mode", "source", "tokens", "saved_tokens")

    def reported(self, built: BuiltContext) -> BuiltContext:
        """Adds the profile to the bill of the context built with it."""
        built.utilization.profile = self.as_json()
        return built


class ProfileComposer:
    """Prepends the system message for a conversation's mode. The conversation is stored without it."""

    def __init__(self, profiles: PromptProfiles, counters: CounterRegistry) -> None:
        self._profiles = profiles
        self._counters = counters

    def build(self) -> RequestFeature:
        if not self._profiles.is_set:
            return RequestFeature()
        return RequestFeature(needs="options.takes_profile", on_inputs=self._in_front)

    async def _in_front(
        self, prepared: PreparedRequest, history: ConversationHistory, budget: PromptBudget
    ) -> ReadAs | None:
        mode, source = prepared.request.options.profile, "request"
        if mode is None:
            bodies = [message.body for message in history.messages]
            mode, source = inferred(bodies, history.profile, is_latest=history.at_head)
        profile = self._composed(mode, source, prepared.facts)
        first = ({"role": "system", "content": profile.text},) if profile.text else ()
        return ReadAs(replace(history, instructions=(*first, *history.instructions)), profile.reported)

    async def every(
        self, messages: Sequence[dict[str, Any]], before: str | None, facts: ModelFacts
    ) -> tuple[PromptProfile | None, dict[str, PromptProfile]]:
        """Composes the profile that messages call for, and that of each mode; None and none if none is configured.
        `before`: the mode that the conversation had."""
        if not self._profiles.is_set:
            return None, {}
        await self._counters.ready(facts)
        found = {mode: self._composed(mode, "request", facts) for mode in PROFILE_MODES}
        mode, source = inferred(messages, before)
        return replace(found[mode], source=source), found

    def _composed(self, mode: str, source: str, facts: ModelFacts) -> PromptProfile:
        text, counter = composed(self._profiles, mode), self._counters.counter(facts)
        tokens = counter.text(text)
        return PromptProfile(mode, source, text, tokens, counter.text(monolith(self._profiles)) - tokens)


def inferred(messages: Sequence[dict[str, Any]], before: str | None, *, is_latest: bool = True) -> tuple[str, str]:
    """Infers the mode of a conversation, and names its source: the message that begins the current turn, else the tools
    used in the turn before it, else the mode before; the same in each step of a turn.
    `before`: the mode that the conversation had, if it is stored; else the earlier turns show it, and also where the
    messages do not continue its latest turn (`is_latest` False): then it is that of another branch."""
    starts = tool_steps.turn_starts(str(message.get("role")) for message in messages)
    for number in range(len(starts) - 1, -1, -1):
        mode, source = _called_for(messages, starts, number)
        if mode is not None:
            return mode, source if number == len(starts) - 1 else "conversation"
        if before is not None and is_latest:
            break
    return (before, "conversation") if before is not None else (GENERAL, "default")


def _called_for(messages: Sequence[dict[str, Any]], starts: Sequence[int], number: int) -> tuple[str | None, str]:
    """Returns the mode that a turn calls for by itself, and its source."""
    at = starts[number]
    mode = _mode_of(LETTERS.findall(tool_steps.text_of(messages[at].get("content"))[:FIRST_CHARS]))
    if mode is not None:
        return mode, "message"
    first = starts[number - 1] if number else 0
    return _mode_of(_tools_of(messages[first:at])), "tools"


def composed(profiles: PromptProfiles, mode: str) -> str:
    """Joins the system message of a mode by blank lines: core, the mode's own guidance, tools, error handling."""
    guidance = getattr(profiles.modes, mode)
    return _joined((profiles.core, guidance, profiles.tools, profiles.error_handling))


def monolith(profiles: PromptProfiles) -> str:
    """Joins the system message with the guidance of all modes: what would be sent without profiles."""
    guidance = (getattr(profiles.modes, mode) for mode in PROFILE_MODES)
    return _joined((profiles.core, *guidance, profiles.tools, profiles.error_handling))


def _joined(parts: Iterable[str | None]) -> str:
    return "\n\n".join(part.strip() for part in parts if part and part.strip())


def _tools_of(turn: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the words in the names of the tools that a turn used, the latest first."""
    found: list[str] = []
    for message in reversed(turn):
        for call in tool_steps.calls_of(message):
            function = call.get("function") or call.get("custom") or {}
            found += LETTERS.findall(str(function.get("name") or ""))
    return found


def _mode_of(words: Iterable[str]) -> str | None:
    """Returns the mode that most words call for; on a tie, the one called for first."""
    counts = Counter(mode for word in words if (mode := MODE_OF.get(word.lower())) is not None)
    return max(counts, key=counts.__getitem__, default=None)
