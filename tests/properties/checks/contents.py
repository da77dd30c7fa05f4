"""What may become of a message's content: nothing, a lossless compaction, or a reduction that says so (I4, I5, I6)."""

import re

from tests.properties.checks import escapes
from tests.properties.checks.lossless import same, shorter, unquoted
from tests.properties.checks.seen import Json, Seen, hold, text_of
from tests.support.o200k import text_tokens

IDENTITY = re.compile(r"\bart_[0-9a-f]{16}(?:-\d+)?\b")
SUMMARY = re.compile(r"\[Summary of .*?: ([0-9,]+) characters for [0-9,]+, in a model's words[^\]]*\]$")
EXTRACTS = "\n[Extracts:]\n"
MODELS_WORDS = "In a model's words:"
"""How the summaries of random plans begin."""
ELISION = "[…]"
LABEL = 10


def reduced_label(name: str, text: str, original: str, seen: Seen, source: str | None) -> Json:
    """Checks that a reduced text says what it is, where it came from, how much was left out, and its id; returns its
    record in the bill."""
    head = text.split("\n", 1)[0]
    found = IDENTITY.search(head)
    hold("I6", found, f"a reduced {name} without an id: {text[:120]!r}")
    assert found is not None
    record = next((r for r in seen.records if r["artifact_id"] == found.group(0)), None)
    hold("I6", record is not None, f"the bill does not know {found.group(0)}")
    assert record is not None
    hold("I6", f"{len(original):,}" in head, f"{name}: its {len(original):,} characters are not told: {head[:200]!r}")
    hold("I6", source is None or source in head, f"{name}: where it came from is not told: {head[:200]!r}")
    if record["strategy"] == "include_full" and _is_in_a_block(record, seen):
        return record
    kind = "tool result" if name == "tool result" else "document"
    hold("I6", kind in head.replace("_", " "), f"{name}: what it is is not told: {head[:200]!r}")
    hold("bill", record["original_size_chars"] == len(original), f"{name}: another size in the bill")
    hold("bill", record["strategy"] in ("rag_extract", "exclude", "summarize"), f"{name}: {record['strategy']}")
    return record


def _is_in_a_block(record: Json, seen: Seen) -> bool:
    """Whether a block shows all of another artifact with the same content: their ids differ by a number at the end."""
    name = record["artifact_id"].split("-")[0]
    item = re.compile(rf'<artifact id="{name}(-\d+)?"[^\n]* shown="full"')
    return any(item.search(text_of(message["content"])) for message in seen.forwarded if message["role"] == "user")


def check_extract(name: str, text: str, original: str) -> None:
    """What an extract shows are stretches of the original, not re-spaced, in their order, and escaped."""
    body = text.split("\n", 1)[1] if "\n" in text else ""
    escapes.check(body)
    body, original = escapes.plain(body), escapes.plain(original)
    pieces = [piece.strip("\n") for piece in body.split(ELISION)]
    if not body:
        return
    sources = [original, shorter(original) or original, unquoted(original) or original]
    at = [0, 0, 0]
    for number, piece in enumerate(pieces):
        if not piece.strip():
            continue
        places = [source.find(piece, start) for source, start in zip(sources, at, strict=True)]
        if max(places) < 0 and _lines_of(piece, sources):
            continue
        hold("I5", max(places) >= 0, f"{name}: words or spaces that the original does not have: {piece[:160]!r}")
        if number:
            at = [place + len(piece) if place >= 0 else start for place, start in zip(places, at, strict=True)]
    shown = sum(len(piece) for piece in pieces)
    whole = shown >= len(original.strip()) or ELISION in original
    hold("I6", whole or ELISION in body, f"{name}: nothing marks what was left out")


def _lines_of(piece: str, sources: list[str]) -> bool:
    """Whether each line of a piece stands in the original, the lines in their order but for repeated heads."""
    for source in sources:
        at = 0
        for line in piece.split("\n"):
            place = source.find(line, at)
            if place < 0 and source.find(line) < 0:
                break
            at = place + len(line) if place >= 0 else at
        else:
            return True
    return False


def check_tool(seen: Seen, message: Json, original: Json, source: str) -> None:
    """A tool result: as it was, compacted, or reduced with a label."""
    if message["content"] == original["content"]:
        return
    was, now = text_of(original["content"]), text_of(message["content"])
    if now != was and same(was, now):
        _keeps_other_parts(message, original)
        hold("I5", len(now) <= len(was), "a compaction that is longer")
        return
    hold("§1", now != was, "a tool result that is shown in full lost its form: a list of parts became a string")
    record = reduced_label("tool result", now, was, seen, source)
    if record["strategy"] == "include_full":
        return
    if record["strategy"] == "summarize":
        now = _without_summary(now)
    _is_shorter(message["content"], was)
    check_extract("tool result", now, was)
    hold("bill", record["strategy"] != "exclude" or record["processed_size_chars"] == 0, "excluded, and shown")
    if record["strategy"] == "rag_extract":
        shown = record["processed_size_chars"]
        hold("bill", 0 < shown <= len(was), f"{shown} characters shown of {len(was)}")


def _is_shorter(shown: str | list[Json], was: str) -> None:
    """What a label costs counts: what gets no shorter in tokens stays whole."""
    whole = max(text_tokens(form) for form in (was, shorter(was) or was, unquoted(was) or was))
    now = text_tokens(text_of(shown))
    hold("I6 longer", now < whole or whole < LABEL, f"a reduced result takes {now} tokens, the whole {whole}")


def _without_summary(text: str) -> str:
    """The label and the extracts below a summary, which says of itself that it is one, and how long."""
    head, _, body = text.partition("\n")
    told = SUMMARY.match(head)
    hold("I6", told, f"a summary that does not say that it is one: {head[:160]!r}")
    assert told is not None
    size = int(told.group(1).replace(",", ""))
    shown, mark, extracts = body.partition(EXTRACTS)
    escapes.check(shown)
    summary = escapes.plain(shown)
    hold("I6", summary.startswith(MODELS_WORDS), f"not what a model wrote: {summary[:80]!r}")
    hold("I6", len(summary) == size, f"the label tells another size than {len(summary)}: {head[:160]!r}")
    return f"{head}\n{extracts}" if mark else head


def _keeps_other_parts(message: Json, original: Json) -> None:
    parts = original["content"] if isinstance(original["content"], list) else []
    for part in parts:
        if part.get("type") != "text":
            hold("I5", part in message["content"], f"a compaction that lost a {part.get('type')} part")
