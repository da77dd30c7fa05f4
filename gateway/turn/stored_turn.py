"""The part of an exchange that is stored: new messages, answers, attachments, chain keys."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from gateway.base.ids import answer_id, new_id
from gateway.context.report import BuiltContext
from gateway.history.recognition import sent_chain, users_of
from gateway.models.chain import (
    START,
    ChainDigest,
    ChainKey,
    ChainKeys,
    call_digest,
    call_ids,
    chain_digests,
    content_text,
    extended,
    is_step,
    message_digest,
    says_nothing,
)
from gateway.models.conversation import ConversationMessage, History, TokenCounts
from gateway.models.exchange import ChatRequest
from gateway.models.items import SIGNED, said_apart
from gateway.models.things import NotedThings
from gateway.models.tool_steps import RESULT_ROLES, open_step, without_calls
from gateway.models.turn import ASKED, BROKE, NewAnswer, StoredTurn
from gateway.models.window import Material
from gateway.things.rules import things_of_steps
from gateway.turn.bound_thinking import with_binding
from gateway.turn.exchange import Exchange, Outcome
from gateway.turn.new_frame import new_frame
from gateway.window.counting import PromptCounter
from gateway.wire.anthropic.wording import canonical_calls


def stored_turn(exchange: Exchange, outcome: Outcome, user_place: str | None = None) -> StoredTurn:
    """What is added to the conversation. A failed turn keeps its messages for the audit and has no answer.

    A trailing assistant message is a prefill: stored is prefill plus completion (guarantee §3.4). What is delivered to
    an agent with sections is a message of its own (§11.3).

    Args:
        user_place: where things are noted for the user, too, where the request says so.
    """
    request, history, built = exchange.request, exchange.history, exchange.built
    if history is None or built is None or exchange.conversation_id is None:
        raise ValueError("an exchange without a conversation leaves no turn")
    new = [m.stored_as(new_id("msg_"), request.arrived_at) for m in history.new_messages]
    frame = None
    if built.material is not None:
        new = _with_block(new, built, built.material, history)
        frame = new_frame(request.model, history, built, built.material, new)
    chain = chain_of(exchange)
    prefill = new.pop() if chain.prefill is not None and outcome.status != "failed" else None
    digests = (*chain.digests, *(chain.end for _ in new[len(chain.digests) :]))  # the prefill of a failed turn is kept
    choices = (outcome.completion or {}).get("choices", ()) if outcome.status != "failed" else ()
    answers = [
        _new_answer(choice, number, outcome, chain, exchange)
        for number, choice in enumerate(choices)
        if isinstance(choice.get("message"), dict)
    ]
    answers.sort(key=lambda answer: answer.choice)
    turn = StoredTurn(
        conversation_id=exchange.conversation_id,
        created=history.created and history.session is None,  # a session's conversation is there when it is claimed
        parent_id=history.parent_id,
        at_head=history.at_head,
        instructions=history.instructions,
        new_messages=tuple(new),
        answers=tuple(answers),
        attachments=built.new_attachments,
        completion=_completion(exchange, outcome),
        completion_metadata=request.metadata,
        completion_plan=_beside_answer(exchange),
        prefilled=prefill is not None,
        cached=built.cached,
        base=chain.base,
        digests=digests,
        branch_restores=history.branch_restores,
        unproven=history.unproven,
        frame=frame,
        profile=exchange.profile.mode if exchange.profile is not None else None,
        pins=_pins(exchange.request, history, new) if outcome.status != "failed" else (),
        things=_noted(exchange, history, exchange.conversation_id, user_place),
        branch=request.conversation.branch,
        retention_days=request.caller.key.retention_days if request.caller.key is not None else None,
        open_step=open_step(history.messages[: history.stored]) if new and new[0].role in RESULT_ROLES else (),
    )
    return with_counts(turn, built.counting)


def _pins(request: ChatRequest, history: History, new: list[ConversationMessage]) -> tuple[str, ...]:
    """The messages that the request pins, new and stored ones."""
    if not request.pinned:
        return ()
    messages = (*history.messages[: history.stored], *new)
    return tuple(message.message_id for message in messages if message.pinned and message.message_id)


def chain_keys(exchange: Exchange, outcome: Outcome, secret: bytes) -> tuple[ChainKey, ...]:
    """The keys by which an answered request is recognised: keyed digests of its chain with each of its answers."""
    if outcome.status == "failed" or outcome.completion is None:
        return ()
    keys = ChainKeys(secret, exchange.request.caller.tenant, users_of(exchange.request.forward))
    chains, attached = _chains_of(exchange), _attached(exchange)
    found: list[ChainKey] = []
    answers = [choice for choice in outcome.completion.get("choices", ()) if isinstance(choice.get("message"), dict)]
    for chain, choice in product(chains, answers):
        message, answer, status = _messages(choice, outcome, chain.prefill)
        whole = keys.whole(extended(chains[-1].end, message, status=status).path, attached)
        if is_step(message):
            ids = call_ids(message)
            found += [keys.key(said, ids, whole) for said in chain.call_digests(message, answer)]
        elif not says_nothing(message, status):
            digests = chain.digests_after(message, answer, status)
            found += [keys.key(digest.said, whole=whole) for digest in digests]
    return tuple(dict.fromkeys(found))


def _noted(exchange: Exchange, history: History, conversation_id: str, user_place: str | None) -> NotedThings | None:
    """What the turn says of things, where the request has its memory on: what it names, what tools told, and what it
    was reminded of (guarantee §11.15)."""
    memory, built = exchange.request.memory, exchange.built
    if memory is None:
        return None
    shown = {each["memory_id"] for each in (built.utilization.things if built else None) or ()}
    recalled = tuple(thing.as_note() for thing in history.things if thing.memory_id in shown)
    notes = (*things_of_steps(history.messages, history.stored), *memory.notes)
    places = (conversation_id, *([user_place] if user_place is not None else []))
    return NotedThings(notes, places, memory.days, recalled) if notes or recalled else None


def _attached(exchange: Exchange) -> list[str]:
    """What is attached to the chain of an exchange, each by its content and title."""
    history, built = exchange.history, exchange.built
    known = (*history.attachments, *history.unsent_attachments) if history is not None else ()
    new = built.new_attachments if built is not None else ()
    return [f"{artifact.content_id} {artifact.title or ''}" for artifact in (*known, *new)]


def _with_block(
    new: list[ConversationMessage], built: BuiltContext, material: Material, history: History
) -> list[ConversationMessage]:
    """The new messages, the current one with the block that was forwarded at its head, unless a frame holds that."""
    current = material.current - (len(material.messages) - len(new))
    block = built.fitted.forwarded
    is_in_frame = built.fitted.new_pass or history.frame is not None
    if block.rendered is not None and 0 <= current < len(new) and not is_in_frame:
        new[current] = replace(new[current], rendered=block.rendered, shown_in_full=block.shown_in_full)
    return new


def plan_of(exchange: Exchange) -> dict[str, Any] | None:
    """What the planner said, followed or not; None where none was asked or none answered. It is content."""
    result = exchange.built.plan if exchange.built else None
    return result.planned.plan.model_dump(mode="json") if result is not None and result.planned is not None else None


def _beside_answer(exchange: Exchange) -> dict[str, Any] | None:
    """What is stored beside an answer and may quote any document: what the planner said, and what the answer cites.
    Whatever is deleted of the conversation, this goes."""
    plan = plan_of(exchange)
    return plan if exchange.cited is None else {**(plan or {}), **exchange.cited}


def _completion(exchange: Exchange, outcome: Outcome) -> dict[str, Any] | None:
    """The answer's body as it is stored; None if there is none."""
    if outcome.completion is None or outcome.status == "failed":
        return None
    own = ("response_metadata", "conversation")
    completion = {k: v for k, v in outcome.completion.items() if k not in own}
    completion["id"] = exchange.completion_id
    if exchange.request.asked is not None:
        broke = {BROKE: outcome.error} if outcome.error is not None else {}
        completion[ASKED] = {**exchange.request.asked, **broke}
    return completion if outcome.usage is None else {**completion, "usage": outcome.usage}


