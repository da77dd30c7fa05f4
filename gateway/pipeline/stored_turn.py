"""What is stored of a settled request: its bill, new messages, answers, attachments, chain keys; and what is recorded
of its conversation where none of that is stored."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from gateway.billing import cost
from gateway.context import BuiltContext, decision
from gateway.context.window import PromptCounter
from gateway.conversations import rebuild
from gateway.core import errors, ids
from gateway.core.formats.anthropic import serializer
from gateway.core.formats.responses import response_request
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.tasks import offload_if
from gateway.core.types import bill, chain, conversation, items, tool_steps, turn
from gateway.core.types.chain import ChainDigest, ChainKey, ChainKeys, message_digest
from gateway.core.types.chat import ChatRequest
from gateway.core.types.content_parts import content_text
from gateway.core.types.conversation import ConversationHistory, ConversationMessage, TokenCounts
from gateway.core.types.omitted_records import OmittedRecords, unlisted_among
from gateway.core.types.window import WindowInputs
from gateway.pipeline.frames import new_frame
from gateway.pipeline.payload import build_payload, with_binding
from gateway.pipeline.stages import AttemptedRequest, PreparedRequest, SettledRequest, UpstreamAttempt, UpstreamOutcome
from gateway.pipeline.unstored_frames import UnstoredFrames
from gateway.storage import ConversationStore, keyed_hashes

log = logs.get_logger("gateway.pipeline.stored_turn")
CHAIN_BYTES = 2**20
"""The chain of a larger body is hashed in a thread."""
MAX_ERROR_CHARS = 2000
"""Characters that are stored of an error."""
CONTINUED = (*items.VERBATIM, items.SIGNED)
"""Fields with lists that an answer continues if its beginning has them."""


@dataclass(slots=True)
class TurnRecorder:
    """Builds what is committed of a settled request."""

    _store: ConversationStore
    _match: str
    _frames: UnstoredFrames | None
    _loops: decision.ToolLoops | None

    async def commit_of(self, settled: SettledRequest) -> turn.TurnCommit:
        """Builds turn and bill for one transaction."""
        attempted, prepared = settled.attempted, settled.attempted.prepared
        outcome, request = attempted.outcome, prepared.request
        is_stored = prepared.conversation_id and prepared.context is not None
        secret = (
            await keyed_hashes.secret_or_none(self._store)
            if self._match != "off" and outcome.status != "failed"
            else None
        )
        history = prepared.history
        is_long = history is not None and len(history.messages) >= conversation.INLINE_MESSAGES
        is_large = is_long or request.size >= CHAIN_BYTES
        stored, chains = await offload_if(is_large, turn_and_keys, settled, secret, is_stored=bool(is_stored))
        entry = turn.LedgerEntry(
            request_id=request.request_id,
            **prepared.asked.on_ledger,
            conversation_id=prepared.conversation_id,
            completion_id=attempted.completion_id,
            status=outcome.status,
            created_at=request.arrived_at,
            metadata=settled.metadata,
            document=settled.document,
            calls=settled.calls,
            error_code=outcome.error_code,
            figures=cost.ledger_figures(settled.metadata, settled.calls, is_metered=_is_metered(settled)),
            failure=failure_of(attempted, with_words=stored is not None),
        )
        if entry.failure is not None and entry.failure.tries:
            request.log_facts["tries"] = [
                {name: value for name, value in asdict(each).items() if name != "message" and value is not None}
                for each in entry.failure.tries
            ]
        return turn.TurnCommit(entry, stored, chains, request.claim)

    async def keep(self, settled: SettledRequest) -> None:
        """Caches what later requests need of a turn that is not stored, after its commit. A fault costs a fresh fit,
        not the answer."""
        prepared, outcome = settled.attempted.prepared, settled.attempted.outcome
        if outcome.status == "failed":
            return
        try:
            await self.keep_frame(prepared, settled.costs)
            answers = [choice["message"] for choice in outcome.answers]
            is_asked = prepared.plan is not None
            if self._loops is not None and (is_asked or any(map(chain.is_step, answers))):
                request, history = prepared.request, prepared.history
                messages = request.messages if history is None else [message.body for message in history.messages]
                await self._loops.note(request.caller.tenant, messages, answers, asked=is_asked)
        except Exception as fault:  # noqa: BLE001
            log.fault("turn_not_cached", fault, request_id=prepared.request.request_id)

    async def keep_frame(self, prepared: PreparedRequest, costs: bill.BranchCosts | None = None) -> None:
        """Caches what a request forwarded of a conversation that is not stored."""
        if self._frames is not None and not prepared.request.store:
            await self._frames.keep(prepared, costs)


def failure_of(attempted: AttemptedRequest, *, with_words: bool) -> turn.RequestFailure | None:
    """Describes how a request failed, and which of its tries did; None if none did.
    `with_words`: the upstream's message is stored: it may quote the conversation."""
    outcome, started = attempted.outcome, attempted.prepared.request.started
    tries = tuple(_failed_try(each, started, with_words=with_words) for each in attempted.attempts if each.error)
    fault = outcome.fault
    status = errors.CANCELLED_WITH.get(outcome.error_code or "") if fault is None else fault.status
    if fault is None and status is None and not tries:
        return None
    told = status if outcome.status == "failed" else None
    return turn.RequestFailure(told, _words(fault, with_words=with_words), tries)


