"""Compaction blocks of the gateway's: made in front of an answer, and taken back in place of all before them.

One holds in `content` an extract of what was said, for whoever reads it, and sealed in `encrypted_content` what it
stands for: a place in a stored conversation, or that extract. A block of another maker is left as it is.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.core.formats.compaction_items import CompactionMark, CompactionSealer, as_message, is_compacted
from gateway.core.types.content_parts import parts_of
from gateway.core.types.conversation import INSTRUCTION_ROLES

Json = dict[str, Any]
BLOCK = "compaction"
COVERED = object()
"""Stands for a message that a compaction block stands for."""
NOTHING = "(Nothing was said before.)"


class FoundCompaction(NamedTuple):
    """The last compaction block of a request: its message, its place in that, and what is sealed in it."""

    message: int
    block: int
    sealed: str


def find_block(body: Mapping[str, Any]) -> FoundCompaction | None:
    """The last compaction block that may be the gateway's own; None where there is none."""
    given = body.get("messages")
    messages: list[Any] = given if isinstance(given, list) else []
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not isinstance(message, dict) or message.get("role") != "assistant":
            continue
        content = parts_of(message.get("content"))
        for at in range(len(content) - 1, -1, -1):
            block = content[at]
            if (
                isinstance(block, dict)
                and block.get("type") == BLOCK
                and isinstance(block.get("encrypted_content"), str)
            ):
                return FoundCompaction(index, at, block["encrypted_content"])
    return None


def expanded(body: Json, found: FoundCompaction, compacted: CompactionMark) -> Json:
    """The request with what its block stands for in the place of that and of all before it."""
    messages = body["messages"]
    before = [each if _is_systems(each) else COVERED for each in messages[: found.message]]
    here = messages[found.message]
    rest = here["content"][found.block + 1 :]
    told: list[Any] = [as_message(compacted.extract)] if compacted.extract else []
    told += [compacted.question] if compacted.question is not None else []
    if told and before:  # in the place of messages that they stand for, so that all others keep their numbers
        before[-1] = CompactedMessages(told) if before[-1] is COVERED else before[-1]
        told = [] if isinstance(before[-1], CompactedMessages) else told
    answer: Any = {**here, "content": rest} if rest else COVERED
    if told:
        answer = CompactedMessages([*told], answer)
    return {**body, "messages": [*before, answer, *messages[found.message + 1 :]]}


class CompactedMessages(NamedTuple):
    """Stands for chat messages, and for a message of Anthropic's behind them."""

    messages: list[Json]
    then: Any = COVERED


def block_of(sealer: CompactionSealer, completion: Mapping[str, Any]) -> Json | None:
    """The block in front of an answer, of a completion or its first chunk, where room was made for it."""
    if not is_compacted(completion):
        return None
    return as_block(sealer, sealer.made_for(str(completion["id"])))


def as_block(sealer: CompactionSealer, compacted: CompactionMark) -> Json:
    """What stands for all before it, as a block."""
    content = compacted.extract or sealer.extract() or NOTHING
    return {"type": BLOCK, "content": content, "encrypted_content": compacted.sealed(sealer.tenant, sealer.secret)}


def block_events(block: Json, index: int) -> list[Json]:
    """A block as its events."""
    delta = {"type": "compaction_delta", "content": block["content"], "encrypted_content": block["encrypted_content"]}
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": BLOCK, "content": None}},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


def with_iterations(usage: Json) -> Json:
    """Usage with its parts: the compaction, for which no model was called, and the answer."""
    names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    made = {"type": BLOCK, **dict.fromkeys(names, 0)}
    return {**usage, "iterations": [made, {"type": "message", **{name: usage.get(name) or 0 for name in names}}]}


def _is_systems(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in INSTRUCTION_ROLES
