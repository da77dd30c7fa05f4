"""I5: what leaves first. Nothing is lost while a compaction would still save something."""

from tests.properties.checks.budget import is_thinned
from tests.properties.checks.lossless import shorter
from tests.properties.checks.seen import Seen, hold, text_of


def check(seen: Seen) -> None:
    """If anything was reduced or has left, no JSON in the window stands as it was spaced."""
    lossy = [r for r in seen.records if r["strategy"] in ("exclude", "rag_extract", "summarize")]
    if not (seen.figures["messages_excluded"] or lossy) or is_thinned(seen):
        return
    before = [(m, seen.standing[i]) for m, i in zip(seen.forwarded, seen.indexes, strict=True) if i in seen.standing]
    if before and all(message in forms for message, forms in before):
        return  # what had left before has left; now everything new has room
    for message, index in zip(seen.forwarded, seen.indexes, strict=True):
        if message["role"] != "tool" or message in seen.standing.get(index, ()):
            continue
        was = text_of(seen.originals[index]["content"])
        if message["content"] == seen.originals[index]["content"]:
            hold("I5 order", shorter(was) is None, f"something left while JSON kept its spaces: {was[:80]!r}")