def _failed_try(attempt: UpstreamAttempt, started: float, *, with_words: bool) -> turn.TryFailure:
    error, asked_at, ended_at = attempt.error or errors.InternalError(""), attempt.asked_at, attempt.ended_at
    took = round(1000 * (ended_at - asked_at)) if asked_at is not None and ended_at is not None else None
    at = round(1000 * (asked_at - started)) if asked_at is not None else None
    return turn.TryFailure(attempt.route, at, took, error.status, error.code, _words(error, with_words=with_words))


def _words(error: errors.GatewayError | None, *, with_words: bool) -> str | None:
    """Returns an error's message: the upstream's own where it answered."""
    if error is None or not (with_words or error.is_logged):
        return None
    message = error.message
    if isinstance(error, errors.UpstreamRefused):
        said = error.original.get("error") if isinstance(error.original, dict) else error.original
        own = said.get("message") if isinstance(said, dict) else said
        message = own if isinstance(own, str) and own else message
    return message[:MAX_ERROR_CHARS]


def _is_metered(settled: SettledRequest) -> bool:
    """Returns whether the cost of the client's own request is known: not if a model was asked with a context that a
    fault has removed from the bill."""
    prepared = settled.attempted.prepared
    is_asked = any(call.purpose in bill.MODEL_PURPOSES for call in settled.calls)
    return prepared.context is not None or prepared.request.is_relayed or not is_asked


async def unlisted_in(prepared: PreparedRequest) -> OmittedRecords | None:
    """Returns the records that the stored bill may omit, as stored messages imply them (ADR 19)."""
    history, context = prepared.history, prepared.context
    if context is None or context.material is None or prepared.conversation_id is None:
        return None
    if history is None or history.unproven:  # such a client's messages may differ from those stored
        return None
    processed, material = context.utilization.artifacts_processed, context.material
    if not any(record.standing for record in processed):
        return None
    large = len(material.messages) >= conversation.INLINE_MESSAGES
    return await offload_if(large, unlisted_among, processed, material.messages, material.current, history.cache)


