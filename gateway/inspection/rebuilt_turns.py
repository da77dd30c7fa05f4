"""Past turns of a branch, and what each of their requests forwarded, rebuilt from what is stored (guarantee §11.11).

Of a prompt only the messages and frames that make it are stored. The rebuilt prompt is checked against the bill: it is
exact only if it has as many messages as were forwarded, and can be assembled in only one way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from typing import Any

from gateway.conversations import message_forms
from gateway.core.types import agents, conversation, past_turns, tool_steps, turn
from gateway.core.types.conversation import ConversationHistory, ConversationMessage, PromptFrame

WithoutItems = Callable[[dict[str, Any], frozenset[int]], dict[str, Any]]
"""Removes items from a message's block by their numbers among the items that the block shows in full."""
NO_BILL = "no_bill_here"
NOT_COUNTED = "not_managed"
AGENT_WORDS_NOT_STORED = "agent_words_not_stored"
PROFILE_NOT_STORED = "prompt_profile_not_stored"
DELETED_SINCE = "item_deleted_since"
OTHERWISE = "messages_do_not_add_up"
REASONS = (NO_BILL, NOT_COUNTED, AGENT_WORDS_NOT_STORED, PROFILE_NOT_STORED, DELETED_SINCE, OTHERWISE)
"""Reasons why it is not known exactly what a request forwarded."""


def in_turns(path: past_turns.ConversationPath) -> past_turns.ConversationPath:
    """Restores the branch's whole turns where another request was committed within one (guarantee §3.7)."""
    by_id = {each.message.message_id: each for each in path.messages}
    ordered = message_forms.regrouped([each.message for each in path.messages])
    return replace(path, messages=tuple(by_id[message.message_id] for message in ordered))


def turns_of(path: past_turns.ConversationPath) -> list[past_turns.PastTurn]:
    """Splits a branch into turns: each is a user message that begins one (`turn_starts`), or several of one request,
    and everything up to the next. Messages before the first user message belong to the first turn.
    `path`: as `in_turns` returns it."""
    turns: list[list[past_turns.PathMessage]] = []
    starts = set(tool_steps.turn_starts(each.message.role for each in path.messages)[1:])
    for index, each in enumerate(path.messages):
        if not turns or (index in starts and not _continues(turns[-1][-1], each)):
            turns.append([])
        turns[-1].append(each)
    found, before = [], 0
    for number, messages in enumerate(turns, 1):
        found.append(past_turns.PastTurn(number, tuple(_requests(messages, before))))
        before += len(messages)
    return found


def _continues(last: past_turns.PathMessage, next_one: past_turns.PathMessage) -> bool:
    """Returns whether a user message follows another one of the same request."""
    return last.message.role == "user" and last.request_id == next_one.request_id


def _requests(messages: Sequence[past_turns.PathMessage], before: int) -> Iterable[past_turns.PastRequest]:
    """Splits a turn into requests: an answer ends one."""
    start = 0
    for index, each in enumerate(messages):
        if each.is_answer:
            brought = tuple(messages[start:index])
            yield past_turns.PastRequest(each.request_id, before + start, brought, each)
            start = index + 1
    if start < len(messages):
        yield past_turns.PastRequest(messages[start].request_id, before + start, tuple(messages[start:]), None)


def sent_messages(
    path: past_turns.ConversationPath,
    request: past_turns.PastRequest,
    entry: turn.LedgerEntry | None,
    frame: PromptFrame | None,
    without_items: WithoutItems,
) -> past_turns.SentMessages:
    """Rebuilds what an answered request forwarded.
    `entry`: its bill; None where it was paid elsewhere; `frame`: what its model had been sent of the branch by then,
    where the messages do not record it; `without_items`: removes items from a block."""
    answer = request.answer
    if answer is None or entry is None:
        return past_turns.SentMessages(None, NO_BILL)
    used = entry.metadata.get("context_utilization") or {}
    agent = entry.metadata.get("agent")
    if isinstance(agent, dict) and agent.get("type") != agents.CHAT:
        return past_turns.SentMessages(None, AGENT_WORDS_NOT_STORED)
    whole = path.messages[: request.before]
    deleted = path.forgotten_at is not None and path.forgotten_at >= entry.created_at
    included = used.get("messages_included")
    for before in (whole, _there_then(whole, entry.created_at)):
        ways = [
            _forwarded(path, request, before, frame, each, without_items)
            for each in _steps_as_text(before, request, frame)
        ]
        found = [way for way in ways if len(way.names) - _memories(frame) == included]
        if found and all(way.messages == found[0].messages for way in found):
            return replace(found[0], reason=DELETED_SINCE if deleted else None)
    reasons = (DELETED_SINCE, deleted), (AGENT_WORDS_NOT_STORED, agent), (PROFILE_NOT_STORED, used.get("profile"))
    why = next((reason for reason, holds in reasons if holds), OTHERWISE)
    told = _forwarded(path, request, whole, frame, frozenset(), without_items)
    return replace(told, reason=why if included else NOT_COUNTED)


