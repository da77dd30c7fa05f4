"""All checks of one request."""

from typing import Any

from tests.properties.cases import Case
from tests.properties.checks import append, blocks, budget, contents, leaving, memory, once, tokens, window, words
from tests.properties.checks.seen import LEFT_OUT, Json, Seen, hold


def check_answer(
    case: Case,
    originals: list[Json],
    forwarded: list[Json],
    figures: Json,
    standing: dict[int, list[Json]] | None = None,
) -> Seen:
    """`standing`: what was forwarded before, in every form, for each of `originals`.
    Raises Broken: what was forwarded breaks an invariant."""
    rest, remembered = memory.taken_out(forwarded)
    seen = Seen(case, originals, rest, figures, standing=standing or {}, memory=remembered)
    window.check(seen)
    memory.check(seen)
    budget.check(seen)
    words.check(seen)
    _tools(seen)
    _nothing_else(seen)
    leaving.check(seen)
    blocks.check_reduced(seen)
    once.check(seen)
    _bill(seen)
    _as_sent(seen)
    budget.check_filled(seen)
    return seen


def _tools(seen: Seen) -> None:
    names: dict[str, str] = {}
    step = 0
    for index, original in enumerate(seen.originals):
        if original.get("tool_calls"):
            step = step + 1 if index > seen.current else 0
            names = {call["id"]: call["function"]["name"] for call in original["tool_calls"]}
        if original["role"] != "tool" or index not in seen.indexes:
            continue
        name = names[original["tool_call_id"]]
        message = seen.forwarded[seen.indexes.index(index)]
        if message in seen.standing.get(index, ()):
            continue
        source = f"step_{step}:{name}" if index > seen.current else "history:msg_"
        contents.check_tool(seen, message, original, source)


def _nothing_else(seen: Seen) -> None:
    """What is neither a tool result nor a user's message is never touched."""
    for message, index in zip(seen.forwarded, seen.indexes, strict=True):
        if message["role"] not in ("tool", "user"):
            hold("§1", message == seen.originals[index], f"a message of the {message['role']} was touched")


def _bill(seen: Seen) -> None:
    """Each artifact once, with the size of what was sent; what is said to be in full is."""
    names = [r["artifact_id"] for r in seen.records]
    hold("bill", len(names) == len(set(names)), "an artifact twice in the bill")
    results = [m for m in seen.originals if m["role"] == "tool"]
    told = [r for r in seen.records if r["artifact_type"] == "tool_result"]
    inside = [m for m in seen.forwarded if m["role"] == "tool"]
    least = len(results) if seen.case.body["messages"] == seen.originals and not seen.standing else len(inside)
    counted = (seen.figures.get("artifacts_standing") or {"count": 0})["count"]
    unlisted = counted - len([r for r in seen.records if r.get("standing")])  # where none of it is stored
    stated = f"{len(told)} tool results in the bill of {len(results)}"
    hold("bill", least - unlisted <= len(told) <= len(results), stated)
    for record in seen.records:
        shown, size = record["processed_size_chars"], record["original_size_chars"]
        hold("bill", 0 <= shown <= size, f"{shown} characters shown of {size}")
        hold("bill", record["strategy"] != "exclude" or shown == 0, "excluded, and shown")


def _as_sent(seen: Seen) -> None:
    """§1: what surely fits, with nothing beside it, is forwarded as it came, equal as JSON values.

    A branch may fit although the conversation that it left did not. What was forwarded of the messages they share is
    frozen (I7), and room alone brings nothing back (§5): such a message comes in a form that it had, or stays out where
    it was left out, and the block of the current message may bring what a question needs of it. A block that stands
    takes its room: the current turn's in all of its steps (I6), an older one's until something has to leave, and then a
    pass frees more than that (I7). So it does where a question needs more of what was reduced than there is room for.
    """
    if seen.case.planned or seen.case.attachments or _has_files(seen.originals):
        return
    margin = budget.MARGINS.get(seen.case.body["model"], 1.0)
    forwarded = dict(zip(seen.indexes, seen.forwarded, strict=True))
    forms = [(m, *(f for f in seen.standing.get(i, ()) if f != LEFT_OUT)) for i, m in enumerate(seen.originals)]
    whole = [max(each, key=tokens.of_message) for each in forms]
    most = tokens.of_prompt(whole, seen.case.body) + tokens.most_beside(whole, seen.case.body)
    allowed = budget.budget_of(seen.case)
    is_reduced = any(f != m for i, m in enumerate(seen.originals) for f in seen.standing.get(i, ()))
    if most * margin + (append.room_for_recall(allowed) if is_reduced else 0) > allowed:
        return
    found = [forwarded.get(index, LEFT_OUT) for index in range(len(seen.originals))]
    other = [index for index, message in enumerate(found) if message != seen.originals[index]]
    told = memory.summaries_of(seen)  # what a summary tells has left for it
    frozen = [
        index
        for index in other
        if found[index] in seen.standing.get(index, ()) or (told and found[index] == LEFT_OUT and index < seen.current)
    ]
    if seen.current in other and (frozen or seen.figures.get("things")):
        found[seen.current] = {**found[seen.current], "content": blocks.split(found[seen.current])[1]}
    same = all(found[index] == seen.originals[index] for index in other if index not in frozen)
    hold("§1", same, "everything fits, and something else was forwarded")
    alone = seen.case.body["messages"] == seen.originals and not frozen and not seen.figures.get("things")
    hold("bill", not alone or seen.figures["strategy"] == "passthrough", f"strategy {seen.figures['strategy']}")


def _has_files(messages: list[Json]) -> bool:
    return any(p.get("type") == "file" for m in messages for p in _parts(m))


def _parts(message: Json) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []
