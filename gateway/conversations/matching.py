"""Recognises a conversation in what a client sent, and finds what the client left out of it (guarantee §3.2, ADR 8).

Pure: messages in, digests and positions out. `storage/lookup/find.py` looks the digests up.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core.frozen_records import record
from gateway.core.types.chain import (
    START,
    ChainDigest,
    ChainKey,
    ChainKeys,
    call_digest,
    call_ids,
    chain_digests,
    content_text,
    is_continued,
    is_said,
    is_step,
    message_digest,
    plain_chain_digests,
    says_nothing,
)
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.conversation import INSTRUCTION_ROLES, ConversationMessage, new_message

USER_FIELDS = ("user", "safety_identifier")
EVIDENCE_CHARS = 200
"""Characters of assistant text that hardly two conversations have in common (guarantee §3.2)."""


@record
class SentChain:
    """The messages of a request: leading system messages, the other ones, and the chain digests after each of these.

    `prefilled`: the last message is the beginning of the answer (guarantee §3.4); `delivered`: it is an assistant's,
    and what an agent is to answer (§11.3). `answers`: there are assistant messages before that. `known`: as many of
    `bodies` were in an earlier request that was answered. `pinned`: indexes of those that stay in every window.
    """

    instructions: tuple[dict[str, Any], ...]
    bodies: Sequence[dict[str, Any]]
    digests: Sequence[ChainDigest]
    prefilled: bool
    delivered: bool
    answers: bool
    known: int = 0
    pinned: frozenset[int] = frozenset()

    @property
    def matched(self) -> int:
        """The number of messages that may be stored already: all but a prefill."""
        return len(self.bodies) - self.prefilled

    @property
    def trails(self) -> bool:
        """Whether it ends with an assistant message, which may be new."""
        return self.prefilled or self.delivered

    def digest(self, count: int) -> ChainDigest:
        """The chain digest after the first `count` messages."""
        return self.digests[count - 1] if count else START


def sent_chain(request: ChatRequest) -> SentChain:
    """The messages of a request as a chain."""
    instructions = sent_instructions(request)
    count = len(instructions)
    bodies = request.messages[count:]
    known = _known_digests(request, bodies)
    first, before = len(known), known[-1] if known else START
    if request.plain is not None:
        plain = request.plain
        new = plain_chain_digests(plain.roles[count + first :], plain.texts[count + first :], before)
    else:
        new = chain_digests(bodies[first:], before)
    digests = request.known.digests = [*known, *new]
    trails = bool(bodies) and bodies[-1]["role"] == "assistant" and not is_step(bodies[-1])
    prefilled = trails and request.prefills
    answers = any(body["role"] == "assistant" for body in bodies[: len(bodies) - trails])
    pinned = frozenset(index - count for index in request.pinned) if request.pinned else request.pinned
    known_before = max(0, request.known.count - count)
    return SentChain(instructions, bodies, digests, prefilled, trails and not prefilled, answers, known_before, pinned)


def _known_digests(request: ChatRequest, bodies: Sequence[dict[str, Any]]) -> Sequence[ChainDigest]:
    """The chain digests that are known from an earlier request, but for those of a run of answers at their end: it may
    go on, and answers next to each other count as one."""
    known = request.known.digests
    count = min(len(known), len(bodies))
    while count and bodies[count - 1]["role"] == "assistant":
        count -= 1
    return known[:count]


def sent_instructions(request: ChatRequest) -> tuple[dict[str, Any], ...]:
    """The leading system and developer messages."""
    messages, count = request.messages, 0
    while count < len(messages) and messages[count]["role"] in INSTRUCTION_ROLES:
        count += 1
    return messages[:count]


def users_of(forward: Mapping[str, Any], caller: RequestCaller) -> tuple[str, ...]:
    """The users that a request names (`user`, `safety_identifier`); a chain is recognised for the same ones only. Whom
    the caller's token names, it is."""
    if caller.user is not None:
        return (caller.user,)
    return tuple(sorted({name for key in USER_FIELDS if isinstance(name := forward.get(key), str) and name}))


def end_user_of(forward: Mapping[str, Any], caller: RequestCaller) -> str | None:
    """The user whom a bill names: whom the caller's token names, else the first of these fields that is there."""
    if caller.user is not None:
        return caller.user
    return next((name for key in USER_FIELDS if isinstance(name := forward.get(key), str) and name), None)


