"""Rebuilds the conversation of a request: `build_llm_messages()` (guarantee §3). Recognises it by the client's
messages, and finds those that the client left out (guarantee §3.2, ADR 8); `storage/lookup/find.py` looks the digests
up."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from gateway.conversations import message_forms
from gateway.core import errors, ids, ports
from gateway.core.frozen_records import record
from gateway.core.tasks import offload_if
from gateway.core.types import bill, chain, conversation, memory, tool_steps, turn
from gateway.core.types.artifacts import Artifact
from gateway.core.types.chain import ChainDigest, ChainKey, ChainKeys
from gateway.core.types.chat import ChatRequest
from gateway.core.types.content_parts import content_text
from gateway.core.types.conversation import (
    ConversationHistory,
    ConversationMessage,
    ConversationRef,
    HistoryLookup,
    PromptFrame,
    StoredConversation,
)

EVIDENCE_CHARS = 200
"""Characters of assistant text that two conversations hardly ever share (guarantee §3.2)."""


@record
class SentChain:
    """The messages of a request: leading system messages, the other ones, and the chain digests after each of these.

    `prefilled`: the last message is the beginning of the answer (guarantee §3.4); `delivered`: it is an assistant's,
    for an agent to answer (§11.3). `answers`: there are assistant messages before it. `known`: how many of `bodies`
    were in an earlier request that was answered. `pinned`: indexes of messages that stay in every window.
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
        """Whether the chain ends with an assistant message, which may be new."""
        return self.prefilled or self.delivered

    def digest(self, count: int) -> ChainDigest:
        """Returns the chain digest after the first `count` messages."""
        return self.digests[count - 1] if count else chain.CHAIN_START


def sent_chain(request: ChatRequest) -> SentChain:
    """Builds the chain of a request's messages, and stores its digests with the request (`request.known`)."""
    instructions = sent_instructions(request)
    count = len(instructions)
    bodies = request.messages[count:]
    known = _known_digests(request, bodies)
    first, before = len(known), known[-1] if known else chain.CHAIN_START
    if request.plain is not None:
        plain = request.plain
        new = chain.plain_chain_digests(plain.roles[count + first :], plain.texts[count + first :], before)
    else:
        new = chain.chain_digests(bodies[first:], before)
    digests = request.known.digests = [*known, *new]
    trails = bool(bodies) and bodies[-1]["role"] == "assistant" and not chain.is_step(bodies[-1])
    prefilled = trails and request.prefills
    others = bodies[: len(bodies) - trails]
    answers = any(body["role"] == "assistant" and not chain.answered_hosted(body) for body in others)
    pinned = frozenset(index - count for index in request.pinned) if request.pinned else request.pinned
    known_before = max(0, request.known.count - count)
    return SentChain(instructions, bodies, digests, prefilled, trails and not prefilled, answers, known_before, pinned)


def _known_digests(request: ChatRequest, bodies: Sequence[dict[str, Any]]) -> Sequence[ChainDigest]:
    """Returns the chain digests known from an earlier request, except those of answers at their end: that run of
    answers may go on, and adjacent answers count as one."""
    known = request.known.digests
    count = min(len(known), len(bodies))
    while count and bodies[count - 1]["role"] == "assistant":
        count -= 1
    return known[:count]


def sent_instructions(request: ChatRequest) -> tuple[dict[str, Any], ...]:
    """Returns the leading system and developer messages."""
    messages, count = request.messages, 0
    while count < len(messages) and messages[count]["role"] in conversation.INSTRUCTION_ROLES:
        count += 1
    return messages[:count]


