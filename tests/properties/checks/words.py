"""I4: the current user message keeps its own words; documents in it, and in older ones, may be reduced."""

import base64
from itertools import takewhile

from tests.properties.checks import blocks, escapes, once
from tests.properties.checks.budget import budget_of, needed, steps_with
from tests.properties.checks.contents import IDENTITY, reduced_label
from tests.properties.checks.lossless import same, same_but_for_a_document
from tests.properties.checks.memory import with_results
from tests.properties.checks.seen import LEFT_OUT, Json, Seen, amid, beside, hold, text_of
from tests.properties.checks.tokens import of_message


def check(seen: Seen) -> None:
    """All user messages of the window; blocks stand at the head of the one that begins the turn, and where one stood
    before. That one and what was said last amid its tool loop are there."""
    for index in (seen.current, *amid(seen.originals)[-1:]):
        hold("I4", index < 0 or index in seen.indexes, f"message {index}, which is current, is not there")
    _said_beside(seen)
    for message, index in zip(seen.forwarded, seen.indexes, strict=True):
        if message["role"] != "user":
            continue
        original = seen.originals[index]
        if message == original:
            continue
        if message in seen.standing.get(index, ()):
            continue
        items, content = blocks.split(message)
        stood = [blocks.split(form)[0] for form in seen.standing.get(index, ()) if form.get("content")]
        kept = index == seen.current or items in (None, *stood)
        hold("I6", kept, "a new block at the head of another message")
        if index == seen.current:
            if items not in stood:
                blocks.check(seen, items)
            _own_words(seen, content)
        _content(seen, content, original["content"])


def _said_beside(seen: Seen) -> None:
    """What was said directly before the message that began a tool loop leaves only where one step is left, unless it
    had left before that loop, or has no room beside that step: a picture may take more than a small budget."""
    calls = [i for i, m in enumerate(seen.originals) if m.get("tool_calls") and i > seen.current >= 0]
    gone = [i for i in beside(seen.originals) if i not in seen.indexes and LEFT_OUT not in seen.standing.get(i, ())]
    room = budget_of(seen.case) - needed(seen.case, seen.originals)
    gone = list(takewhile(lambda i: of_message(seen.originals[i]) <= room, reversed(gone)))  # the window has no gap
    if not calls or not gone:
        return
    pinned = steps_with(seen.originals, with_results(seen.originals, seen.case.pinned))
    steps = [i for i in calls[:-1] if i in seen.indexes and i not in pinned]
    hold("I4", not steps, f"messages {gone} have left, which belong to the task, and steps {steps} have not")


def _own_words(seen: Seen, content: str | list[Json]) -> None:
    text, at = text_of(content), 0
    for words in seen.case.own:
        at = text.find(words, at)
        hold("I4", at >= 0, f"the user's own words are not there: {words[:80]!r}")
        at += len(words)


def _content(seen: Seen, content: str | list[Json], original: str | list[Json]) -> None:
    """Each part as it was, or a document that says that it was reduced."""
    if content == original:
        return
    hold("I4", type(content) is type(original), "a content of another form")
    over_long = len(text_of(original)) > seen.case.document_chars
    if isinstance(original, str) or isinstance(content, str):
        assert isinstance(original, str)
        assert isinstance(content, str)
        hold("I4", over_long, f"a message of {len(original)} characters was reduced")
        if same_but_for_a_document(content, original):
            return
        _edges(content, original)
        _is_told(seen, content, original)
        return
    hold("I4", len(content) == len(original), "parts of a message are missing")
    for part, was in zip(content, original, strict=True):
        if part == was:
            continue
        hold("I4", was["type"] in ("text", "file"), f"a part of type {was['type']} was touched")
        if was["type"] == "file":
            _file(seen, part, was)
            continue
        hold("I4", over_long, "a text part of a message that is not over-long was reduced")
        if same_but_for_a_document(part["text"], was["text"]):
            continue
        _is_told(seen, part["text"], was["text"])
        if not part["text"].startswith("["):
            _edges(part["text"], was["text"])


def _edges(text: str, original: str) -> None:
    """The first and the last paragraph stay."""
    first, last = original.split("\n\n")[0], original.rsplit("\n\n", 1)[-1]
    edge = min(1000, len(original) // 4)
    hold("I4", text.startswith(first[:edge].split("\n")[0]), f"the first paragraph left: {text[:80]!r}")
    hold("I4", text.endswith(last[-edge:].rsplit("\n", 1)[-1]), f"the last paragraph left: {text[-80:]!r}")


def _is_told(seen: Seen, text: str, original: str) -> None:
    """A text of which a document was reduced says so where it stood: its id, known to the bill, and its size."""
    known = {r["artifact_id"]: r for r in seen.records if r["strategy"] in ("exclude", "rag_extract", "summarize")}
    told = [found for found in IDENTITY.finditer(text) if found.group(0) not in original]
    hold("I6", told, f"a document was reduced in a message, without an id: {text[:160]!r}")
    for found in told:
        record = known.get(found.group(0))
        hold("I6", record is not None, f"the bill does not know that {found.group(0)} was reduced")
        if record is not None:
            line = text[text.rfind("\n", 0, found.start()) + 1 :].split("\n", 1)[0]
            hold("I6", f"{record['original_size_chars']:,}" in line, f"its size is not told: {line[:160]!r}")


def _file(seen: Seen, part: Json, was: Json) -> None:
    """A file as text: all of it, or an extract of it with a label."""
    hold("I6", part.get("type") == "text", "a file became something that is no text")
    text = blocks.file_in_place(part["text"])
    original = base64.b64decode(was["file"]["file_data"].split(",", 1)[1]).decode()
    if 'shown="full"' in text.split("\n", 1)[0]:
        inside = text.split("\n", 1)[1].removesuffix("\n</artifact>") if "\n" in text else ""
        plain = original.removeprefix("\ufeff")
        whole = inside == escapes.escaped(plain) or same(escapes.plain(inside), plain)
        hold("I5", whole or not plain.strip(), f"a file that is shown in full is another: {inside[:80]!r}")
        return
    if 'shown="elsewhere"' in text.split("\n", 1)[0]:
        once.check_said(seen, text)
        return
    reduced_label("file", text, original, seen, was["file"]["filename"])
