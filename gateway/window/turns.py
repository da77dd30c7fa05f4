"""How many turns a window may hold, whatever room there is for more (guarantee §3.11)."""

from dataclasses import replace

from gateway.models.tool_steps import turn_starts
from gateway.models.window import Material
from gateway.window.budget import TurnBound


def bounded(material: Material, turns: TurnBound | None) -> Material:
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


def _told(material: Material, starts: list[int]) -> int:
    """Index of the first message that no summary covers; that of the current turn at most."""
    if not material.segments:
        return 0
    last = material.segments[-1].last
    numbers = [message.sequence_number for message in material.messages]
    covered = max((i for i, number in enumerate(numbers) if number is not None and number <= last), default=-1)
    behind = next((start for start in starts if start > covered), material.current)
    return min(behind, material.current) if covered >= 0 else 0