def recognition_keys(sent: SentChain, keys: ChainKeys) -> tuple[ChainKey, ...]:
    """Returns the keys of the chains that a request may continue, of which the first known one counts: the key of the
    last answer and, where that answer may be new, of the answer before. `whole` is empty if no tool step was sent."""
    found: list[ChainKey] = []
    for index in range(len(sent.bodies) - 1, -1, -1):
        body = sent.bodies[index]
        if body["role"] != "assistant":
            continue
        digest = sent.digests[index]
        has_steps = digest.path != digest.said and any(map(chain.is_step, sent.bodies[: index + 1]))
        whole = keys.whole(digest.path) if has_steps else b""
        if chain.is_step(body):
            found.append(keys.key(chain.call_digest(sent.digest(index), body), chain.call_ids(body), whole))
        else:
            found.append(keys.key(digest.said, whole=whole))
        if not (sent.trails and index == len(sent.bodies) - 1):
            break
    return tuple(found)


@record
class MergedPath:
    """The stored messages of a chain that was sent again, and the ids of those that the client left out.

    System messages between them are those that were sent this time; `before` holds those sent before the part of the
    path that was read, None if there are none.
    """

    messages: tuple[ConversationMessage, ...]
    left_out: frozenset[str]
    before: tuple[ConversationMessage, ...] | None = None


def merge_path(path: Sequence[ConversationMessage], sent: Sequence[dict[str, Any]], *, beyond: bool) -> MergedPath:
    """Aligns the stored path with the messages that were sent, from their common end backwards.

    Only the end of the path may have been read. A message and its prefill may have been sent as two messages, or
    without the prefill; adjacent answers may have been sent as one.
    `beyond`: also take stored messages that are older than all that was sent. A conversation that was recognised
    without a name returns only turns of the chain (guarantee §3.2)."""
    found: list[ConversationMessage] = []
    left_out: set[str] = set()
    at = len(sent) - 1
    for message in reversed(path):
        if at < 0 and not beyond:
            break
        if chain.says_nothing(message.body, message.status):  # in no chain, so it matches nothing that was sent
            left_out.add(message.message_id or "")
            found.append(message)
            continue
        while (
            at >= 0
            and sent[at]["role"] in conversation.INSTRUCTION_ROLES
            and message.digest != chain.message_digest(sent[at])
        ):
            found.append(conversation.new_message(sent[at]))
            at -= 1
        if at >= 0 and message.digest == chain.message_digest(sent[at]):
            at -= 1
        elif at >= 0 and chain.is_said(message.body) and chain.is_said(sent[at]):
            if message.role == sent[at]["role"]:  # else one of several stored answers that were sent as one
                at -= 1
                while at >= 0 and chain.is_continued(sent, at):
                    at -= 1
        elif at >= 0 and (count := _prefilled_step(message, sent, at)):
            at -= count
        else:
            left_out.add(message.message_id or "")
            if message.role in conversation.INSTRUCTION_ROLES and at >= 0:
                continue
        found.append(message)
    before = tuple(
        conversation.new_message(body) for body in sent[: at + 1] if body["role"] in conversation.INSTRUCTION_ROLES
    )
    messages = tuple(reversed(found))
    if path and not path[0].sequence_number:  # the whole chain was read
        return MergedPath((*before, *messages), frozenset(left_out))
    return MergedPath(messages, frozenset(left_out), before if at >= 0 else None)


def _prefilled_step(message: ConversationMessage, sent: Sequence[dict[str, Any]], at: int) -> int:
    """Counts the sent messages, ending at `at`, that make up the stored one with tool calls: 1 without its prefill, 2
    with it, 0 if it is another message."""
    words, rest = content_text(message.content), content_text(sent[at].get("content") or "")
    if not chain.call_ids(message.body) or words is None or rest is None or not words.strip().endswith(rest.strip()):
        return 0
    if message.digest != chain.message_digest({**sent[at], "content": words}):
        return 0
    before = sent[at - 1] if at else {}
    prefill = (
        content_text(before.get("content")) if before.get("role") == "assistant" and chain.is_said(before) else None
    )
    return 2 if prefill and words.strip().startswith(prefill.strip()) else 1