def _there_then(messages: Sequence[past_turns.PathMessage], arrived_at: datetime) -> list[past_turns.PathMessage]:
    """Returns the messages that were committed when a request arrived: concurrent requests do not see each other."""
    late = {each.request_id for each in messages if each.committed_at is not None and each.committed_at > arrived_at}
    return [each for each in messages if each.request_id not in late]


def _steps_as_text(
    before: Sequence[past_turns.PathMessage], request: past_turns.PastRequest, frame: PromptFrame | None
) -> Iterator[frozenset[str | None]]:
    """Yields sets of ids of tool results that may have been forwarded as text in a block rather than as messages
    (guarantee §3.3): none, those that a block shows, all but those of the turn under way."""
    yield frozenset()
    starts = tool_steps.turn_starts(each.message.role for each in (*before, *request.brought))
    begun = min(max(starts, default=0), len(before))
    earlier = [each.message for each in before[:begun]]
    results = {message.message_id for message in earlier if message.role in tool_steps.RESULT_ROLES}
    if results:
        messages = [*earlier, *(each.message for each in (*before[begun:], *request.brought))]
        shown = {name for message in messages for name in message.shown_in_full}
        if frame is not None:
            shown |= {*frame.decided, *(name for names in frame.shown_in_full.values() for name in names)}
        yield frozenset(results & shown)
        yield frozenset(results)


def _without_steps(
    messages: Sequence[ConversationMessage], as_text: frozenset[str | None]
) -> list[ConversationMessage]:
    """Returns the messages without these results and the calls that they answer; text beside a call stays."""
    found: list[ConversationMessage] = []
    for index, message in enumerate(messages):
        if message.message_id in as_text:
            continue
        follows = messages[index + 1].message_id if index + 1 < len(messages) else None
        if follows in as_text and message.role not in tool_steps.RESULT_ROLES:
            if message.content:
                found.append(replace(message, body=tool_steps.without_calls(message.body), rendered=None))
            continue
        found.append(message)
    return found


def _forwarded(
    path: past_turns.ConversationPath,
    request: past_turns.PastRequest,
    before: Sequence[past_turns.PathMessage],
    frame: PromptFrame | None,
    as_text: frozenset[str | None],
    without_items: WithoutItems,
) -> past_turns.SentMessages:
    """Rebuilds the messages in the forms in which they were sent upstream, as far as the window reached."""
    answer = request.answer
    new = [each.message for each in request.brought]
    base = _without_steps(message_forms.forwardable([each.message for each in before], new), as_text)
    if not (new and new[0].role in tool_steps.RESULT_ROLES):
        base = message_forms.without_open_calls(base)
    instructions = path.instructions_of(answer) if answer is not None else ()
    messages = (*base, *new)
    history = ConversationHistory(
        path.conversation_id, False, instructions, messages, stored=len(messages), frame=frame
    )
    if answer is not None and answer.message.origin is not None:
        history = message_forms.for_origin(history, answer.message.origin)
    results = {message.message_id for message in messages if message.role in tool_steps.RESULT_ROLES}
    before_run, run = _in_window(message_forms.as_frozen(history).messages, frame)
    memory = [frame.memory.body] if frame is not None and frame.memory is not None else []
    forms = [[_form(each, results, without_items) for each in part] for part in (before_run, run)]
    ids = [[each.message_id for each in part] for part in (before_run, run)]
    names = (*[past_turns.INSTRUCTION] * len(instructions), *ids[0], *[past_turns.MEMORY] * len(memory), *ids[1])
    return past_turns.SentMessages([*instructions, *forms[0], *memory, *forms[1]], names=names)


def _memories(frame: PromptFrame | None) -> int:
    """Counts the memory messages sent upstream, which a bill does not count."""
    return int(frame is not None and frame.memory is not None)


def _form(
    message: ConversationMessage, results: AbstractSet[str | None], without_items: WithoutItems
) -> dict[str, Any]:
    """Returns a message as sent upstream: its block without the results that were sent as messages."""
    if message.rendered is None:
        return message.body
    numbers = frozenset(number for number, name in enumerate(message.shown_in_full) if name in results)
    return without_items(message.rendered, numbers) if numbers else message.rendered


def _in_window(
    messages: Sequence[ConversationMessage], frame: PromptFrame | None
) -> tuple[list[ConversationMessage], list[ConversationMessage]]:
    """Returns what the frozen window holds: system messages before the run, and the run."""
    if frame is None:
        return [], list(messages)
    ids = [message.message_id for message in messages]
    first = ids.index(frame.first) if frame.first in ids else 0
    before = [message for message in messages[:first] if message.role in conversation.INSTRUCTION_ROLES]
    return before, [message for message in messages[first:] if message.message_id not in frame.left_out]
