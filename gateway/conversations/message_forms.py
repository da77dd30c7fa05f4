"""The forms in which messages of a conversation are sent upstream again: calls paired with their results by adjacency,
as local servers repeat ids (guarantee §3.3, §4 I3); as their model was sent them before; without what another provider
or client may not receive (ADR 12). Agents' routing markers are kept apart from their text."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from gateway.core import errors
from gateway.core.types import chain, conversation, items, tool_steps
from gateway.core.types.content_parts import dicts_of
from gateway.core.types.conversation import (
    ConversationHistory,
    ConversationMessage,
    Form,
    MessageCache,
    PromptFrame,
    StoredConversation,
    TokenCounts,
)
from gateway.core.types.short_inputs import with_short_inputs

MARKER = re.compile(r"[ \t]*\[(?:NEXT|FROM|TEAM_TASK)(?:[ \t]*:[^\]\n]*)?\]", re.IGNORECASE)
"""Markers that agents write for the router of their messages: `[NEXT:max]`, `[TEAM_TASK]`, `[TEAM_TASK: ship it]`."""


def without_markers(text: str) -> str:
    """Removes the routing markers from a text. A text without markers, or of nothing else, is returned unchanged."""
    found = MARKER.sub("", text)
    return text if found == text else found.strip() or text


def parts_beside_text(message: ConversationMessage | None) -> tuple[dict[str, Any], ...]:
    """Returns the parts of a message's content that are not text."""
    content = message.content if message is not None else None
    return tuple(part for part in dicts_of(content) if part.get("type") != "text")


def is_end_of(path: Sequence[ConversationMessage], bodies: Sequence[dict[str, Any]]) -> bool:
    """Returns whether a conversation ends with these messages: the same roles and texts, without markers and tool
    steps. Speakers are compared where both are named."""
    said = [message for message in path if chain.is_said(message.body)][-len(bodies) :]
    return len(said) == len(bodies) and all(map(_says_the_same, said, map(conversation.new_message, bodies)))


def _says_the_same(one: ConversationMessage, other: ConversationMessage) -> bool:
    words = [without_markers(tool_steps.text_of(each.content)).strip() for each in (one, other)]
    names = {each.said_by for each in (one, other) if each.said_by}
    return (
        one.role == other.role
        and words[0] == words[1]
        and parts_beside_text(one) == parts_beside_text(other)
        and len(names) < 2
    )


def check_pairs(messages: Sequence[ConversationMessage], first_sent: int, offset: int, whole: int = 0) -> None:
    """Checks that every result follows its call, and that every call but those of the last message is answered.
    `messages`: the whole conversation, stored part first; `first_sent`: index of the first message that the client
    sent; `offset`: index of that message in the client's own `messages`, so that an error can name the field; `whole`:
    how many of the first messages are known to pair, and are followed by no result.
    Raises InvalidRequest: a `tool` message whose call is nowhere, or a call left unanswered; names `messages[i]`."""
    open_calls: list[tuple[str, int]] = []

    def name(index: int) -> str:
        return f"messages[{max(index, first_sent) - first_sent + offset}]"

    def all_answered() -> None:
        if open_calls:
            call, at = open_calls[0]
            text = f"The tool call {call!r} has no result after {name(at)}."
            raise errors.InvalidRequest(text, param=name(at), code="tool_call_unanswered")

    for index, message in enumerate(messages[whole:], whole):
        if message.role == "tool":
            answered = str(message.body.get("tool_call_id"))
            match = next((call for call in open_calls if call[0] == answered), None)
            if match is not None:
                open_calls.remove(match)
            elif index >= first_sent:
                raise errors.unknown_call(name(index))
            continue
        all_answered()
        open_calls = [(str(call.get("id")), index) for call in message.body.get("tool_calls") or ()]
    all_answered()


def check_answered(bodies: Sequence[dict[str, Any]], offset: int, known: int = 0) -> None:
    """Checks that a client which sends a call again sends its results too, whatever is stored.
    `known`: how many of the messages were in an earlier request that was answered.
    Raises InvalidRequest: a call is left unanswered; names `messages[i]`, counted from `offset`."""
    open_calls: list[str] = []
    at = first = last_step(bodies, known)
    for index, body in enumerate((*bodies[first:], {"role": "end"}), first):
        if body["role"] == "tool":
            answered = str(body.get("tool_call_id"))
            open_calls = [call for call in open_calls if call != answered]
            continue
        if open_calls:
            name = f"messages[{offset + at}]"
            text = f"The tool call {open_calls[0]!r} has no result after {name}."
            raise errors.InvalidRequest(text, param=name, code="tool_call_unanswered")
        open_calls, at = chain.call_ids(body), index


