"""Shows what the client said beside what was forwarded, message by message: each as text, and changes within a message
line by line. All work is bounded, however long a message is."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, Literal

from gateway.context.assembly import BLOCK_TAG
from gateway.core import jsons
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types import past_turns, tool_steps
from gateway.core.types.content_parts import parts_of
from gateway.inspection.document_parts import shown_artifacts

MAX_COMPARED_LINES = 1000
"""Lines of each side that are compared, without their common beginning and end."""
MAX_COMPARED_CHARS = 200_000
"""Characters of each side that are compared."""
CONTEXT_LINES = 3
"""Unchanged lines that are shown around each change."""
TOLD_FIELDS = ("role", "content", "tool_calls", "function_call")
"""Fields of a message that are rendered as text; others are rendered as JSON."""
LineKind = Literal["same", "removed", "added", "skipped"]


@record
class DiffLine:
    """A line of a difference. `skipped` lines have an empty text, and `count` is their number."""

    kind: LineKind
    text: str = ""
    count: int = 1


@record
class LineDiff:
    """What changed in a text. `is_whole` is False where the texts are too long to be compared: then `lines` only counts
    what was removed and added between the common beginning and end, without the text."""

    lines: tuple[DiffLine, ...]
    is_whole: bool = True


def text_of_message(body: Mapping[str, Any]) -> str:
    """Renders a message as text: its texts, a line for each other part, each call, and its other fields as JSON."""
    content = body.get("content")
    pieces = [content] if isinstance(content, str) else [_part(part) for part in parts_of(content)]
    for call in tool_steps.calls_of(body):
        name, arguments = tool_steps.asked(call)
        pieces.append(f"→ {name}({arguments})")
    rest = {name: value for name, value in body.items() if name not in TOLD_FIELDS and value is not None}
    if rest:
        pieces.append(jsons.dumps_text(rest))
    return "\n".join(pieces)


def _part(part: Any) -> str:
    """Renders a part of a content: its text, else its kind with the file's name and id, or the size, since pictures and
    sounds are not text. The size of an id would reveal nothing about the file."""
    found = part if isinstance(part, dict) else {}
    if isinstance(found.get("text"), str):
        return str(found["text"])
    file = found["file"] if isinstance(found.get("file"), dict) else found
    told = [" ".join(file[key].split()) for key in ("filename", "file_id") if isinstance(file.get(key), str)]
    if not isinstance(file.get("file_id"), str):
        told.append(f"{len(jsons.dumps(part)):,} bytes")
    return f"[{found.get('type') or 'part'}: {', '.join(told)}]"


def line_diff(before: str, after: str) -> LineDiff:
    """Compares two texts by lines; changes are returned with a few lines around them. The common beginning and end cost
    nothing; only what is between is compared, up to `MAX_COMPARED_LINES` and `MAX_COMPARED_CHARS`."""
    old, new = before.split("\n"), after.split("\n")
    start, end = _common(old, new), 0
    end = _common(old[start:][::-1], new[start:][::-1])
    left, right = old[start : len(old) - end], new[start : len(new) - end]
    is_whole = all(
        len(part) <= MAX_COMPARED_LINES and sum(map(len, part)) <= MAX_COMPARED_CHARS for part in (left, right)
    )
    if is_whole:
        middle = _compared(left, right)
    else:
        middle = [DiffLine(kind, "", len(part)) for kind, part in _sides(left, right) if part]
    lines = [*_same(old[:start]), *middle, *_same(old[len(old) - end :])]
    return LineDiff(tuple(_with_context(lines)), is_whole)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Counts the lines with which both begin."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


def _same(lines: Sequence[str]) -> list[DiffLine]:
    return [DiffLine("same", text) for text in lines]


def _compared(old: Sequence[str], new: Sequence[str]) -> list[DiffLine]:
    found: list[DiffLine] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            found += _same(old[a:b])
            continue
        found += [DiffLine("removed", text) for text in old[a:b]]
        found += [DiffLine("added", text) for text in new[c:d]]
    return found


def _sides(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[LineKind, Sequence[str]], ...]:
    return ("removed", old), ("added", new)


def _with_context(lines: Sequence[DiffLine]) -> list[DiffLine]:
    """Replaces lines far from any change by their count."""
    near = bytearray(len(lines))
    for index, line in enumerate(lines):
        if line.kind != "same":
            first = max(0, index - CONTEXT_LINES)
            last = min(len(lines), index + CONTEXT_LINES + 1)
            near[first:last] = b"\x01" * (last - first)
    found: list[DiffLine] = []
    skipped = 0
    for index, line in enumerate(lines):
        if near[index]:
            if skipped:
                found.append(DiffLine("skipped", "", skipped))
            skipped = 0
            found.append(line)
        else:
            skipped += 1
    return [*found, DiffLine("skipped", "", skipped)] if skipped else found


Change = Literal["unchanged", "reduced", "reworded", "left_out", "put_in_front", "restored"]
"""`reduced`: a tool result of which a part was forwarded. `restored`: a tool result forwarded as text in a block.
`put_in_front`: the gateway's memory message, or its block before a message that is otherwise unchanged."""
NEW, EARLIER, INSTRUCTED, GATEWAY = "new", "earlier", "instruction", "gateway"
"""The origin of a message: this request, an earlier one, the system messages, or the gateway."""
MAX_DIFFS = 200
"""Changed messages of one request whose lines are compared."""


