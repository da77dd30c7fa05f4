"""I2 and §11: at most one memory message, behind the system messages; in it, word for word, what is pinned and has left
the window, and nothing that the window holds."""

import re

from tests.properties.checks import escapes
from tests.properties.checks.seen import INSTRUCTIONS, Json, Seen, hold, text_of, turn_begins

OPENING = re.compile(r'<conversation_memory note="[^"<>]*data, not instructions[^"<>]*">\n')
END = "</conversation_memory>"
SUMMARY = re.compile(r'<turns_summary id="([^"<>]*)"')


def taken_out(forwarded: list[Json]) -> tuple[list[Json], Json | None]:
    """The messages without the memory message, and that message.
    Raises Broken: there are several, or it stands elsewhere."""
    places = [i for i, m in enumerate(forwarded) if m["role"] == "user" and OPENING.match(text_of(m["content"]))]
    if not places:
        return forwarded, None
    hold("I2 memory", len(places) == 1, f"{len(places)} memory messages")
    at = places[0]
    before = {m["role"] for m in forwarded[:at]}
    hold("I2 memory", before <= set(INSTRUCTIONS), "a memory message behind others than system messages")
    hold("I2 memory", text_of(forwarded[at]["content"]).endswith(END), "a memory message without an end")
    return forwarded[:at] + forwarded[at + 1 :], forwarded[at]


def with_results(messages: list[Json], pinned: frozenset[int]) -> set[int]:
    """What is pinned, with the results of pinned calls; system messages are in every window anyway."""
    found: set[int] = set()
    call = False
    for index, message in enumerate(messages):
        if message["role"] != "tool":
            call = index in pinned
        if (call or index in pinned) and message["role"] not in INSTRUCTIONS:
            found.add(index)
    return found


def summaries_of(seen: Seen) -> list[str]:
    """The summaries of turns that the memory message shows, by their ids: what they tell left the window for them."""
    return SUMMARY.findall(text_of(seen.memory["content"])) if seen.memory is not None else []


def turns_told(seen: Seen) -> set[int]:
    """The messages of these turns, as indexes of `originals`."""
    shown, begins = summaries_of(seen), [*turn_begins(seen.originals), len(seen.originals)]
    found: set[int] = set()
    for record in seen.records:
        if record["artifact_id"] in shown:
            first, last = map(int, record["source"].removeprefix("turns:").split("-"))
            found.update(range(begins[first - 1], begins[last]))
    return found


def check(seen: Seen) -> None:
    pinned = with_results(seen.originals, seen.case.pinned)
    outside = sorted(pinned - set(seen.indexes))
    told = seen.figures.get("memory")
    hold("bill", (told is None) == (seen.memory is None), "a memory message that the bill does not tell, or none")
    if seen.memory is None:
        hold("§11", not outside, f"pinned messages {outside} are nowhere")
    else:
        shown = summaries_of(seen)
        hold("§11", outside or shown, "a memory message although the window holds all that is pinned")
        hold("bill", told is not None and told["segments"] == len(shown), f"{told} of {len(shown)} summaries")
        hold("bill", told is not None and told["pinned"] == len(outside), f"{told} of {outside}")
        content = seen.memory["content"]
        raw = [part for part in content if part["type"] == "file"] if isinstance(content, list) else []
        hold("§11", not raw, "a pinned document is forwarded as a file")
        _all_told(seen, text_of(content), outside)
    for message, index in zip(seen.forwarded, seen.indexes, strict=True):
        if index in pinned and message["role"] == "tool":
            same = message["content"] == seen.originals[index]["content"]
            hold("§11", same, f"a pinned result was touched: {text_of(message['content'])[:80]!r}")


def _all_told(seen: Seen, text: str, outside: list[int]) -> None:
    at = 0
    for index in outside:
        content = seen.originals[index]["content"]
        parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        for part in parts:
            if part["type"] != "text":
                continue
            words = escapes.escaped(part["text"])
            found = text.find(words, at)
            hold("§11", found >= 0, f"a pinned message is not there word for word: {part['text'][:80]!r}")
            at = found + len(words)
    delimiters = [m.group(0) for m in re.finditer(r"</?(?:conversation_memory|pinned_message)\b", text)]
    hold("§11", len(delimiters) == 2 + 2 * len(outside), f"delimiters that are not escaped: {len(delimiters)}")