def last_step(bodies: Sequence[Mapping[str, Any]], count: int) -> int:
    """Returns the index of the message, among the first `count`, whose results may still follow."""
    at = max(0, min(count, len(bodies)) - 1)
    while at and bodies[at]["role"] in tool_steps.RESULT_ROLES:
        at -= 1
    return at


def whole_until(messages: Sequence[ConversationMessage], cache: MessageCache) -> int:
    """Counts the leading messages of a stored path that `regrouped` and `forwardable` leave as they are, whatever
    follows, and that no result follows. When the path has grown, only its new part is examined.
    `cache`: that of the path; the count is stored in it."""
    last, count = cache.whole
    if count > len(messages) or (count and messages[count - 1].message_id != last):
        count = 0
    open_calls: list[dict[str, Any]] = []
    for index in range(count, len(messages)):
        message = messages[index]
        if message.role == "tool":
            if not tool_steps.take_call(open_calls, message.body):
                break
            continue
        is_function = message.role == "function" or message.body.get("function_call")
        if open_calls or is_function or message.status != "complete":
            break
        count = index
        open_calls = tool_steps.calls_of(message.body)
    if count:
        cache.whole = messages[count - 1].message_id, count
    return count


def regrouped(path: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    """Restores whole turns in a path. If another request's turn was committed between a call and its results, the
    results and everything that followed from them move back to their call (guarantee §3.7)."""
    starts = set(tool_steps.turn_starts(message.role for message in path))
    turns: list[list[ConversationMessage]] = []
    for index, message in enumerate(path):
        if index in starts or not turns:
            turns.append([])
        elif message.role in tool_steps.RESULT_ROLES and not _awaits(turns[-1], message):
            owner = next((i for i in range(len(turns) - 2, -1, -1) if _awaits(turns[i], message)), None)
            if owner is not None:
                turns.append(turns.pop(owner))  # it was committed whole only now; what follows belongs to it, too
        turns[-1].append(message)
    return [message for turn in turns for message in turn]


def with_turn_of(
    path: Sequence[ConversationMessage], results: Sequence[ConversationMessage], offset: int
) -> list[ConversationMessage] | None:
    """Returns a path of whole turns that ends with the turn whose calls these new results answer, where other turns
    were committed meanwhile; None if it does already, or no turn awaits them.
    Raises InvalidRequest: they answer calls of several turns; names `messages[i]`, counted from `offset`."""
    whole = regrouped([*path, *results])
    moved, rest = whole[: len(path)], whole[len(path) :]
    for index, (one, other) in enumerate(zip(reversed(rest), reversed(results), strict=True)):
        if one is not other:
            name = f"messages[{offset + len(results) - index}]"
            text = f"{name} answers a call of another turn than what is before it: send each turn's results apart."
            raise errors.InvalidRequest(text, param=name, code="tool_call_unknown")
    return None if all(one is other for one, other in zip(moved, path, strict=True)) else moved


def interrupted_step(path: Sequence[ConversationMessage], bodies: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the id of the message whose calls these results answer again: their client sends them once more, as the
    answer to them broke off and ends the path. None if it is not so."""
    if not (path and bodies and path[-1].status == "partial" and bodies[0]["role"] == "tool"):
        return None
    step = tool_steps.open_step(path[:-1])
    is_again = bool(step) and str(bodies[0].get("tool_call_id")) in chain.call_ids(step[0].body)
    return step[0].message_id if is_again else None


def forwardable(
    messages: Sequence[ConversationMessage],
    follows: Sequence[ConversationMessage] = (),
    restored: frozenset[str] | None = None,
) -> list[ConversationMessage]:
    """Removes from the stored path what may not be forwarded: empty partial answers, and tool calls without results
    (the text beside them stays). Results of the last calls may be in `follows`.
    `restored`: ids of the messages that the client did not send; None: it sent none. A legacy function call and its
    result may each stand alone: whether they pair in what the client sends is the client's own affair."""
    kept: list[ConversationMessage] = []
    whole = [*messages, *follows]
    open_calls: list[dict[str, Any]] = []
    is_torn = False
    for index, message in enumerate(messages):
        if chain.says_nothing(message.body, message.status):
            continue
        if message.role in tool_steps.RESULT_ROLES:  # neither a result without its call nor a second one
            if tool_steps.take_call(open_calls, message.body) or (message.role == "function" and not is_torn):
                kept.append(message)
            continue
        calls = tool_steps.calls_of(message.body)
        is_sent = restored is not None and message.message_id not in restored and not message.body.get("tool_calls")
        is_torn = bool(calls) and not is_sent and not _are_answered(calls, whole, index + 1)
        is_kept = not is_torn or (message.status == "complete" and _may_be_answered_by(follows, messages[index + 1 :]))
        open_calls = calls if is_kept else []
        if is_kept:
            kept.append(message)  # the last calls' results may be what the client is about to send
        elif message.content:
            kept.append(replace(message, body=tool_steps.without_calls(message.body), rendered=None))
    return kept


def without_open_calls(
    messages: Sequence[ConversationMessage], restored: frozenset[str] | None = None
) -> list[ConversationMessage]:
    """Removes the last message's calls, which stay unanswered where no tool result follows (see `forwardable`)."""
    last = messages[-1] if messages else None
    if last is None or not tool_steps.calls_of(last.body):
        return list(messages)
    if restored is not None and last.message_id not in restored and not last.body.get("tool_calls"):
        return list(messages)
    if not last.content:
        return list(messages[:-1])
    return [*messages[:-1], replace(last, body=tool_steps.without_calls(last.body), rendered=None)]


def _are_answered(calls: Sequence[dict[str, Any]], messages: Sequence[ConversationMessage], start: int) -> bool:
    """Returns whether the unbroken run of results from `start` on answers each call."""
    waiting = list(calls)
    for index in range(start, len(messages)):
        if messages[index].role not in tool_steps.RESULT_ROLES:
            break
        tool_steps.take_call(waiting, messages[index].body)
    return not waiting


def _may_be_answered_by(follows: Sequence[ConversationMessage], between: Sequence[ConversationMessage]) -> bool:
    """Returns whether these calls are the last: only results of theirs stand before the ones that follow."""
    answers = bool(follows) and follows[0].role in tool_steps.RESULT_ROLES
    return not between or (answers and all(each.role in tool_steps.RESULT_ROLES for each in between))


def _awaits(turn: Sequence[ConversationMessage], result: ConversationMessage) -> bool:
    """Returns whether the last calls of a turn still lack this result."""
    results: list[ConversationMessage] = []
    for message in reversed(turn):
        if message.role not in tool_steps.RESULT_ROLES:
            calls = tool_steps.calls_of(message.body)
            for other in reversed(results):
                tool_steps.take_call(calls, other.body)
            return bool(tool_steps.take_call(calls, result.body))
        results.append(message)
    return False


SIGNED_ID = "__thought__"
"""litellm appends Gemini's thought signature to the id of the tool call."""


def for_origin(history: ConversationHistory, origin: str) -> ConversationHistory:
    """Adapts the conversation to a model of the provider `origin`: stored answers of other providers lose their
    provider's fields, and all that only answers have: pictures, annotations, numbers of calls. Strict providers refuse
    fields that they do not know. An answer that says nothing has an empty text, as no chat takes it without one. What
    the client sent with this request is unchanged."""
    stored = history.messages[: history.stored]
    foreign = [m.origin is not None and m.origin != origin for m in stored]
    silent = [m for m in stored if m.body.get("content") is None and not m.body.get("tool_calls")]  # hardly any
    if not any(foreign) and not any(_is_silent(m.body) for m in silent):
        return history
    answered_now = {str(m.body.get("tool_call_id")) for m in history.new_messages if m.role == "tool"}
    shortened: set[str] = set()
    messages: list[ConversationMessage] = []
    for message, strange in zip(stored, foreign, strict=True):
        body = message.body
        if strange:
            body = _as_requested(_without_provider_fields(body, answered_now, shortened))
        elif message.role == "tool" and body.get("tool_call_id") in shortened:
            body = {**body, "tool_call_id": _without_signature(str(body["tool_call_id"]))}
        if _is_silent(body):
            body = {**body, "content": ""}
        messages.append(message if body is message.body else replace(message, body=body))
    return replace(history, messages=(*messages, *history.new_messages))


def _is_silent(body: dict[str, Any]) -> bool:
    """Returns whether an answer has no text and no other field that a request may have in its place: the model only
    thought, or its text or calls were deleted."""
    said = body.get("content") is not None or body["role"] != "assistant"  # as nearly always: first
    return not said and not any(map(body.get, (*chain.ANSWER_FIELDS, "images")))


def without_provider_fields(
    messages: Sequence[dict[str, Any]], dropped: Set[str] = items.PROVIDER_FIELDS
) -> list[dict[str, Any]]:
    """Removes from messages to be forwarded the fields that only the provider which made them understands."""
    shortened: set[str] = set()
    found: list[dict[str, Any]] = []
    for message in messages:
        body = message
        if message["role"] == "assistant":
            body = _without_provider_fields(message, set(), shortened, dropped)
        elif message.get("tool_call_id") in shortened:
            body = {**message, "tool_call_id": _without_signature(str(message["tool_call_id"]))}
        found.append(body)
    return found


def _without_provider_fields(
    body: dict[str, Any], answered_now: set[str], shortened: set[str], dropped: Set[str] = items.PROVIDER_FIELDS
) -> dict[str, Any]:
    """Returns an assistant message without provider fields. Ids of calls lose signatures that no new result names."""
    found, calls = _without(body, dropped), body.get("tool_calls")
    kept = [_call(call, answered_now, shortened, dropped) for call in calls] if isinstance(calls, list) else calls
    return found if kept == calls else {**found, "tool_calls": kept}


def _without(value: dict[str, Any], dropped: Set[str]) -> dict[str, Any]:
    return value if dropped.isdisjoint(value) else {k: v for k, v in value.items() if k not in dropped}


REQUESTED = frozenset(("role", "name", *chain.ANSWER_FIELDS))
"""Fields of an assistant's message that a request to any provider may have."""


def _as_requested(body: dict[str, Any]) -> dict[str, Any]:
    """Returns a stored answer in a form that any provider takes; its audio is only known where it was made."""
    found = {k: v for k, v in body.items() if k in REQUESTED and (v is not None or k == "content")}
    if isinstance(found.get("tool_calls"), list):
        found["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in found["tool_calls"]]
    if "audio" in found:
        found = items.as_history(found, now=None)
    return body if found == body else found


def _call(call: dict[str, Any], answered_now: set[str], shortened: set[str], dropped: Set[str]) -> dict[str, Any]:
    found, function, call_id = _without(call, dropped), call.get("function"), str(call.get("id"))
    if isinstance(function, dict) and not dropped.isdisjoint(function):
        found = {**found, "function": _without(function, dropped)}
    if SIGNED_ID in call_id and call_id not in answered_now:
        shortened.add(call_id)
        found = {**found, "id": _without_signature(call_id)}
    return found


def _without_signature(call_id: str) -> str:
    return call_id.partition(SIGNED_ID)[0]


def as_frozen(history: ConversationHistory) -> ConversationHistory:
    """Replaces the stored messages of a conversation by the forms in which they were forwarded (guarantee §4 I7)."""
    frame = history.frame
    if frame is None or not frame.forms:
        return history
    stored = tuple(_as_frozen(message, frame) for message in history.messages[: history.stored])
    return replace(history, messages=(*stored, *history.new_messages))


def _as_frozen(message: ConversationMessage, frame: PromptFrame) -> ConversationMessage:
    name = message.message_id
    if name is None or name not in frame.forms:
        return message
    form = _paired(frame.forms[name], message.body)
    if form is message.body:
        return message
    counts = frame.counts.get(name)
    return replace(
        message,
        rendered=form,
        shown_in_full=frame.shown_in_full.get(name, ()),
        tokens=TokenCounts(message.body if form is None else form, counts) if counts else None,
    )


def _paired(form: Form, body: dict[str, Any]) -> Form:
    """Returns the forwarded form if its tool calls are still those of the message, with or without their long inputs;
    else `body`: an unanswered call may have been removed, or ids were shortened for another provider."""
    if form is None or form.get("tool_calls") != body.get("tool_calls"):
        return form if form is None or form == with_short_inputs(body) else body
    if form.get("tool_call_id") != body.get("tool_call_id"):
        return {**form, "tool_call_id": body["tool_call_id"]}
    return form


def frame_for_unproven_sender(stored: StoredConversation) -> PromptFrame | None:
    """Returns the part of a frame for a client that has sent all messages, but has not proved that the conversation is
    its own: without forms that contain anything it did not send, and without a memory message (guarantee §3.2)."""
    frame = stored.frame
    if frame is None or not (frame.unsent or frame.memory):
        return frame
    return replace(
        frame, memory=None, forms={key: form for key, form in frame.forms.items() if key not in frame.unsent}
    )


def with_stored_ids(
    messages: Sequence[ConversationMessage], stored: StoredConversation
) -> tuple[ConversationMessage, ...]:
    """Puts stored ids on the messages of a chain sent as it is stored, as far as the end of its path was read."""
    kept = stored.resume_point.kept
    known = list(messages[:kept])
    for index, message in enumerate(reversed(stored.path[-kept:] if kept else ()), 1):
        own = known[kept - index]
        known[kept - index] = replace(own, message_id=message.message_id, pinned=own.pinned or message.pinned)
    return (*known, *messages[kept:])