def turn_and_keys(
    settled: SettledRequest, secret: bytes | None, *, is_stored: bool
) -> tuple[turn.StoredTurn | None, tuple[ChainKey, ...]]:
    """Builds the turn, if it is stored, and the keys that the conversation is recognised by: with a secret, also where
    no content is stored (guarantee §3.2)."""
    if not is_stored and secret is None:
        return None, ()
    attempted = settled.attempted
    request_chain = chain_of(attempted.prepared)
    if request_chain.prefill is None and request_chain.delivered is None:
        request_chain = replace(request_chain, in_one=_in_one(attempted.prepared.request))
    answers = list(_chained_answers(attempted, request_chain))
    stored = stored_turn(settled, request_chain, answers) if is_stored else None
    return stored, chain_keys(attempted.prepared, request_chain, answers, secret) if secret is not None else ()


def stored_turn(
    settled: SettledRequest, request_chain: "RequestChain", chained: list["ChainedAnswer"]
) -> turn.StoredTurn:
    """Builds what is added to the conversation. A failed turn keeps its messages for the audit and has no answer.

    A trailing assistant message is a prefill: prefill plus completion is stored (guarantee §3.4). A message delivered
    to an agent with sections is stored as a message of its own (§11.3).
    """
    attempted, prepared, outcome = settled.attempted, settled.attempted.prepared, settled.attempted.outcome
    request, history, built = prepared.request, prepared.history, prepared.context
    if history is None or built is None or prepared.conversation_id is None:
        raise ValueError("a request without a conversation leaves no turn")
    new = [m.stored_as(ids.new_id("msg_"), request.arrived_at) for m in history.new_messages]
    frame = None
    if built.material is not None:
        new = _with_block(new, built, built.material, history)
        frame = new_frame(request.model, history, built, built.material, new)
    prefill = new.pop() if request_chain.prefill is not None and outcome.status != "failed" else None
    known = request_chain.digests
    digests = (*known, *(request_chain.end for _ in new[len(known) :]))  # a failed turn stores its prefill
    answers = [_new_answer(answer, settled, is_first=answer is chained[0]) for answer in chained]
    sent = rebuild.sent_instructions(request)
    stored = turn.StoredTurn(
        conversation_id=prepared.conversation_id,
        created=history.created and history.session is None,  # claiming a session has created it
        parent_id=history.parent_id,
        at_head=history.at_head,
        instructions=history.instructions,
        new_messages=tuple(new),
        answers=tuple(sorted(answers, key=lambda answer: answer.choice)),
        attachments=built.new_attachments,
        completion=_completion(attempted),
        completion_metadata=request.metadata,
        completion_plan=_beside_answer(prepared, settled.cited),
        prefilled=prefill is not None,
        cached=built.cached,
        base=request_chain.base,
        digests=digests,
        branch_restores=history.branch_restores,
        unproven=history.unproven,
        frame=frame,
        profile=profile["mode"] if (profile := built.utilization.profile) else None,
        pins=_pins(request, history, new) if outcome.status != "failed" else (),
        things=settled.things,
        inherited=tuple(each for each in history.instructions if each not in sent),
        forgotten_at=history.forgotten_at,
        branch=request.conversation.branch,
        retention_days=request.caller.key.retention_days if request.caller.key is not None else None,
        open_step=tool_steps.open_step(history.messages[: history.stored])
        if new and new[0].role in tool_steps.RESULT_ROLES
        else (),
    )
    return with_counts(stored, built.counting)


def _pins(request: ChatRequest, history: ConversationHistory, new: list[ConversationMessage]) -> tuple[str, ...]:
    """Returns the messages that the request pins, new and stored ones; none that it does not name, as these may be
    unpinned by now."""
    if not request.pinned:
        return ()
    named = {"", *(message_digest(request.messages[index]) for index in request.pinned)}  # as sent: without a digest
    messages = (*history.messages[: history.stored], *new)
    return tuple(m.message_id for m in messages if m.pinned and m.message_id and m.digest in named)


