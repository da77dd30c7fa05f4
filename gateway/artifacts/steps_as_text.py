"""Tool steps that the gateway restores where they cannot be messages: their results become artifacts (guarantee §3.3).

A model that has no tools in its request, or did not make the calls, need not understand calls and results: many
providers refuse them. They are told as text in the block of §4 I6, and stay text for the provider that was told so.
Whoever made them gets them back as they were, signatures and all, however others were told (§1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.artifacts.collect import current_turn, extract_artifacts_from_messages
from gateway.models.artifacts import Artifact, Place, ToolCall
from gateway.models.conversation import ConversationMessage, History
from gateway.models.tool_steps import RESULT_ROLES, asked, calls_of, take_call, without_calls

SPOKEN = ("content", "refusal", "audio")
WithoutItems = Callable[[dict[str, Any], frozenset[int]], dict[str, Any]]
"""A message without those items (by number) of its block that stand in full."""


@dataclass(frozen=True, slots=True)
class StepsAsText:
    """A conversation without the tool steps that are told as text, and the artifacts that tell them. `left` is how
    many messages are no longer there."""

    history: History
    artifacts: tuple[Artifact, ...] = ()
    left: int = 0


@dataclass(frozen=True, slots=True)
class _Step:
    """Messages `start` to `end` (exclusive): an assistant's calls and all of their results."""

    start: int
    end: int
    names: frozenset[str]
    """Ids of the messages that hold the results."""


def steps_as_text(history: History, without_items: WithoutItems, *, has_tools: bool, origin: str | None) -> StepsAsText:
    """Takes the restored steps out of the messages that cannot be messages in this request.

    What the client sent itself, and the steps of a turn under way, are never touched. A step that was told to this
    provider stays where it was told, tools or not (§4 I7). What was told to others is not in what this one is sent, nor
    is what the client now sends as messages.

    Args:
        has_tools: whether the request has `tools` or `functions`.
        origin: who will answer; None where nobody else can have answered before.
    """
    steps = _restored_steps(history)
    blocks = _Blocks(history, origin)
    sent = {
        m.message_id for i, m in enumerate(history.messages) if m.role in RESULT_ROLES and not _is_restored(history, i)
    }
    if not steps and sent.isdisjoint(blocks.own | blocks.foreign):
        return StepsAsText(history)
    free = _is_block_free(history)
    told: list[_Step] = []
    elsewhere: set[str] = set()
    for step in steps:
        own = not _is_foreign(history.messages[step.start], origin)
        here = step.names <= blocks.own
        if here or (free and not (own and has_tools)):
            told.append(step)
        elif not free and not own and step.names <= blocks.own | blocks.foreign:
            told.append(step)  # the block of this turn is fixed: what others were sent must do
            continue
        elsewhere |= step.names & blocks.foreign
    messages = tuple(blocks.without(index, sent, elsewhere, without_items) for index in range(len(history.messages)))
    history = replace(history, messages=messages)
    return _without(history, told) if told else StepsAsText(history)


class _Blocks:
    """Where results stand in blocks: in those that `origin` was sent, or only in those that others were sent."""

    def __init__(self, history: History, origin: str | None) -> None:
        self._messages = history.messages
        holders = [index for index, message in enumerate(history.messages) if message.standing]
        self._others = {index for index in holders if _is_foreign(self._answer_to(index), origin)}
        self.own = {n for index in holders if index not in self._others for n in history.messages[index].standing}
        self.foreign = {n for index in self._others for n in history.messages[index].standing}
        if history.frame is not None:  # also those that were reduced, or left out, when there was no room for them
            self.own |= history.frame.decided

    def without(
        self, index: int, sent: set[str | None], elsewhere: set[str], without_items: WithoutItems
    ) -> ConversationMessage:
        """The message with a block in which those results do not stand that the client sends itself, and those that
        stand `elsewhere` if it was others who were sent this block."""
        message = self._messages[index]
        leaving = sent | elsewhere if index in self._others else sent
        numbers = frozenset(number for number, name in enumerate(message.standing) if name in leaving)
        if not numbers or message.rendered is None:
            return message
        standing = tuple(name for name in message.standing if name not in leaving)
        return replace(message, rendered=without_items(message.rendered, numbers), standing=standing)

    def _answer_to(self, index: int) -> ConversationMessage | None:
        return next((m for m in self._messages[index + 1 :] if m.role == "assistant"), None)


def _is_foreign(message: ConversationMessage | None, origin: str | None) -> bool:
    """Whether somebody else than `origin` made that message."""
    return message is not None and None not in (origin, message.origin) and message.origin != origin


def _restored_steps(history: History) -> list[_Step]:
    """The whole steps of which the client sent nothing in this request."""
    if not history.restored:
        return []
    messages, steps = history.messages, []
    at = 0
    while at < history.stored:
        end = at + 1
        if calls_of(messages[at].body):
            while end < len(messages) and messages[end].role in RESULT_ROLES:
                end += 1
            results = messages[at + 1 : end]
            if results and all(_is_restored(history, index) for index in range(at, end)):
                steps.append(_Step(at, end, frozenset(m.message_id or "" for m in results)))
        at = end
    return steps


def _is_restored(history: History, index: int) -> bool:
    ids = history.restored_ids
    return index < history.stored and (ids is None or history.messages[index].message_id in ids)


def _is_block_free(history: History) -> bool:
    """Whether the block of this turn can still be written: it is fixed at the turn's first step (§4 I6)."""
    current = current_turn(history)
    message = history.messages[current]
    if message.role != "user":
        return False
    if current >= history.stored:
        return True
    under_way = any(m.role in RESULT_ROLES for m in history.new_messages)
    return message.rendered is None and not under_way


def _without(history: History, steps: Sequence[_Step]) -> StepsAsText:
    """What an assistant said beside its calls stays, as a message without them."""
    replaced: dict[int, ConversationMessage | None] = {}
    leaving: list[ConversationMessage] = []
    calls: list[ToolCall] = []
    for step in steps:
        first, results = history.messages[step.start], history.messages[step.start + 1 : step.end]
        replaced |= dict.fromkeys(range(step.start, step.end))
        if any(first.body.get(name) for name in SPOKEN):
            replaced[step.start] = replace(first, body=without_calls(first.body), rendered=None)
        leaving += [first, *results]
        calls += _calls_of(first, results)
    kept = [replaced.get(index, message) for index, message in enumerate(history.messages)]
    messages = tuple(message for message in kept if message is not None)
    left = len(history.messages) - len(messages)
    found = extract_artifacts_from_messages(leaving, len(leaving))
    artifacts = tuple(
        _as_text(replace(artifact, place=Place(), call=call), leaving[artifact.place.message or 0].content)
        for artifact, call in zip(found, calls, strict=True)
    )
    return StepsAsText(replace(history, messages=messages, stored=history.stored - left), artifacts, left)


def _calls_of(first: ConversationMessage, results: Sequence[ConversationMessage]) -> list[ToolCall]:
    """The call of each result; where ids are repeated, in their order."""
    waiting = calls_of(first.body)
    return [ToolCall(result.message_id or "", asked(take_call(waiting, result.body))[1]) for result in results]


def _as_text(artifact: Artifact, content: Any) -> Artifact:
    """A text cannot hold pictures; it says that there were some."""
    kinds = [str(p.get("type")) for p in content if isinstance(p, dict)] if isinstance(content, list) else []
    others = [kind for kind in kinds if kind != "text"]
    if not others:
        return artifact
    text = f"{artifact.content}\n[Not shown, as it is no text: {', '.join(others)}]".lstrip("\n")
    return replace(artifact, content=text, size_chars=len(text))