def recognition_keys(sent: SentChain, keys: ChainKeys) -> tuple[ChainKey, ...]:
    """The keys of the chains that a request may continue; the first that is known counts. They are that of its last
    answer and, where that may be new, that of the answer before. `whole` is empty where no tool step was sent."""
    found: list[ChainKey] = []
    for index in range(len(sent.bodies) - 1, -1, -1):
        body = sent.bodies[index]
        if body["role"] != "assistant":
            continue
        digest = sent.digests[index]
        has_steps = digest.path != digest.said and any(map(is_step, sent.bodies[: index + 1]))
        whole = keys.whole(digest.path) if has_steps else b""
        if is_step(body):
            found.append(keys.key(call_digest(sent.digest(index), body), call_ids(body), whole))
        else:
            found.append(keys.key(digest.said, whole=whole))
        if not (sent.trails and index == len(sent.bodies) - 1):
            break
    return tuple(found)


@record
class MergedPath:
    """The stored messages of a chain that was sent again, and the ids of those that the client left out.

    System messages between them are those that were sent this time; `before` are those sent before what was read of
    the path, None where nothing was.
    """

    messages: tuple[ConversationMessage, ...]
    left_out: frozenset[str]
    before: tuple[ConversationMessage, ...] | None = None


def merge_path(path: Sequence[ConversationMessage], sent: Sequence[dict[str, Any]], *, beyond: bool) -> MergedPath:
    """Aligns the stored path with the messages that were sent, from their common end backwards.

    Only the end of the path may have been read. A message and its prefill may have been sent as two messages, or
    without the prefill; answers next to each other may have been sent as one.
    `beyond`: also take stored messages that are older than all that was sent. A conversation that was recognised
    without a name gives back only turns of the chain (guarantee §3.2)."""
    found: list[ConversationMessage] = []
    left_out: set[str] = set()
    at = len(sent) - 1
    for message in reversed(path):
        if at < 0 and not beyond:
            break
        if says_nothing(message.body, message.status):  # in no chain, so it stands for nothing that was sent
            left_out.add(message.message_id or "")
            found.append(message)
            continue
        while at >= 0 and sent[at]["role"] in INSTRUCTION_ROLES and message.digest != message_digest(sent[at]):
            found.append(new_message(sent[at]))
            at -= 1
        if at >= 0 and message.digest == message_digest(sent[at]):
            at -= 1
        elif at >= 0 and is_said(message.body) and is_said(sent[at]):
            if message.role == sent[at]["role"]:  # else it is stored as one of several answers that were sent as one
                at -= 1
                while at >= 0 and is_continued(sent, at):
                    at -= 1
        elif at >= 0 and (count := _prefilled_step(message, sent, at)):
            at -= count
        else:
            left_out.add(message.message_id or "")
            if message.role in INSTRUCTION_ROLES and at >= 0:
                continue
        found.append(message)
    before = tuple(new_message(body) for body in sent[: at + 1] if body["role"] in INSTRUCTION_ROLES)
    messages = tuple(reversed(found))
    if path and not path[0].sequence_number:  # the whole chain was read
        return MergedPath((*before, *messages), frozenset(left_out))
    return MergedPath(messages, frozenset(left_out), before if at >= 0 else None)


def _prefilled_step(message: ConversationMessage, sent: Sequence[dict[str, Any]], at: int) -> int:
    """How many of the sent messages, `at` being the last, make up the stored one with tool calls: 1 without its
    prefill, 2 with it, 0 if it is another message."""
    words, rest = content_text(message.content), content_text(sent[at].get("content") or "")
    if not call_ids(message.body) or words is None or rest is None or not words.strip().endswith(rest.strip()):
        return 0
    if message.digest != message_digest({**sent[at], "content": words}):
        return 0
    before = sent[at - 1] if at else {}
    prefill = content_text(before.get("content")) if before.get("role") == "assistant" and is_said(before) else None
    return 2 if prefill and words.strip().startswith(prefill.strip()) else 1


def has_evidence(chain: Sequence[dict[str, Any]], known: int, path: Sequence[ConversationMessage]) -> bool:
    """Whether a recognised chain shows that it is the client's own conversation, not one of somebody who said the same:
    it holds the id of a tool call, or enough assistant text (guarantee §3.2).
    `chain`: the messages that were sent. `known`: how many of them are stored with their tool steps. `path`: the stored
    messages. The calls of an `unproven` one are no evidence: another client may have sent them."""
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