def has_evidence(sent: Sequence[dict[str, Any]], known: int, path: Sequence[ConversationMessage]) -> bool:
    """Returns whether a recognised chain proves that the conversation is the client's own, and not that of another
    client with the same messages: it holds the id of a tool call, or enough assistant text (guarantee §3.2).
    `sent`: the messages that were sent. `known`: how many of them are stored with their tool steps. `path`: the stored
    messages. Calls of an `unproven` message are no evidence: another client may have sent them."""
    worthless = {each for message in path if message.unproven for each in chain.issued_ids(message.body)}
    chars = 0
    for index, body in enumerate(sent):
        ids = [str(body.get("tool_call_id"))] if body["role"] == "tool" else chain.issued_ids(body)
        if index < known and not worthless.issuperset(ids):
            return True
        if body["role"] == "assistant":
            chars += len((content_text(body.get("content")) or "").strip())
            if chars >= EVIDENCE_CHARS:
                return True
    return False


SMALL_BODY_BYTES = 2**20
"""A body of fewer bytes is compared and paired in less time than other requests would notice."""
COMPACTED_BYTES = 8000
"""Stored bytes of the path before a compaction that stay in the window, in whole turns; the latest always stays."""
COMPACTED_BYTES_PER_TOKEN = 2
"""Stored bytes that stay for each token of the limit that triggered the compaction: half of the limit, at four bytes a
token, so that the path is not compacted again at once."""
MAX_BYTES_PER_TOKEN = 8
"""Stored bytes that are read for each token of the budget: no text has longer tokens on average."""


@record
class RebuildOptions:
    """How a request's conversation is rebuilt.

    `remembers`: the request leaves stored content. `match`: whose conversations may be continued without a name
    (`conversation.match`). `fits_as_sent`: the request fits as it was sent, so messages that are stored the same need
    not be read. `budget_tokens`: only as much of the path is read as could fit into this budget (None: all).
    `before_lookup` is awaited before the storage is read, with the chain digests of what was sent.
    """

    remembers: bool
    match: str = "tenant"
    fits_as_sent: bool = False
    budget_tokens: int | None = None
    before_lookup: Callable[[Sequence[ChainDigest]], Awaitable[None]] | None = None

    def matches(self, request: ChatRequest) -> bool:
        """Returns whether a conversation without a name is recognised for this request's user."""
        return self.match != "off" and (self.match != "user" or bool(request.users))

    @property
    def max_bytes(self) -> int | None:
        return None if self.budget_tokens is None else MAX_BYTES_PER_TOKEN * self.budget_tokens


