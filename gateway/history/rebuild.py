"""Rebuilds the conversation of a request: `build_llm_messages()` (guarantee §3)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.base.ids import new_id
from gateway.errors import ConversationNotFound
from gateway.history.frames import named, of_sender
from gateway.history.recognition import (
    Merged,
    Sent,
    has_evidence,
    keys_of,
    merged,
    people_of,
    sent_in,
    sent_instructions,
)
from gateway.history.tool_pairs import (
    check_answered,
    check_pairs,
    forwardable,
    new_message,
    regrouped,
    without_open_calls,
)
from gateway.models.artifacts import Artifact
from gateway.models.chain import chain_digests
from gateway.models.conversation import (
    INLINE_MESSAGES,
    INSTRUCTION_ROLES,
    UNREAD,
    ConversationMessage,
    History,
    Lookup,
    StoredConversation,
)
from gateway.models.exchange import ChatRequest
from gateway.models.frames import Frame
from gateway.models.tool_steps import RESULT_ROLES
from gateway.ports import ConversationReader

# What the window cannot hold of a long conversation is read, too, for a question that may need it (guarantee §4 I6).


async def with_earlier(history: History, store: ConversationReader, tenant: str, max_bytes: int) -> History:
    """The conversation with the latest of the messages that are older than what was read of it, no more than
    `max_bytes` of them; as it is where everything was read.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    if not lacks_earlier(history) or history.read_from is None:
        return history
    earlier = await store.read_earlier(tenant, history.read_from, max_bytes=max_bytes)
    return replace(history, earlier=replace(earlier, messages=tuple(regrouped(earlier.messages))))


def asks_anew(history: History) -> bool:
    """Whether the request begins a turn: its question comes with it, so that a block can stand before it."""
    return any(message.role == "user" for message in history.new_messages)


def lacks_earlier(history: History) -> bool:
    """Whether there are older messages than what was read, of which none were read yet."""
    return history.read_from is not None and history.earlier is None


INLINE_BYTES = 2**20
BYTES_PER_TOKEN = 8
"""No more stored bytes are read than this times the budget: text with longer tokens than that is none."""


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """How a request's conversation is rebuilt.

    `remembers`: whether it leaves stored content (`store`, and a mode other than `off`). `match`: whose chains may be
    continued without a name (`conversation.match`). `brief`: it fits as it was sent, so what is stored the same need
    not be read. `budget_tokens`: only as much of the path is read as could fit into it (None: all).
    """

    remembers: bool
    match: str = "tenant"
    brief: bool = False
    budget_tokens: int | None = None

    @property
    def max_bytes(self) -> int | None:
        return None if self.budget_tokens is None else BYTES_PER_TOKEN * self.budget_tokens


async def build_llm_messages(request: ChatRequest, store: ConversationReader, how: RebuildOptions) -> History:
    """The messages of the conversation, each with its reasoning steps, and where the new ones hang.

    Raises:
        ConversationNotFound: the id is unknown, deleted or another tenant's.
        InvalidRequest: results and calls do not pair; names `messages[i]`.
        StorageUnavailable: it was needed and cannot be reached.
    """
    little = _is_little(request)
    sent = sent_in(request) if little else await asyncio.to_thread(sent_in, request)
    ref, tenant = request.conversation, request.caller.tenant
    sought = await _sought(request, sent, store, how)
    stored = None
    if ref.conversation_id or ref.session or (sought and sought.keys):
        stored = await store.find_conversation(tenant, ref, max_bytes=how.max_bytes, lookup=sought, model=request.model)
        if stored is None and ref.conversation_id:
            raise ConversationNotFound("No such conversation.", param="conversation")
    if little and len(stored.path if stored else ()) < INLINE_MESSAGES:
        return _rebuilt(request, sent, sought, stored, how)
    return await asyncio.to_thread(_rebuilt, request, sent, sought, stored, how)


def spread(request: ChatRequest, history: History) -> History:
    """A history that was forwarded as sent, with all of its messages one by one."""
    if history is UNREAD:
        return _new_conversation(request, sent_in(request), RebuildOptions(remembers=False))
    count = len(request.messages) - len(sent_instructions(request))
    first = count - len(history.new_messages)
    bodies = request.messages[len(request.messages) - count :]
    known = tuple(new_message(body, i) for i, body in enumerate(bodies[:first]))
    instructions = sent_instructions(request)
    return replace(history, instructions=instructions, messages=(*known, *history.new_messages), stored=first)


async def _sought(request: ChatRequest, sent: Sent, store: ConversationReader, how: RebuildOptions) -> Lookup | None:
    """What is to be found of a resend; None for a delta, and for what continues nothing."""
    ref = request.conversation
    if not (sent.answers or sent.prefilled):
        return None
    found = Lookup(
        bodies=sent.bodies[: sent.matched],
        marks=sent.marks[: sent.matched],
        instructed=bool(sent.instructions),
        brief=how.brief,
        maybe_delta=not sent.answers,
    )
    if ref.conversation_id or ref.session:
        return found
    people = people_of(request.forward)
    if how.match == "off" or (how.match == "user" and not people):
        return None
    keys = keys_of(sent, await store.secret(), request.caller.tenant, people)
    return replace(found, keys=keys, instructed=True, maybe_delta=False)


def _is_little(request: ChatRequest) -> bool:
    """Whether comparing and pairing is done in the twinkling of an eye; streams of others must not wait for it."""
    return len(request.messages) < INLINE_MESSAGES and request.size < INLINE_BYTES