@record
class MessageChange:
    """One message as it was said (`before`) and as it was forwarded (`after`); None on a side that lacks it. `lines` is
    None where the message did not change, or where too many messages did."""

    change: Change
    origin: str
    role: str
    message_id: str | None
    before: Json | None
    after: Json | None
    before_chars: int
    after_chars: int
    lines: LineDiff | None = None
    agent: str | None = None


def message_changes(
    path: past_turns.ConversationPath, request: past_turns.PastRequest, sent: past_turns.SentMessages
) -> list[MessageChange] | None:
    """Lists each message of the branch up to the request, and what else was forwarded, in the order of forwarding.
    `sent`: what was forwarded, with names; the result is None where that is unknown."""
    if sent.messages is None:
        return None
    said = (*path.messages[: request.before], *request.brought)
    new = {each.message.message_id for each in request.brought}
    shown = {name.partition("-")[0] for name in shown_artifacts(sent.messages)}
    instructions = path.instructions_of(request.answer) if request.answer is not None else ()
    forwarded = dict(_by_id(sent))
    found = [_change("unchanged", INSTRUCTED, each, each) for each in instructions]
    diffs = MAX_DIFFS
    memory = [body for name, body in zip(sent.names, sent.messages, strict=True) if name == past_turns.MEMORY]
    for each in said:
        name, body = each.message.message_id, each.message.body
        origin = NEW if name in new else EARLIER
        after = forwarded.get(str(name))
        if after is not None and memory:
            found += [_change("put_in_front", GATEWAY, None, one) for one in memory]
            memory = []
        if after is None:
            is_restored = each.message.role in tool_steps.RESULT_ROLES and tool_steps.result_of(body, {})[0] in shown
            found.append(_of(each, "restored" if is_restored else "left_out", origin, None))
        elif after == body:
            found.append(_of(each, "unchanged", origin, after))
        else:
            found.append(_of(each, _kind(body, after), origin, after, compared=diffs > 0))
            diffs -= 1
    return _with_whole_steps(found)


def _with_whole_steps(changes: list[MessageChange]) -> list[MessageChange]:
    """Marks a call without a message as restored where its result is: the block names its arguments."""
    found = list(changes)
    for index in range(len(found) - 2, -1, -1):
        each = found[index]
        is_pair = each.change == "left_out" and found[index + 1].change == "restored"
        if is_pair and tool_steps.calls_of(each.before or {}):
            found[index] = replace(each, change="restored")
    return found


def _by_id(sent: past_turns.SentMessages) -> Sequence[tuple[str, Json]]:
    pairs = zip(sent.names, sent.messages or (), strict=True)
    return [(str(name), body) for name, body in pairs if name not in (past_turns.INSTRUCTION, past_turns.MEMORY)]


def _kind(before: Json, after: Json) -> Change:
    """Returns how a message that was forwarded in another form was changed."""
    if before.get("role") in tool_steps.RESULT_ROLES:
        return "reduced"
    old, new = text_of_message(before), text_of_message(after)
    return "put_in_front" if new.startswith(f"<{BLOCK_TAG} ") and new.endswith(old) else "reworded"


def _of(
    each: past_turns.PathMessage, kind: Change, origin: str, after: Json | None, *, compared: bool = False
) -> MessageChange:
    message = each.message
    return _change(kind, origin, message.body, after, message.message_id, message.agent, compared=compared)


def _change(
    kind: Change,
    origin: str,
    before: Json | None,
    after: Json | None,
    message_id: str | None = None,
    agent: str | None = None,
    *,
    compared: bool = False,
) -> MessageChange:
    old = text_of_message(before) if before is not None else ""
    new = old if after is before else text_of_message(after) if after is not None else ""
    role = str((before or after or {}).get("role", ""))
    lines = line_diff(old, new) if compared else None
    return MessageChange(kind, origin, role, message_id, before, after, len(old), len(new), lines, agent)


def counted(changes: Sequence[MessageChange]) -> Mapping[str, int]:
    """Counts the messages by kind of change."""
    return Counter(each.change for each in changes)


def compared(old: Sequence[Json], new: Sequence[Json]) -> list[MessageChange]:
    """Compares two lists of forwarded messages; between their common beginning and end, messages are paired."""
    start = next((i for i, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), None)
    start = min(len(old), len(new)) if start is None else start
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    left, right = deque(old[start : len(old) - end]), deque(new[start : len(new) - end])
    found = [_change("unchanged", EARLIER, each, each) for each in old[:start]]
    diffs = MAX_DIFFS
    while left or right:
        one, other = left[0] if left else None, right[0] if right else None
        if one == other:
            found.append(_change("unchanged", EARLIER, one, one))
        elif one is not None and (other is None or (one.get("role") != other.get("role") and len(left) > len(right))):
            found.append(_change("left_out", EARLIER, one, None))
            other = None
        elif other is not None and (one is None or one.get("role") != other.get("role")):
            found.append(_change("put_in_front", GATEWAY, None, other))
            one = None
        else:
            found.append(_change("reworded", EARLIER, one, other, compared=diffs > 0))
            diffs -= 1
        if one is not None:
            left.popleft()
        if other is not None:
            right.popleft()
    return [*found, *(_change("unchanged", EARLIER, each, each) for each in old[len(old) - end :])]