def chain_keys(
    prepared: PreparedRequest, request_chain: "RequestChain", chained: list["ChainedAnswer"], secret: bytes
) -> tuple[ChainKey, ...]:
    """Computes the keys that identify an answered request: keyed digests of its chain with each of its answers."""
    keys = ChainKeys(secret, prepared.request.caller.tenant, prepared.request.users)
    as_stored, attached = _stored_chain(prepared, request_chain), _attached(prepared)
    found: list[ChainKey] = []
    for each in (request_chain,) if as_stored is None else (request_chain, as_stored):
        for answer in chained:
            message, status = answer.message, answer.status
            last = answer.digests[0] if as_stored is None else chain.extended(as_stored.end, message, status=status)
            whole = keys.whole(last.path, attached)
            if chain.is_step(message):
                ids = chain.call_ids(message)
                found += [keys.key(said, ids, whole) for said in each.call_digests(message, answer.answer)]
            elif not chain.says_nothing(message, status):
                digests = (
                    answer.digests if each is request_chain else each.digests_after(message, answer.answer, status)
                )
                found += [keys.key(digest.said, whole=whole) for digest in digests]
    return tuple(dict.fromkeys(found))


def _attached(prepared: PreparedRequest) -> list[str]:
    """Returns what is attached to the chain of a request, each by its content and title."""
    history, built = prepared.history, prepared.context
    known = (*history.attachments, *history.unsent_attachments) if history is not None else ()
    new = built.new_attachments if built is not None else ()
    return [f"{artifact.content_id} {artifact.title or ''}" for artifact in (*known, *new)]


def _with_block(
    new: list[ConversationMessage], built: BuiltContext, material: WindowInputs, history: ConversationHistory
) -> list[ConversationMessage]:
    """Adds the forwarded block to the current one of the new messages, unless a frame holds that block."""
    current = material.current - (len(material.messages) - len(new))
    block = built.fitted.forwarded
    is_in_frame = built.fitted.new_pass or history.frame is not None
    if block.rendered is not None and 0 <= current < len(new) and not is_in_frame:
        new[current] = replace(new[current], rendered=block.rendered, shown_in_full=block.shown_in_full)
    return new


def plan_of(prepared: PreparedRequest) -> dict[str, Any] | None:
    """Returns the planner's plan, followed or not; None where no planner was asked or none answered. It is content."""
    result = prepared.plan
    return result.planned.plan.model_dump(mode="json") if result is not None and result.planned is not None else None


