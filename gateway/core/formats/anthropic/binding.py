"""What signed thoughts are bound to: everything that stands before them (guarantee §10.10).

Anthropic checks that system, tools and messages before a thought are those under which it was made, and refuses a
request where they are not. Marks of its cache are no part of that.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.core import jsons
from gateway.core.errors import InvalidRequest
from gateway.core.formats.anthropic.alternating_roles import THOUGHTS, as_turns
from gateway.core.types.items import ANTHROPIC_BLOCKS, BREAKPOINT, SIGNED

Json = dict[str, Any]
EDITS = "context_management"
THINKING_EDITS = "clear_thinking"
DIGEST_CHARS = 32


class PromptDigest:
    """The digest of a prompt as it grows, message by message."""

    def __init__(self, model: str, tools: Iterable[Any]) -> None:
        self._hash = hashlib.sha256(jsons.canonical([model, *map(_unmarked, tools)]))

    def add(self, message: Json) -> None:
        """The next message, as it goes up."""
        try:
            said: Any = as_turns([message])
        except InvalidRequest:  # what Anthropic does not take, another provider of signed thoughts may
            said = message
        self._hash.update(b"\n" + jsons.canonical(_unmarked(said)))

    @property
    def digest(self) -> str:
        """Of all that was added so far."""
        return self._hash.copy().hexdigest()[:DIGEST_CHARS]


def is_signed(message: Json) -> bool:
    """Whether a message brings signed thoughts."""
    return bool(message.get(SIGNED))


def without_thoughts(message: Json) -> Json:
    """The message without its signed thoughts, and without their text, which says the same."""
    found = {name: value for name, value in message.items() if name not in (SIGNED, "reasoning_content")}
    blocks = found.get(ANTHROPIC_BLOCKS)
    if isinstance(blocks, list):
        found[ANTHROPIC_BLOCKS] = [b for b in blocks if not isinstance(b, dict) or b.get("type") not in THOUGHTS]
    return found


def lacks_thoughts(messages: list[Json]) -> bool:
    """Whether the last step of a tool loop does not begin with a thought: then Anthropic answers only with thinking
    switched off, where it was switched on by hand."""
    last = next((i for i in reversed(range(len(messages))) if messages[i].get("role") == "assistant"), None)
    if last is None or last + 1 == len(messages) or messages[last + 1].get("role") != "tool":
        return False
    _, turns = as_turns([messages[last]])
    first = turns[0]["content"][0]["type"] if turns and turns[0]["content"] else None
    return first not in THOUGHTS


def is_enabled(thinking: Any) -> bool:
    """Whether thinking is switched on by hand, rather than left to the model."""
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def without_thinking(fields: Mapping[str, Any]) -> Json:
    """The fields of a request with thinking left out, and what makes sense with it alone."""
    found = {name: value for name, value in fields.items() if name != "thinking"}
    edits = found.get(EDITS)
    if isinstance(edits, dict) and isinstance(edits.get("edits"), list):
        kept = [edit for edit in edits["edits"] if not _is_of_thinking(edit)]
        found[EDITS] = {**edits, "edits": kept}
        if not kept:
            del found[EDITS]
    return found


def _is_of_thinking(edit: Any) -> bool:
    return isinstance(edit, dict) and str(edit.get("type")).startswith(THINKING_EDITS)


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(each) for name, each in value.items() if name != BREAKPOINT}
    return [_unmarked(each) for each in value] if isinstance(value, list | tuple) else value