async def build_llm_messages(
    request: ChatRequest, store: ports.HistoryStore, options: RebuildOptions
) -> ConversationHistory:
    """Rebuilds the messages of the conversation, each with its reasoning steps, and finds where the new ones attach.
    Raises ConversationNotFound: the id is unknown, deleted or another tenant's; InvalidRequest: results and calls do
    not pair (names `messages[i]`), there is no message at all, or the response to continue from does not exist (status
    and text are OpenAI's); StorageUnavailable: the storage was needed and cannot be reached."""
    # whether comparing and pairing takes less time than starting a thread for it
    small = len(request.messages) < conversation.INLINE_MESSAGES and request.size < SMALL_BODY_BYTES
    sent = await offload_if(not small, sent_chain, request)
    ref, tenant = request.conversation, request.caller.tenant
    lookup = await _lookup(request, sent, store, options)
    stored = None
    if ref.conversation_id or ref.session or ref.is_point or (lookup and lookup.keys):
        if options.before_lookup is not None:
            await options.before_lookup(sent.digests)
        most: int | None = options.max_bytes
        model: str | None = request.model
        if ref.at is not None:  # older turns leave the window, and what was frozen of it
            limit = request.options.clear_above or COMPACTED_BYTES
            most, model = min(COMPACTED_BYTES, limit * COMPACTED_BYTES_PER_TOKEN) + request.size, None
        stored = await store.find_conversation(tenant, ref, max_bytes=most, lookup=lookup, model=model)
        if stored is None and ref.conversation_id:
            raise errors.ConversationNotFound("No such conversation.", param="conversation")
        if stored is not None and ref.is_whole and not (lookup and stored.resume_point.kept):
            # Something else that is said in the same session, such as an agent's own conversation.
            return await build_llm_messages(replace(request, conversation=conversation.UNNAMED), store, options)
        if stored is None and ref.is_point:
            text = f"Previous response with id '{ref.at if ref.behind is None else ref.behind}' not found."
            raise errors.InvalidRequest(text, param="previous_response_id", code="previous_response_not_found")
        if stored is not None and lookup is None and not ref.is_point:
            step = message_forms.interrupted_step(stored.path, sent.bodies)
            if step is not None:
                at = ConversationRef(at=step)
                again = await store.find_conversation(tenant, at, max_bytes=most, lookup=None, model=model)
                stored = again or stored
    small = small and len(stored.path if stored else ()) < conversation.INLINE_MESSAGES
    history = await offload_if(not small, _rebuilt, sent, lookup, stored, request, options)
    if stored is not None and stored.forgotten_at is not None:
        history = replace(history, forgotten_at=stored.forgotten_at)
    if history.segments and (request.options.memory == memory.EXTRACTS or request.has_sections):
        history = replace(history, segments=())
    if not (request.messages or history.messages or request.has_prompt):
        raise errors.InvalidRequest(
            "There is no message to deliver.", param="messages", code="missing_required_parameter"
        )
    return history


def _branch_state(request: ChatRequest, stored: StoredConversation) -> tuple[datetime | None, bill.BranchCosts | None]:
    """Returns when a conversation was last used, and what the continued branch has cost, as its latest answer says;
    None where that does not count."""
    if request.options.economy == bill.OFF:
        return None, None
    text = next((message.costs for message in reversed(stored.path) if message.role == "assistant"), None)
    return stored.updated_at, bill.BranchCosts.of_text(text) if text is not None else None


def starts_conversation(request: ChatRequest, match: str) -> bool:
    """Returns whether the request cannot continue any conversation.
    `match`: whose conversations may be continued without a name (`conversation.match`)."""
    is_named = request.conversation != conversation.UNNAMED
    return not is_named and (match == "off" or "assistant" not in [message["role"] for message in request.messages])


def new_history(request: ChatRequest) -> ConversationHistory:
    """Builds the conversation of a request that is forwarded as it was sent, without any lookup."""
    sent = sent_chain(request)
    return _new_conversation(request, sent, RebuildOptions(remembers=False))


def completed_history(request: ChatRequest, history: ConversationHistory) -> ConversationHistory:
    """Completes the conversation of a request forwarded as sent: adds the messages that `history` left unread."""
    instructions = sent_instructions(request)
    bodies = request.messages[len(instructions) :]
    first = len(bodies) - len(history.new_messages)
    known = tuple(conversation.new_message(body, i) for i, body in enumerate(bodies[:first]))
    return replace(history, instructions=instructions, messages=(*known, *history.new_messages), stored=first)


async def with_older_messages(
    history: ConversationHistory, store: ports.HistoryStore, tenant: str, max_bytes: int
) -> ConversationHistory:
    """Adds older messages than were read for the window: the latest of them, `max_bytes` at most. What a question needs
    is recalled from them (guarantee §4 I6). Returns `history` unchanged if everything was read.
    Raises StorageUnavailable: the storage cannot be reached."""
    if not has_unread(history) or history.read_from is None:
        return history
    earlier = await store.read_earlier(tenant, history.read_from, max_bytes=max_bytes)
    return replace(history, earlier=replace(earlier, messages=tuple(message_forms.regrouped(earlier.messages))))


def begins_turn(history: ConversationHistory) -> bool:
    """Returns whether the request brings the message that begins its turn, so that recalled passages can precede it."""
    return any(
        start >= history.stored for start in tool_steps.turn_starts(message.role for message in history.messages)
    )