def with_counts(turn: StoredTurn, counting: PromptCounter | None) -> StoredTurn:
    """The turn with the token counts of its messages, so that later requests count only what is new to them.

    Args:
        counting: the counts that the request made; None or inexact where it surely fits.
    """
    if counting is None or not counting.is_exact:
        return turn

    def message(new: ConversationMessage) -> ConversationMessage:
        form = new.rendered if new.rendered is not None else new.body
        return replace(new, tokens=TokenCounts(form, counting.counted(form)))

    def answer(new: NewAnswer) -> NewAnswer:
        body = new.message.body
        return replace(new, message=replace(new.message, tokens=TokenCounts(body, counting.counted_answer(body))))

    return replace(
        turn,
        new_messages=tuple(map(message, turn.new_messages)),
        answers=tuple(map(answer, turn.answers)),
        counts=tuple(counting.counted_anew()),
    )


@dataclass(frozen=True, slots=True)
class Chain:
    """The chain of a request as its client sees it: the chain digests before and after each new message. A prefill
    stands apart. `delivered`: the last message, where it is an assistant's that is answered."""

    base: ChainDigest
    digests: tuple[ChainDigest, ...]
    prefill: dict[str, Any] | None = None
    delivered: dict[str, Any] | None = None

    @property
    def end(self) -> ChainDigest:
        return self.digests[-1] if self.digests else self.base

    def digests_after(self, message: dict[str, Any], answer: dict[str, Any], status: str) -> tuple[ChainDigest, ...]:
        """The chain digests after an answer, in each form in which a client may send it again: as it is stored
        (`message`), and where there was a prefill also without it, or behind it (guarantee §3.4). Behind what was
        delivered it is also the end of a run of answers. One of several messages may come back as several."""
        whole = extended(self.end, message, status=status)
        if self.delivered is not None:
            before = self.digests[-2] if len(self.digests) > 1 else self.base
            return tuple(dict.fromkeys((whole, chain_digests([self.delivered, answer], before)[-1])))
        if self.prefill is None:
            several = said_apart(message)
            return (whole, chain_digests(several, self.end)[-1]) if several else (whole,)
        apart = chain_digests([self.prefill, answer], self.end)[-1]
        return tuple(dict.fromkeys((whole, extended(self.end, answer, status=status), apart)))

    def call_digests(self, message: dict[str, Any], answer: dict[str, Any]) -> tuple[bytes, ...]:
        """The digests up to an answer with tool calls, in the same forms."""
        if self.prefill is None:
            *before, last = said_apart(message) or [message]
            apart = call_digest(chain_digests(before, self.end)[-1] if before else self.end, last)
            return tuple(dict.fromkeys((call_digest(self.end, message), apart)))
        apart = call_digest(extended(self.end, self.prefill), answer)
        return tuple(dict.fromkeys((call_digest(self.end, message), call_digest(self.end, answer), apart)))


