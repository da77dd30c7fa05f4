"""What a client sent, as a chain of messages: what it is recognised by, and what is new in it (guarantee §3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.models.chain import (
    START,
    ChainDigest,
    ChainKey,
    call_ids,
    calling,
    chain_digests,
    chain_key,
    content_text,
    is_continued,
    is_said,
    is_step,
    message_digest,
    plain_chain_digests,
)
from gateway.models.conversation import INSTRUCTION_ROLES, ConversationMessage, new_message
from gateway.models.exchange import ChatRequest

# What a client left out of a chain that it sent again (guarantee §3.2, §3.4). Pure: messages in, positions out.


EVIDENCE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Merged:
    """The stored messages of a chain that was sent again, with the system messages that stand in between as they were
    sent this time; and the ids of those that were not sent. System messages that were left out are left out."""

    messages: tuple[ConversationMessage, ...]
    left_out: frozenset[str]


def merged(path: Sequence[ConversationMessage], sent: Sequence[dict[str, Any]], *, beyond: bool) -> Merged:
    """Puts both together.

    They end at the same place and say the same; of the path only the end may have been read. A message and its
    prefill may stand in what was sent as two, or without the prefill.

    Args:
        beyond: whether what is older than all that was sent belongs to it, too: of a conversation that was recognised
            only turns of the chain come back (guarantee §3.2).
    """
    found: list[ConversationMessage] = []
    left_out: set[str] = set()
    at = len(sent) - 1
    for message in reversed(path):
        if at < 0 and not beyond:
            break
        while at >= 0 and sent[at]["role"] in INSTRUCTION_ROLES and message.digest != message_digest(sent[at]):
            found.append(new_message(sent[at]))
            at -= 1
        if at >= 0 and message.digest == message_digest(sent[at]):
            at -= 1
        elif at >= 0 and is_said(message.body) and is_said(sent[at]):
            at -= 1
            while at >= 0 and is_continued(sent, at):
                at -= 1
        elif at >= 0 and (count := _prefilled_step(message, sent, at)):
            at -= count
        else:
            left_out.add(message.message_id or "")
            if message.role in INSTRUCTION_ROLES:
                continue
        found.append(message)
    if path and not path[0].sequence_number:  # the whole chain was read
        found += [new_message(body) for body in reversed(sent[: at + 1]) if body["role"] in INSTRUCTION_ROLES]
    return Merged(tuple(reversed(found)), frozenset(left_out))


def _prefilled_step(message: ConversationMessage, sent: Sequence[dict[str, Any]], at: int) -> int:
    """Of how many messages sent, up to `at`, the stored one with tool calls was made: of one that left out its
    prefill, or of both; 0 if it is another."""
    words, rest = content_text(message.content), content_text(sent[at].get("content") or "")
    if not call_ids(message.body) or words is None or rest is None or not words.strip().endswith(rest.strip()):
        return 0
    if message.digest != message_digest({**sent[at], "content": words}):
        return 0
    before = sent[at - 1] if at else {}
    prefill = content_text(before.get("content")) if before.get("role") == "assistant" and is_said(before) else None
    return 2 if prefill and words.strip().startswith(prefill.strip()) else 1


def has_evidence(chain: Sequence[dict[str, Any]], known: int, path: Sequence[ConversationMessage]) -> bool:
    """Whether a chain that was recognised is hardly somebody else's who said the same: it holds an id of a tool call,
    or enough of what the assistant wrote (guarantee §3.2).

    What was said has been recognised as a whole, steps as far as the first `known` messages. A call shows nothing that
    was brought along by a request that had nothing else to show.
    """
    worthless = {each for message in path if message.unproven for each in call_ids(message.body)}
    chars = 0
    for index, body in enumerate(chain):
        ids = [str(body.get("tool_call_id"))] if body["role"] == "tool" else call_ids(body)
        if index < known and not worthless.issuperset(ids):
            return True
        if body["role"] == "assistant":
            chars += len((content_text(body.get("content")) or "").strip())
            if chars >= EVIDENCE_CHARS:
                return True
    return False


PEOPLE = ("user", "safety_identifier")


@dataclass(frozen=True, slots=True)
class Sent:
    """The messages of a request: leading system messages, the rest, and the marks after each of these.

    `prefilled`: the last is the beginning of the answer (guarantee §3.4). `answers`: assistant's messages before that.
    """

    instructions: tuple[dict[str, Any], ...]
    bodies: Sequence[dict[str, Any]]
    marks: Sequence[ChainDigest]
    prefilled: bool
    answers: bool

    @property
    def matched(self) -> int:
        """How many of the messages may be stored already: all but a prefill."""
        return len(self.bodies) - self.prefilled

    def mark(self, count: int) -> ChainDigest:
        """The mark after the first `count` messages."""
        return self.marks[count - 1] if count else START


def sent_in(request: ChatRequest) -> Sent:
    """The messages of a request as a chain."""
    instructions = sent_instructions(request)
    count = len(instructions)
    bodies = request.messages[count:]
    if request.plain is not None:
        marks = plain_chain_digests(request.plain.roles[count:], request.plain.texts[count:])
    else:
        marks = chain_digests(bodies)
    prefilled = bool(bodies) and bodies[-1]["role"] == "assistant" and not is_step(bodies[-1])
    answers = any(body["role"] == "assistant" for body in bodies[: len(bodies) - prefilled])
    return Sent(instructions, bodies, marks, prefilled, answers)


def sent_instructions(request: ChatRequest) -> tuple[dict[str, Any], ...]:
    """The leading system and developer messages."""
    messages, count = request.messages, 0
    while count < len(messages) and messages[count]["role"] in INSTRUCTION_ROLES:
        count += 1
    return messages[:count]


def people_of(forward: dict[str, Any]) -> tuple[str, ...]:
    """Who asks, as the request says it (`user`, `safety_identifier`): a part of what a chain is recognised by."""
    return tuple(sorted({name for key in PEOPLE if isinstance(name := forward.get(key), str) and name}))


def keys_of(sent: Sent, secret: bytes, tenant: str, people: Sequence[str]) -> tuple[ChainKey, ...]:
    """The chains that the request may continue, the first that is known counts: that of its last answer, and if that
    may be a prefill also that of the answer before."""
    found: list[ChainKey] = []
    for index in range(len(sent.bodies) - 1, -1, -1):
        body = sent.bodies[index]
        if body["role"] != "assistant":
            continue
        if is_step(body):
            found.append(chain_key(secret, tenant, people, calling(sent.mark(index), body), call_ids(body)))
        else:
            found.append(chain_key(secret, tenant, people, sent.marks[index].said))
        if not (sent.prefilled and index == len(sent.bodies) - 1):
            break
    return tuple(found)