def _rebuilt(
    request: ChatRequest, sent: Sent, sought: Lookup | None, stored: StoredConversation | None, how: RebuildOptions
) -> History:
    if stored is None:
        return _new_conversation(request, sent, how)
    if sought is None or (sought.maybe_delta and not stored.place.kept):
        return _delta(sent, stored, how)
    if sought.keys and not (stored.place.restored or has_evidence(sought.bodies, stored.place.kept, stored.path)):
        return replace(_as_sent(sent, stored, how), unproven=True)
    if not stored.read:
        return _as_sent(sent, stored, how)
    return _resent(sent, stored, how, recognised=bool(sought.keys))


def _new_conversation(request: ChatRequest, sent: Sent, how: RebuildOptions) -> History:
    messages = _new_messages(sent, 0, 0)
    check_pairs(messages, 0, len(sent.instructions))
    return History(
        conversation_id=new_id("conv_") if how.remembers else None,
        created=True,
        instructions=sent.instructions,
        messages=messages,
        session=request.conversation.session if how.remembers else None,
        marks=tuple(sent.marks),
        as_sent=True,
    )


def _as_sent(sent: Sent, stored: StoredConversation, how: RebuildOptions) -> History:
    """The conversation goes on, and nothing but what was sent is forwarded."""
    place = stored.place
    frame: Frame | None = None
    if stored.read:
        messages = _new_messages(sent, 0, 0)
        check_pairs(messages, 0, len(sent.instructions))
        known = place.kept
        if place.mark.path == sent.mark(known).path:
            messages, frame = named(messages, stored), of_sender(stored)
    else:  # it is plain: there is nothing to pair, and nobody will look at what is known of it
        messages, known = _new_messages(sent, place.kept, 0), 0
    return History(
        conversation_id=stored.conversation_id if how.remembers else None,
        created=False,
        instructions=sent.instructions,
        messages=messages,
        stored=known,
        parent_id=place.message_id,
        at_head=place.message_id == stored.head_id,
        base=sent.mark(place.kept),
        marks=tuple(sent.marks[place.kept :]),
        as_sent=frame is None,
        restored_ids=frozenset(),
        keeps_restored=place.restored,
        frame=frame,
    )


def _delta(sent: Sent, stored: StoredConversation, how: RebuildOptions) -> History:
    """New messages, appended to the whole path (guarantee §3.1)."""
    base = forwardable(regrouped(stored.path))
    if not (sent.bodies and sent.bodies[0]["role"] in RESULT_ROLES):
        base = without_open_calls(base)
    if sent.instructions:
        base = [message for message in base if message.role not in INSTRUCTION_ROLES]
    messages = [*base, *_new_messages(sent, 0, _next_number(stored))]
    check_pairs(messages, len(base), len(sent.instructions))
    return History(
        conversation_id=stored.conversation_id if how.remembers else None,
        created=False,
        instructions=sent.instructions or stored.instructions,
        messages=tuple(messages),
        stored=len(base),
        parent_id=stored.place.message_id,
        at_head=True,
        attachments=stored.attachments,
        restored=len(base),
        unread=stored.unread,
        read_from=stored.path[0].message_id if stored.unread else None,
        base=stored.place.mark,
        marks=tuple(chain_digests(sent.bodies, stored.place.mark)),
        keeps_restored=stored.place.restored,
        frame=stored.frame,
    )


def _resent(sent: Sent, stored: StoredConversation, how: RebuildOptions, *, recognised: bool) -> History:
    """What is stored of what was sent, with what its client left out, and the new messages."""
    place = stored.place
    same = place.mark.path == sent.mark(place.kept).path
    known = (
        Merged(stored.path, frozenset())
        if same
        else merged(stored.path, sent.bodies[: place.kept], beyond=not recognised)
    )
    offset = len(sent.instructions)
    check_answered(sent.bodies, offset)
    new = _new_messages(sent, place.kept, _next_number(stored))
    base = forwardable(regrouped(known.messages), new, known.left_out)
    if not (new and new[0].role in RESULT_ROLES):
        base = without_open_calls(base, known.left_out)
    messages = [*base, *new]
    check_pairs(messages, len(base), offset + place.kept)
    restored = sum(message.message_id in known.left_out for message in base)
    attachments = _of_chain(stored.attachments, sent, place.kept) if recognised else stored.attachments
    earlier = max((i for i, body in enumerate(sent.bodies) if body["role"] == "user"), default=0)
    return History(
        conversation_id=stored.conversation_id if how.remembers else None,
        created=False,
        instructions=sent.instructions if recognised else sent.instructions or stored.instructions,
        messages=tuple(messages),
        stored=len(base),
        parent_id=place.message_id,
        at_head=place.message_id == stored.head_id,
        attachments=attachments,
        restored=restored,
        unread=stored.unread,
        read_from=stored.path[0].message_id if stored.unread else None,
        base=sent.mark(place.kept),
        marks=tuple(sent.marks[place.kept :]),
        restored_ids=known.left_out,
        stored_base=None if same else place.mark,
        keeps_restored=place.restored or (recognised and bool(restored or _of_chain(attachments, sent, earlier))),
        frame=stored.frame,
    )


def _new_messages(sent: Sent, first: int, number: int) -> tuple[ConversationMessage, ...]:
    return tuple(new_message(body, number + i) for i, body in enumerate(sent.bodies[first:]))


def _next_number(stored: StoredConversation) -> int:
    return (stored.path[-1].sequence_number or 0) + 1 if stored.path else 0


def _of_chain(attachments: Sequence[Artifact], sent: Sent, kept: int) -> tuple[Artifact, ...]:
    """Those that came with turns of the chain that was recognised (guarantee §3.2)."""
    said = {mark.said for mark in sent.marks[:kept]}
    return tuple(each for each in attachments if each.metadata.get("said_digest") in said)