def has_unread(history: ConversationHistory) -> bool:
    """Returns whether older messages than those read for the window are stored, and none of them was read yet."""
    return history.read_from is not None and history.earlier is None


async def _lookup(
    request: ChatRequest, sent: SentChain, store: ports.HistoryStore, options: RebuildOptions
) -> HistoryLookup | None:
    """Returns what to look up for a resend; None for a delta, and for a request that can continue nothing."""
    ref = request.conversation
    if not sent.matched or not (sent.answers or (sent.trails and ref.behind is None)):
        return None
    found = HistoryLookup(
        bodies=sent.bodies[: sent.matched],
        digests=sent.digests[: sent.matched],
        instructed=bool(sent.instructions),
        fits_as_sent=options.fits_as_sent,
        maybe_delta=not sent.answers,
    )
    if ref.conversation_id or ref.session:
        return found
    if ref.is_point:
        return replace(found, instructed=False, fits_as_sent=False, maybe_delta=True)
    if not options.matches(request):
        return None
    keys = ChainKeys(await store.secret(), request.caller.tenant, request.users)
    return replace(found, keys=recognition_keys(sent, keys), instructed=True, maybe_delta=False)


def _rebuilt(
    sent: SentChain,
    lookup: HistoryLookup | None,
    stored: StoredConversation | None,
    request: ChatRequest,
    options: RebuildOptions,
) -> ConversationHistory:
    if stored is None:
        return _new_conversation(request, sent, options)
    point = stored.resume_point
    used_at, costs = _branch_state(request, stored)
    continued = partial(
        ConversationHistory,
        conversation_id=stored.conversation_id if options.remembers else None,
        created=False,
        parent_id=point.message_id,
        branch_restores=point.branch_restores,
        team_task=stored.team_task,
        profile=stored.profile,
        used_at=used_at,
        costs=costs,
    )
    if request.conversation.branch is not None:
        return replace(_delta(sent, stored, continued), at_head=False)
    kept_here = point.kept
    if request.conversation.behind is not None or (request.conversation.at is not None and not kept_here):
        # whether a Responses API request sends system messages beside its `instructions`
        replaces = len(sent.instructions) > turn.is_own(request.asked, sent.instructions)
        kept = () if replaces else stored.instructions
        made = _delta(sent, stored, continued, replaces=replaces, known=kept_here)
        return replace(made, at_head=False, instructions=(*sent.instructions, *kept))
    if lookup is None or (lookup.maybe_delta and not kept_here):
        if sent.delivered and message_forms.is_end_of(stored.path, sent.bodies):
            return _delta(sent, stored, continued, known=len(sent.bodies))
        return _delta(sent, stored, continued)
    if lookup.keys and not (point.branch_restores or has_evidence(lookup.bodies, point.kept, stored.path)):
        return replace(_continued_unchanged(sent, stored, continued), unproven=True, used_at=None, costs=None)
    if not stored.read:
        return _continued_unchanged(sent, stored, continued)
    return _resent(sent, stored, continued, recognised=bool(lookup.keys))


def _new_conversation(request: ChatRequest, sent: SentChain, options: RebuildOptions) -> ConversationHistory:
    messages = _new_messages(sent, 0, 0)
    if request.plain is None:  # else there are no calls
        whole = message_forms.last_step(sent.bodies, sent.known)
        message_forms.check_pairs(messages, 0, len(sent.instructions), whole)
    return ConversationHistory(
        conversation_id=ids.new_id(ids.CONVERSATION) if options.remembers else None,
        created=True,
        instructions=sent.instructions,
        messages=messages,
        session=request.conversation.session if options.remembers else None,
        digests=tuple(sent.digests),
        as_sent=True,
        unrecognised=options.remembers
        and request.conversation == conversation.UNNAMED
        and not options.matches(request),
    )


