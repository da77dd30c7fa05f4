"""I2 and I3: system messages, one unbroken run of whole turns, and calls with all of their results."""

from typing import Any

from tests.properties.checks.memory import with_results
from tests.properties.checks.seen import INSTRUCTIONS, Seen, beside, hold, text_of, turn_begins

Json = dict[str, Any]


def check(seen: Seen) -> None:
    """Finds out which message each forwarded one is (`seen.indexes`), and that there is no gap and no half."""
    said = [i for i, m in enumerate(seen.originals) if m["role"] not in INSTRUCTIONS]
    sent = [i for i, m in enumerate(seen.forwarded) if m["role"] not in INSTRUCTIONS]
    _instructions(seen)
    run = _run(seen, said, len([i for i in sent if i < _current(seen)]), len(sent))
    ours = iter(run)
    systems = iter(i for i, m in enumerate(seen.originals) if m["role"] in INSTRUCTIONS)
    seen.indexes = [next(systems if m["role"] in INSTRUCTIONS else ours) for m in seen.forwarded]
    hold("I2", seen.indexes == sorted(seen.indexes), "the order of messages is another")
    for message, index in zip(seen.forwarded, seen.indexes, strict=True):
        _is_of(message, seen.originals[index])
    check_pairs(seen.forwarded)


def _current(seen: Seen) -> int:
    """Index of the forwarded message that begins the current turn, by the user's own words; 0 where no user spoke."""
    if seen.current < 0:
        return -1
    users = [i for i, m in enumerate(seen.forwarded) if m["role"] == "user"]
    found = [i for i in users if all(own in text_of(seen.forwarded[i]["content"]) for own in seen.case.own)]
    hold("I4", found, "the message that begins the turn is not there")
    return found[-1]


def _instructions(seen: Seen) -> None:
    wanted = [m for m in seen.originals if m["role"] in INSTRUCTIONS]
    hold("I2", [m for m in seen.forwarded if m["role"] in INSTRUCTIONS] == wanted, "system messages are others")
    leading = next((i for i, m in enumerate(seen.originals) if m["role"] not in INSTRUCTIONS), len(seen.originals))
    hold("I2", seen.forwarded[:leading] == seen.originals[:leading], "system messages do not come first")


def _run(seen: Seen, said: list[int], before: int, total: int) -> list[int]:
    """Indexes of the messages that must be those forwarded, judged by their numbers alone: so many `before` the current
    user message, and the rest from there on."""
    current = seen.current
    old = [i for i in said if i < current]
    now = [i for i in said if i >= current]
    hold("I2", before <= len(old), "more messages before the current one than there are")
    first = len(old) - before
    run = old[first:]
    whole = not run or first == 0 or run[0] in turn_begins(seen.originals)
    hold("I2", whole or seen.standing, "the run does not begin with a turn")
    if not whole:
        run = _without_left_steps(seen, old, before)
    lacking = len(now) - (total - before)
    hold("I2", lacking >= 0, "more messages in the current turn than there are")
    if lacking:
        together = set(run) <= set(beside(seen.originals))
        hold("I2", together, "a step of the current turn has left, and old turns have not")
        now = _without_oldest(seen, now, lacking, total - before)
    return run + now


def _without_oldest(seen: Seen, now: list[int], lacking: int, kept: int) -> list[int]:
    """A turn without so many messages: its oldest whole steps, then, where these were not enough, the oldest of what
    was said amid them, never the latest."""
    messages, pinned = seen.originals, with_results(seen.originals, seen.case.pinned)
    sent = [m for m in seen.forwarded if m["role"] not in INSTRUCTIONS][-kept:]
    said = [i for i in now[1:] if messages[i]["role"] == "user"]
    said = [i for i in said[:-1] if i not in pinned]
    for count in range(len(said) + 1):
        leaving = said[:count]
        for step in _steps(messages, now):
            if len(leaving) < lacking and not pinned.intersection(step):
                leaving = [*leaving, *step]
        left = [i for i in now if i not in leaving]
        if len(left) == kept and all(_alike(a, messages[i]) for a, i in zip(sent, left, strict=True)):
            return left
    hold("I2", False, "other messages than the oldest whole steps have left the turn")
    return now


def _alike(message: Json, original: Json) -> bool:
    ours, theirs = ({k: v for k, v in m.items() if k != "content"} for m in (message, original))
    return ours == theirs


def _without_left_steps(seen: Seen, old: list[int], before: int) -> list[int]:
    """The run where its first turn once overflowed alone: its oldest whole steps have left and stay out."""
    messages, pinned = seen.originals, with_results(seen.originals, seen.case.pinned)
    begins = turn_begins(messages)
    for start in reversed([at for at, i in enumerate(old) if i in begins and len(old) - at >= before]):
        run = old[start:]
        answered = next((at for at, i in enumerate(run) if messages[i]["role"] == "assistant"), len(run))
        later = next((at for at, i in enumerate(run) if at > answered and i in begins), len(run))
        for step in _steps(messages, run[:later]):
            if len(run) > before and not pinned.intersection(step):
                run = [i for i in run if i not in step]
        if len(run) == before:
            return run
    hold("I2", False, "the run does not begin with a turn")
    return old


def _steps(messages: list[Json], indexes: list[int]) -> list[list[int]]:
    steps: list[list[int]] = []
    for index in indexes:
        if messages[index].get("tool_calls"):
            steps.append([index])
        elif messages[index]["role"] == "tool":
            steps[-1].append(index)
    return steps


def _is_of(message: Json, original: Json) -> None:
    """Nothing but the content of a message may be another."""
    hold("I2", _alike(message, original), f"another message where {str(original)[:80]} was to be expected")


def check_pairs(messages: list[Json]) -> None:
    """Raises Broken: a call without all of its results behind it, or a result without its call."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            hold("I3", message["tool_call_id"] in waiting, "a result without its call")
            waiting.remove(message["tool_call_id"])
            continue
        hold("I3", not waiting, "a call without its result")
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    hold("I3", not waiting, "a call without its result at the end")
