"""§14.6: a document that came more than once stands once in the window, and where it is not shown that is said."""

from collections import Counter
from collections.abc import Iterator

from tests.properties.checks import blocks
from tests.properties.checks.contents import IDENTITY
from tests.properties.checks.seen import Json, Seen, hold, text_of

ELSEWHERE = 'shown="elsewhere"'
LEAST = 200
"""Characters from which a document is worth a reference."""


def check(seen: Seen) -> None:
    """No long document stands in full twice; each that says that it stands elsewhere does. What is pinned stays as it
    came, and a plan may leave all of a document out."""
    pinned = {i for i in seen.case.pinned if i >= 0}
    full: Counter[str] = Counter()
    told: set[str] = set()
    same: set[str] = set()
    for message, index in zip(seen.forwarded, seen.indexes, strict=True):
        for item in _items(message) if message["role"] == "user" else ():
            name = item.identity.partition("-")[0]
            if 'type="document"' not in item.attributes:
                continue
            if ELSEWHERE in item.attributes:
                same.add(name)
            elif item.body:
                told.add(name)
            if 'shown="full"' in item.attributes and len(item.body) > LEAST and index not in pinned:
                full[name] += 1
    twice = [name for name, count in full.items() if count > 1]
    hold("§14.6", not twice, f"in full twice: {twice}")
    if seen.memory is None and not seen.case.planned:
        hold("§14.6", same <= told, f"nowhere: {same - told}")


def check_said(seen: Seen, text: str) -> None:
    """A file that is shown elsewhere names where, and the bill says so."""
    first, _, rest = text.partition("\n")
    hold("§14.6", rest.startswith("(The same document as ") and rest.endswith(".)\n</artifact>"), rest[:80])
    found = IDENTITY.search(first)
    records = [r for r in seen.records if found is not None and r["artifact_id"] == found.group(0)]
    hold("§14.6", [r.get("reason") for r in records] == ["same_document"], f"the bill says {records}")


def _items(message: Json) -> Iterator[blocks.Item]:
    items, content = blocks.split(message)
    yield from items or ()
    for part in content if isinstance(content, list) else ():
        text = text_of([part])
        if blocks.OPENING.match(text) and text.endswith(blocks.FILE_END):
            for found in blocks.ITEM.finditer(text):
                yield blocks.Item(found.group(1), text[found.end() :].rpartition("\n</artifact>")[0])
                break