def _continued_unchanged(
    sent: SentChain, stored: StoredConversation, continued: partial[ConversationHistory]
) -> ConversationHistory:
    """Continues the conversation, and forwards only what was sent."""
    point = stored.resume_point
    frame: PromptFrame | None = None
    if stored.read:
        messages = _new_messages(sent, 0, 0)
        message_forms.check_pairs(messages, 0, len(sent.instructions))
        known = point.kept
        if point.digest.path == sent.digest(known).path:
            messages = message_forms.with_stored_ids(messages, stored)
            frame = message_forms.frame_for_unproven_sender(stored)
    else:  # roles and texts alone: there is nothing to pair, and the stored messages are not needed
        messages, known = _new_messages(sent, point.kept, 0), 0
    return continued(
        instructions=sent.instructions,
        messages=messages,
        stored=known,
        at_head=point.message_id == stored.head_id,
        base=sent.digest(point.kept),
        digests=tuple(sent.digests[point.kept :]),
        stored_base=None if point.digest.path == sent.digest(point.kept).path else point.digest,
        unsent_attachments=_of_chain(stored.attachments, sent, point.kept),
        as_sent=frame is None,
        restored_ids=frozenset(),
        frame=frame,
    )


def _delta(
    sent: SentChain,
    stored: StoredConversation,
    continued: partial[ConversationHistory],
    *,
    replaces: bool | None = None,
    known: int = 0,
) -> ConversationHistory:
    """Appends new messages to the whole path (guarantee §3.1).
    `replaces`: the system messages that were sent replace the stored ones; None: if any were sent. `known`: how many of
    the sent messages are already the end of the path."""
    path, whole = _in_turns(stored)
    new = _new_messages(sent, known, _next_number(stored))
    answers = bool(new) and new[0].role in tool_steps.RESULT_ROLES
    offset = len(sent.instructions) + known
    if answers and (moved := message_forms.with_turn_of(path, new, offset)) is not None:
        path, whole = moved, 0
    base = [*path[:whole], *message_forms.forwardable(path[whole:], new)]
    if not answers:
        base = message_forms.without_open_calls(base)
    older = stored.older_kept
    if replaces or (replaces is None and sent.instructions):
        base, older = _without_instructions(base), tuple(_without_instructions(older))
    messages = [*base, *new]
    message_forms.check_pairs(messages, len(base), offset)
    return continued(
        instructions=sent.instructions or stored.instructions,
        messages=tuple(messages),
        stored=len(base),
        at_head=stored.resume_point.message_id == stored.head_id,
        attachments=stored.attachments,
        restored_count=len(base),
        unread=stored.unread,
        read_from=stored.path[0].message_id if stored.unread else None,
        base=stored.resume_point.digest,
        digests=tuple(chain.chain_digests(sent.bodies[known:], stored.resume_point.digest)),
        frame=stored.frame,
        cache=stored.cache,
        segments=stored.segments,
        older_kept=older,
    )


