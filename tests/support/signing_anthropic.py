"""A model of Anthropic's that signs its thoughts over all that stands before them, and looks at signatures again.

It refuses what Anthropic refuses: a thought in another place than that where it was made, a tool loop whose last step
does not begin with a thought while thinking is switched on by hand, calls without results, texts of nothing.
"""

import hashlib
import hmac
import json
from typing import Any

from tests.support import anthropic_wire as wire

Json = dict[str, Any]
KEY = b"anthropic's own"
BOUND = (
    "messages.{}.content.{}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
EXPECTED = (
    "messages.{}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is "
    "enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` "
    "and `tool_result` blocks)."
)
THOUGHTS = ("thinking", "redacted_thinking")


KINDS = frozenset(
    {
        *("text", "image", "document", "search_result", "container_upload", "tool_use", "tool_result", *THOUGHTS),
        *("server_tool_use", "web_search_tool_result", "tool_reference"),
    }
)
"""The blocks that it knows."""


class SigningAnthropic:
    """Answers with the blocks that a test asks for, behind a thought that it signs. `refused` are the messages of all
    its 400s; `thoughts` how many signed thoughts each request brought, and `takes` how many of those that it gave
    before a call it would have taken: the call stands where it was made."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.thoughts: list[int] = []
        self.takes: list[int] = []
        self._made: dict[str, str] = {}
        """By the id of a call, what stood before the thought that it was made behind."""
        self.requests: list[Json] = []
        self.thought: str | None = None
        """What it thinks, where a test says."""
        self._serial = 0

    def answer(self, body: Json, *blocks: Json, thinks: bool = True) -> Json:
        """A message of these blocks.

        Raises:
            wire.Refused: the request is none that Anthropic takes.
        """
        self.requests.append(body)
        try:
            self._check(body)
        except wire.Refused as refused:
            self.refused.append(str(refused))
            raise
        self._serial += 1
        said: list[Json] = []
        if thinks and _thinks(body):
            thought = self.thought or f"Thought number {self._serial}."
            mark = _signature(body, body["messages"], [], thought)
            said = [{"type": "thinking", "thinking": thought, "signature": mark}]
            before = _signature(body, body["messages"], [], "")
            self._made |= {block["id"]: before for block in blocks if block["type"] == "tool_use"}
        stop = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
        return wire.message(*said, *blocks, stop=stop)

    def _check(self, body: Json) -> None:
        if not isinstance(body.get("max_tokens"), int):
            raise wire.Refused("max_tokens: Field required")
        found = 0
        used: set[str] = set()
        open_calls: list[str] = []
        for number, message in enumerate(body["messages"]):
            blocks = _blocks(message)
            answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            if sorted(answered) != sorted(open_calls):
                raise wire.Refused(f"messages.{number}: `tool_use` ids and `tool_result` blocks do not match.")
            open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            for place, block in enumerate(blocks):
                inner = block.get("content") if block["type"] == "tool_result" else None
                for each in (block, *(inner if isinstance(inner, list) else ())):
                    if each["type"] not in KINDS:
                        raise wire.Refused(f"messages.{number}.content.{place}: Input tag '{each['type']}' is unknown")
                if block["type"] == "text" and not block["text"].strip():
                    raise wire.Refused("messages: text content blocks must be non-empty")
                if block["type"] == "thinking":
                    found += 1
                    before = (body["messages"][:number], blocks[:place])
                    if block["signature"] != _signature(body, *before, block["thinking"]):
                        raise wire.Refused(BOUND.format(number, place))
            if len(used | set(open_calls)) != len(used) + len(open_calls):
                raise wire.Refused("messages: `tool_use` ids must be unique")
            used |= set(open_calls)
        if open_calls:
            raise wire.Refused("messages: `tool_use` ids were found without `tool_result` blocks immediately after")
        self._check_loop(body)
        self.thoughts.append(found)
        self.takes.append(sum(self._would_take(body, number) for number in range(len(body["messages"]))))

    def _would_take(self, body: Json, number: int) -> bool:
        """Whether the thought that it gave at this message's place belongs there."""
        calls = [block["id"] for block in _blocks(body["messages"][number]) if block["type"] == "tool_use"]
        made = self._made.get(calls[0]) if calls else None
        return made is not None and made == _signature(body, body["messages"][:number], [], "")

    def _check_loop(self, body: Json) -> None:
        messages = body["messages"]
        last = max((i for i, message in enumerate(messages) if message["role"] == "assistant"), default=None)
        is_loop = last is not None and any(block["type"] == "tool_use" for block in _blocks(messages[last]))
        if last is None or not is_loop or (body.get("thinking") or {}).get("type") != "enabled":
            return
        first = _blocks(messages[last])[0]["type"]
        if first not in THOUGHTS:
            raise wire.Refused(EXPECTED.format(last, first))


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [wire.text(content)] if isinstance(content, str) else content


def _thinks(body: Json) -> bool:
    return (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")


def _signature(body: Json, messages: list[Json], blocks: list[Json], thought: str) -> str:
    before = [body["model"], body.get("system"), body.get("tools"), messages, blocks, thought]
    text = json.dumps(_unmarked(before), sort_keys=True)
    return hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()


def _unmarked(value: Any) -> Any:
    """Marks of the cache are not compared."""
    if isinstance(value, dict):
        return {name: _unmarked(each) for name, each in value.items() if name != "cache_control"}
    return [_unmarked(each) for each in value] if isinstance(value, list) else value