def chain_of(exchange: Exchange) -> Chain:
    """The chain of an exchange. It is computed here where the history was not rebuilt."""
    history, request = exchange.history, exchange.request
    if history is None:
        sent = sent_chain(request)
        base, digests, bodies = START, tuple(sent.digests), sent.bodies
    else:
        base, digests = history.base, history.digests
        bodies = [message.body for message in history.new_messages]
    last = bodies[-1] if bodies else None
    if last is None or last["role"] != "assistant":
        return Chain(base, digests)
    return Chain(base, digests[:-1], last) if request.prefills else Chain(base, digests, delivered=last)


def _chains_of(exchange: Exchange) -> list[Chain]:
    """The chain as its client sees it and, where that differs, as it is stored: a client that resent only the end of it
    may resend all of it next time."""
    chain, history = chain_of(exchange), exchange.history
    stored = history.stored_base if history is not None else None
    if history is None or stored is None:
        return [chain]
    bodies = [message.body for message in history.new_messages]
    digests = chain_digests(bodies[: len(chain.digests)], stored)
    return [chain, Chain(stored, tuple(digests), chain.prefill, chain.delivered)]


def _new_answer(
    choice: dict[str, Any],
    number: int,
    outcome: Outcome,
    chain: Chain,
    exchange: Exchange,
) -> NewAnswer:
    if exchange.request.api == "messages":
        choice = canonical_calls(choice)
    body, answer, status = _messages(choice, outcome, chain.prefill)
    body = with_binding(body, exchange) if SIGNED in body else body
    digest, *others = chain.digests_after(body, answer, status)
    agent = exchange.request.agent
    message = ConversationMessage(
        "assistant",
        body,
        message_id=answer_id(exchange.completion_id) if number == 0 else new_id("msg_"),
        status=status,
        digest=message_digest(body),
        origin=exchange.deployment.origin,
        agent=agent.agent_id if agent is not None else None,
        costs=exchange.costs.as_text() if exchange.costs is not None else None,
    )
    return NewAnswer(message, choice.get("index", number), digest, tuple(others))


def _messages(
    choice: dict[str, Any], outcome: Outcome, prefill: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """A choice as it is stored, with the prefill; as its client got it; and its status.

    Empty fields are left out: not every provider accepts them in a history.
    """
    answer = {k: v for k, v in choice["message"].items() if v or k == "content"}
    answer["role"] = "assistant"  # some local servers say "tool" or "model"
    status = "partial" if outcome.status == "partial" else "complete"
    if status == "partial":
        answer = without_calls(answer)  # nobody will answer them (guarantee §3.6)
    before = content_text(prefill.get("content")) if prefill is not None else None
    content = answer.get("content") or ""
    if before and isinstance(content, str):
        return {**answer, "content": before + content}, answer, status
    return answer, answer, status