def _resent(
    sent: SentChain, stored: StoredConversation, continued: partial[ConversationHistory], *, recognised: bool
) -> ConversationHistory:
    """Builds the messages of a resend: the stored ones, with those that its client left out, and the new ones."""
    point = stored.resume_point
    same = point.digest.path == sent.digest(point.kept).path
    again = sent.bodies[: point.kept]
    known = MergedPath(stored.path, frozenset()) if same else merge_path(stored.path, again, beyond=not recognised)
    offset = len(sent.instructions)
    message_forms.check_answered(sent.bodies, offset, sent.known)
    new = _new_messages(sent, point.kept, _next_number(stored))
    path, whole = _in_turns(stored) if same else (message_forms.regrouped(known.messages), 0)
    base = [*path[:whole], *message_forms.forwardable(path[whole:], new, known.left_out)]
    if not (new and new[0].role in tool_steps.RESULT_ROLES):
        base = message_forms.without_open_calls(base, known.left_out)
    base = _pinned_now(base, sent, point.kept)
    older = stored.older_kept
    if known.before is not None:
        older = (*known.before, *_without_instructions(older))
    elif sent.instructions and not same:  # they replace those older than what was sent
        base = [m for m in base if m.role not in conversation.INSTRUCTION_ROLES or m.message_id not in known.left_out]
        older = tuple(_without_instructions(older))
    messages = [*base, *new]
    message_forms.check_pairs(messages, len(base), offset + point.kept, whole)
    restored = sum(message.message_id in known.left_out for message in base) if known.left_out else 0
    attachments = _of_chain(stored.attachments, sent, point.kept) if recognised else stored.attachments
    restores = bool(restored)
    if recognised and attachments and not restores:
        earlier = max(tool_steps.turn_starts(body["role"] for body in sent.bodies), default=0)
        restores = bool(_of_chain(attachments, sent, earlier))
    return continued(
        instructions=sent.instructions if recognised else sent.instructions or stored.instructions,
        messages=tuple(messages),
        stored=len(base),
        at_head=point.message_id == stored.head_id,
        attachments=attachments,
        restored_count=restored,
        unread=stored.unread,
        read_from=stored.path[0].message_id if stored.unread else None,
        base=sent.digest(point.kept),
        digests=tuple(sent.digests[point.kept :]),
        restored_ids=known.left_out,
        stored_base=None if same else point.digest,
        branch_restores=point.branch_restores or (recognised and restores),
        frame=stored.frame,
        cache=stored.cache,
        segments=stored.segments,
        older_kept=older,
    )


def _without_instructions(messages: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    return [message for message in messages if message.role not in conversation.INSTRUCTION_ROLES]


def _pinned_now(base: list[ConversationMessage], sent: SentChain, kept: int) -> list[ConversationMessage]:
    """Marks stored messages as pinned if the client pins them in a resend; of several equal ones, the one with as many
    of them after it."""
    roles = {sent.bodies[index]["role"] for index in sent.pinned if 0 <= index < kept}
    if not roles:
        return base
    asked: dict[str, list[bool]] = {}
    for index, body in enumerate(sent.bodies[:kept]):
        if body["role"] in roles:
            asked.setdefault(chain.message_digest(body), []).append(index in sent.pinned)
    found = list(base)
    for at in range(len(base) - 1, -1, -1):
        equal = asked.get(base[at].digest)
        if equal and equal.pop() and not base[at].pinned:
            found[at] = replace(base[at], pinned=True)
    return found


def _in_turns(stored: StoredConversation) -> tuple[Sequence[ConversationMessage], int]:
    """Returns the stored path with its turns whole, and how many of its first messages are forwarded unchanged."""
    whole = message_forms.whole_until(stored.path, stored.cache)
    rest = message_forms.regrouped(stored.path[whole:])
    if whole and any(one is not other for one, other in zip(rest, stored.path[whole:], strict=True)):
        return message_forms.regrouped(
            stored.path
        ), 0  # turns move as a whole, and the first may begin in the earlier part
    return [*stored.path[:whole], *rest], whole


def _new_messages(sent: SentChain, first: int, number: int) -> tuple[ConversationMessage, ...]:
    found = tuple(conversation.new_message(body, number + i) for i, body in enumerate(sent.bodies[first:]))
    for index in sent.pinned:
        if index >= first:
            found[index - first].pinned = True
    return found


def _next_number(stored: StoredConversation) -> int:
    return (stored.path[-1].sequence_number or 0) + 1 if stored.path else 0


def _of_chain(attachments: Sequence[Artifact], sent: SentChain, kept: int) -> tuple[Artifact, ...]:
    """Returns the attachments that came with turns of the recognised chain (guarantee §3.2)."""
    if not attachments:
        return ()
    said = {digest.said for digest in sent.digests[:kept]}
    return tuple(each for each in attachments if each.metadata.get("said_digest") in said)
