"""The turns of a window: how many it may hold, whatever room there is for more (guarantee §3.11), and which can be in
one unbroken run (guarantee §4 I2, I3)."""

from dataclasses import dataclass, replace
from itertools import pairwise

from gateway.context.window.prompt_budget import TurnBound
from gateway.core.types.conversation import INSTRUCTION_ROLES
from gateway.core.types.tool_steps import RESULT_ROLES, calls_of, turn_starts
from gateway.core.types.window import WindowInputs


@dataclass(frozen=True, slots=True)
class TurnSpan:
    """Messages `start` to `end` (exclusive): all of a turn, or one tool step, or one message."""

    start: int
    end: int


def run_of_turns(material: WindowInputs) -> list[TurnSpan]:
    """The turns before the current one that can be in an unbroken run with it, oldest first. A turn that has lost tool
    steps ends the run: none before it is in the list, but for messages that nothing answered before it, which belong to
    it. Beside a block that is fixed no turn comes back: the block may quote it."""
    starts = turn_starts(message.role for message in material.messages[: material.current])
    if material.current and (not starts or starts[0] > 0):
        starts.insert(0, 0)
    starts = [start for start in starts if start >= material.earliest]
    gap = max(material.left, default=-1)
    if material.has_block and material.frame is not None and material.frame.first is not None:
        starts = [start for start in starts if start >= material.frozen_first]
    turns = [TurnSpan(start, end) for start, end in pairwise([*starts, material.current])]
    first = next((number for number, turn in enumerate(turns) if turn.end > gap), len(turns))
    return [*_unanswered(material, turns[:first]), *turns[first:]]


def said_before(material: WindowInputs) -> list[TurnSpan]:
    """What the user said directly before the message that begins the current turn, oldest first: clients send what an
    agent is told of its place, and reminders, beside its task, before or behind it (guarantee §4 I4). What has left the
    window is not in the list."""
    return _unanswered(material, run_of_turns(material))


def _unanswered(material: WindowInputs, turns: list[TurnSpan]) -> list[TurnSpan]:
    """The last of the turns, as far as nothing answered them and they have not left the window."""
    first, frozen_first = len(turns), material.frozen_first
    while first and turns[first - 1].start >= frozen_first and _is_unanswered(material, turns[first - 1]):
        first -= 1
    return turns[first:]


def _is_unanswered(material: WindowInputs, turn: TurnSpan) -> bool:
    roles = {message.role for message in material.messages[turn.start : turn.end]}
    return "user" in roles and roles.issubset(("user", *INSTRUCTION_ROLES))


def tool_steps(material: WindowInputs) -> list[TurnSpan]:
    """The tool steps of the current turn, oldest first: a call with all of its results (guarantee §4 I3). Those that
    have left stay out."""
    steps: list[TurnSpan] = []
    messages, left = material.messages, material.left
    for index in range(material.current, len(messages)):
        if index not in left and calls_of(messages[index].body):
            end = index + 1
            while end < len(messages) and messages[end].role in RESULT_ROLES:
                end += 1
            steps.append(TurnSpan(index, end))
    return steps


def bounded(material: WindowInputs, turns: TurnBound | None) -> WindowInputs:
    """The material with the first message that may be forwarded.

    Turns that a summary tells leave as soon as a turn begins: what was paid for is shown. Within a turn the window
    stays. Where the bound would be exceeded all the same, the oldest leave down to `TurnBound.kept`. What has left for
    either does not come back as messages.
    """
    if not material.messages or (turns is None and not material.segments):
        return material
    starts, before = turn_starts(message.role for message in material.messages), material.frozen_first
    told = _told(material, starts)
    if material.messages[material.current].message_id is not None:
        told = min(told, before)
    first = max(before, told)
    inside = [start for start in starts if start >= first]
    if turns is not None and len(inside) > turns.most:
        first = inside[-turns.kept]
    return replace(material, earliest=told if turns is None else first, moves=first > before)


def _told(material: WindowInputs, starts: list[int]) -> int:
    """Index of the first message that no summary covers; that of the current turn at most."""
    if not material.segments:
        return 0
    last = material.segments[-1].last
    numbers = [message.sequence_number for message in material.messages]
    covered = max((i for i, number in enumerate(numbers) if number is not None and number <= last), default=-1)
    behind = next((start for start in starts if start > covered), material.current)
    return min(behind, material.current) if covered >= 0 else 0
