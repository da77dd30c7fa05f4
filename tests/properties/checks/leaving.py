"""I5: what leaves first: spaces of JSON, old artifacts, current ones."""

from tests.properties.checks.budget import is_thinned
from tests.properties.checks.lossless import same, shorter
from tests.properties.checks.memory import turns_told, with_results
from tests.properties.checks.seen import Json, Seen, hold, text_of

LONG = 1500
"""Characters: a shorter result may be one passage, which the question needs as a whole."""


def check(seen: Seen) -> None:
    """Nothing is lost while a compaction would still save something, nothing new while something old would."""
    _compacted_first(seen)
    if not seen.case.planned:
        _old_before_current(seen)


def _old_before_current(seen: Seen) -> None:
    """Where a result of the current turn is cut, no older one in the window stands whole. A result that refers to
    another which says the same in full is not cut (I6)."""
    results = [(m, i) for m, i in zip(seen.forwarded, seen.indexes, strict=True) if m["role"] == "tool"]
    said = {_words(seen, i).strip() for m, i in results if not _is_reduced(m, seen, i)}
    cut = [m for m, i in results if i > seen.current and _is_cut(m, seen, i) and _words(seen, i).strip() not in said]
    if not cut:
        return
    pinned = with_results(seen.originals, seen.case.pinned)
    for message, index in results:
        was = text_of(seen.originals[index]["content"])
        if index not in pinned and index < seen.current and len(shorter(was) or was) > LONG:
            whole = same(text_of(message["content"]), was)
            hold("I5 old first", not whole, f"a fresh result was cut, an old one stands whole: {was[:80]!r}")


def _is_cut(message: Json, seen: Seen, index: int) -> bool:
    """Whether this request decided to show less of it."""
    if message in seen.standing.get(index, ()):
        return False
    return _is_reduced(message, seen, index)


def _is_reduced(message: Json, seen: Seen, index: int) -> bool:
    return not same(text_of(message["content"]), _words(seen, index))


def _words(seen: Seen, index: int) -> str:
    """What a result said when it came."""
    return text_of(seen.originals[index]["content"])


def _compacted_first(seen: Seen) -> None:
    """If anything was reduced or has left for room, no JSON in the window stands as it was spaced. Turns that a summary
    tells leave for that with all that is in them, whatever room there is (guarantee §3.11), and what a block quotes has
    left as messages."""
    told = turns_told(seen)
    numbered = [i for i, message in enumerate(seen.originals) if message["role"] not in ("system", "developer")]
    within = tuple(f"history:msg_{n}:" for n, index in enumerate(numbered) if index in told)
    reduced = [r for r in seen.records if r["strategy"] in ("exclude", "rag_extract", "summarize")]
    lossy = [
        r for r in reduced if r.get("reason") != "same_document" and not r["source"].startswith(("turns:", *within))
    ]
    left = set(range(len(seen.originals))).difference(seen.indexes, told)
    if not (left or lossy) or is_thinned(seen):
        return
    pinned = with_results(seen.originals, seen.case.pinned)
    before = [(m, seen.standing[i]) for m, i in zip(seen.forwarded, seen.indexes, strict=True) if i in seen.standing]
    if before and all(message in forms for message, forms in before):
        return  # what had left before has left; now everything new has room
    for message, index in zip(seen.forwarded, seen.indexes, strict=True):
        if message["role"] != "tool" or message in seen.standing.get(index, ()) or index in pinned:
            continue
        was = text_of(seen.originals[index]["content"])
        if message["content"] == seen.originals[index]["content"]:
            hold("I5 order", shorter(was) is None, f"something left while JSON kept its spaces: {was[:80]!r}")