def _beside_answer(prepared: PreparedRequest, cited: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns what is stored beside an answer and may quote any document: the plan, and what the answer cites. It goes
    with any deletion in the conversation."""
    plan = plan_of(prepared)
    return plan if cited is None else {**(plan or {}), **cited}


def _completion(attempted: AttemptedRequest) -> dict[str, Any] | None:
    """Returns the answer's body as it is stored; None if there is none."""
    outcome, asked = attempted.outcome, attempted.prepared.request.asked
    if outcome.completion is None or outcome.status == "failed":
        return None
    own = ("response_metadata", "conversation")
    completion = {k: v for k, v in outcome.completion.items() if k not in own}
    completion["id"] = attempted.completion_id
    if asked is not None:
        broke = {turn.BROKE: outcome.error} if outcome.error is not None else {}
        completion[turn.ASKED] = {**asked, **broke}
    return completion if outcome.usage is None else {**completion, "usage": outcome.usage}


def with_counts(turn: turn.StoredTurn, counting: PromptCounter | None) -> turn.StoredTurn:
    """Adds the token counts of its messages to a turn, so that later requests count only what is new to them. The
    messages are changed in place: copying each would cost more than all the rest of storing the turn.
    `counting`: the counts that the request made; None or inexact where it surely fits."""
    if counting is None or not counting.is_exact:
        return turn
    for new in turn.new_messages:
        form = new.rendered if new.rendered is not None else new.body
        new.tokens = TokenCounts(form, counting.counted(form))
    for answer in turn.answers:
        body = answer.message.body
        answer.message.tokens = TokenCounts(body, counting.counted_answer(body))
    return replace(turn, counts=tuple(counting.new_counts()))


@record
class RequestChain:
    """The chain of a request as its client sees it: the chain digests before and after each new message, without a
    prefill. `delivered`: the last message, if it is an assistant's that is being answered."""

    base: ChainDigest
    digests: tuple[ChainDigest, ...]
    prefill: dict[str, Any] | None = None
    delivered: dict[str, Any] | None = None
    in_one: ChainDigest | None = None
    """The digest of its end if each answer of several texts is sent again as one (`in_one_text`)."""

    @property
    def end(self) -> ChainDigest:
        return self.digests[-1] if self.digests else self.base

    def digests_after(self, message: dict[str, Any], answer: dict[str, Any], status: str) -> tuple[ChainDigest, ...]:
        """Computes the chain digests after an answer, in each form in which a client may send it again: as it is stored
        (`message`); with a prefill also without it, or after it (guarantee §3.4); after a delivered message also as the
        end of a run of answers. Several messages or texts may come back as several or as one, and a refusal as a text.
        """
        whole = chain.extended(self.end, message, status=status)
        if self.delivered is not None:
            before = self.digests[-2] if len(self.digests) > 1 else self.base
            return tuple(dict.fromkeys((whole, chain.chain_digests([self.delivered, answer], before)[-1])))
        if self.prefill is None:
            several = items.split_texts(message) if items.ITEM_ORDER in message else []
            if message.get("refusal") and not message.get("content"):
                several = [{"role": "assistant", "content": message["refusal"]}]
            alone = [message]
            joined = chain.in_one_text(alone, items.BETWEEN)
            forms = [form for form in (several, joined) if form and form is not alone]
            found = [whole, *(chain.chain_digests(form, self.end)[-1] for form in forms)]
            if self.in_one is not None and whole != self.end:
                found.append(chain.extended(self.in_one, message, status=status))
            return tuple(dict.fromkeys(found))
        apart = chain.chain_digests([self.prefill, answer], self.end)[-1]
        return tuple(dict.fromkeys((whole, chain.extended(self.end, answer, status=status), apart)))

    def call_digests(self, message: dict[str, Any], answer: dict[str, Any]) -> tuple[bytes, ...]:
        """Computes the digests up to an answer with tool calls, in each form in which a client may send it again."""
        if self.prefill is None:
            *before, last = items.split_texts(message) or [message]
            apart = chain.call_digest(chain.chain_digests(before, self.end)[-1] if before else self.end, last)
            ends = (self.end,) if self.in_one is None else (self.end, self.in_one)
            return tuple(dict.fromkeys((*(chain.call_digest(end, message) for end in ends), apart)))
        apart = chain.call_digest(chain.extended(self.end, self.prefill), answer)
        return tuple(dict.fromkeys((chain.call_digest(self.end, message), chain.call_digest(self.end, answer), apart)))


@record
class ChainedAnswer:
    """A choice of an answer, as it is stored and as its client received it, and the chain digests after it."""

    index: int
    message: dict[str, Any]
    answer: dict[str, Any]
    status: str
    digests: tuple[ChainDigest, ...]


def _chained_answers(attempted: AttemptedRequest, request_chain: RequestChain) -> Iterator[ChainedAnswer]:
    outcome, is_messages = attempted.outcome, attempted.prepared.request.api == "messages"
    for number, choice in enumerate(outcome.answers if outcome.status != "failed" else ()):
        sent = serializer.canonical_calls(choice) if is_messages else choice
        message, answer, status = _messages(sent, outcome, request_chain.prefill)
        digests = request_chain.digests_after(message, answer, status)
        yield ChainedAnswer(choice.get("index", number), message, answer, status, digests)


def chain_of(prepared: PreparedRequest) -> RequestChain:
    """Returns the chain of a request, which is computed here if the history was not rebuilt."""
    history, request = prepared.history, prepared.request
    if history is None:
        sent = rebuild.sent_chain(request)
        base, digests, last = chain.CHAIN_START, tuple(sent.digests), sent.bodies[-1] if sent.bodies else None
    else:
        new = history.new_messages
        base, digests, last = history.base, history.digests, new[-1].body if new else None
    if last is None or last["role"] != "assistant":
        return RequestChain(base, digests)
    return RequestChain(base, digests[:-1], last) if request.prefills else RequestChain(base, digests, delivered=last)


def _in_one(request: ChatRequest) -> ChainDigest | None:
    """Returns the digest of a request's chain with each answer of several texts as one; None if there is none, or if
    the conversation is named."""
    if request.plain is not None and "assistant" not in request.plain.roles:
        return None
    bodies = request.messages[len(rebuild.sent_instructions(request)) :]
    joined = chain.in_one_text(bodies, items.BETWEEN) if request.conversation == conversation.UNNAMED else bodies
    return None if joined is bodies else chain.chain_digests(joined)[-1]


def _stored_chain(prepared: PreparedRequest, request_chain: RequestChain) -> RequestChain | None:
    """Returns the chain of a request as it is stored; None if its client sees the same. A client that resent only the
    end of a chain may resend all of it next time."""
    history = prepared.history
    if history is None or history.stored_base is None:
        return None
    bodies = [message.body for message in history.new_messages]
    digests = chain.chain_digests(bodies[: len(request_chain.digests)], history.stored_base)
    return RequestChain(history.stored_base, tuple(digests), request_chain.prefill, request_chain.delivered)


def _new_answer(chained: ChainedAnswer, settled: SettledRequest, *, is_first: bool) -> turn.NewAnswer:
    attempted, prepared, body = settled.attempted, settled.attempted.prepared, chained.message
    digest, *others = chained.digests
    agent = prepared.request.agent
    if items.SIGNED in body:
        said = build_payload(prepared).said
        body = with_binding(body, prepared, said if body is chained.answer else said[:-1])  # without its beginning
    message = ConversationMessage(
        "assistant",
        body,
        message_id=ids.answer_id(attempted.completion_id) if is_first else ids.new_id("msg_"),
        status=chained.status,
        digest=chain.message_digest(body),
        origin=prepared.wire.deployment.origin,
        agent=agent.agent_id if agent is not None else None,
        costs=settled.costs.as_text() if settled.costs is not None else None,
    )
    return turn.NewAnswer(message, chained.index, digest, tuple(others))


def _messages(
    choice: dict[str, Any], outcome: UpstreamOutcome, prefill: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Returns a choice as it is stored, with the prefill; as its client received it; and its status.

    Empty fields are left out: not every provider accepts them in a history.
    """
    answer = {k: v for k, v in choice["message"].items() if v or k == "content"}
    answer["role"] = "assistant"  # some local servers say "tool" or "model"
    status = "partial" if outcome.status == "partial" else "complete"
    if status == "partial":
        answer = tool_steps.without_calls(answer)  # nobody will answer them (guarantee §3.6)
    return answer if prefill is None else _continued(prefill, answer), answer, status


def _continued(prefill: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Returns an answer with its beginning, the client's last message: the text; thoughts, hosted calls and their
    results; and all blocks, if a chat cannot express those of both."""
    before, content = content_text(prefill.get("content")), answer.get("content") or ""
    whole = {**answer, "content": before + content} if before and isinstance(content, str) else dict(answer)
    both = prefill, answer
    whole |= {name: held for name in CONTINUED if (held := [each for of in both for each in of.get(name) or ()])}
    if any(name in whole for name in items.VERBATIM):
        whole[items.ITEM_ORDER] = items.item_order(response_request.input_items([*both], keeps=True))
    if any(items.ANTHROPIC_BLOCKS in each for each in both):
        whole[items.ANTHROPIC_BLOCKS] = [block for each in both for block in serializer.content_blocks(each)]
    return {name: value for name, value in whole.items() if value or name == "content"}
