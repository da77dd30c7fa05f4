"""Which things a question names: by the aliases that stand in it, the longest first (guarantee §11)."""

from collections.abc import Collection, Iterable, Sequence

from gateway.models.things import MOST_RECALLED, Phrases, Thing
from gateway.things.aliases import COMMON, question_words, runs_of, words_of

Span = tuple[int, int]
"""Words of the question, from … to (exclusive)."""


def phrases_of(question: str) -> Phrases:
    """What is looked up for a question."""
    return Phrases(tuple(run for run in runs_of(question_words(question)) if run not in COMMON))


def search_of(query: str) -> Phrases:
    """What is looked up where somebody searches: single words count, too."""
    words = question_words(query)
    return Phrases(runs_of(words), tuple(dict.fromkeys(word for word in words if word != "\n")))


def named_by(question: str, found: Iterable[Thing], most: int = MOST_RECALLED) -> tuple[Thing, ...]:
    """Those of the things that a question names, at most `most`.

    The longest alias counts first. Words that name a thing do not name others by fewer of them: "my workflow 12" is
    not each thing that is "my workflow". Among equals the latest comes first. Of a thing that is remembered for the
    conversation and for its user, what was noted last counts.
    """
    words = question_words(question)
    latest: dict[tuple[str, str], Thing] = {}
    for thing in found:
        known = latest.get(thing.key)
        if known is None or thing.mentioned_at > known.mentioned_at:
            latest[thing.key] = thing
    places = [(thing, spans) for thing in latest.values() if (spans := _spans(words, thing))]
    every = {span for _, spans in places for span in spans}
    kept = [(thing, size) for thing, spans in places if (size := max(_size(span, every) for span in spans))]
    kept.sort(key=lambda each: (-each[1], *_latest_first(each[0])))
    return tuple(thing for thing, _ in kept[:most])


def ranked(query: str, found: Iterable[Thing], most: int) -> tuple[Thing, ...]:
    """What a search found: what has an alias that is in the query, then what has most of its words; then the latest."""
    words = question_words(query)
    wanted = frozenset(words)

    def worth(thing: Thing) -> tuple[int, int, float, str]:
        whole = max((end - start for start, end in _spans(words, thing)), default=0)
        own = frozenset(word for alias in thing.aliases for word in words_of(alias))
        return -whole, -len(own & wanted), *_latest_first(thing)

    return tuple(sorted(found, key=worth)[:most])


def _latest_first(thing: Thing) -> tuple[float, str]:
    return -thing.mentioned_at.timestamp(), thing.memory_id


def _spans(words: Sequence[str], thing: Thing) -> list[Span]:
    """Where the thing's aliases stand in the question."""
    found: list[Span] = []
    for own in (alias.split(" ") for alias in thing.aliases):
        starts = (at for at in range(len(words) - len(own) + 1) if words[at] == own[0])
        found += [(at, at + len(own)) for at in starts if list(words[at : at + len(own)]) == own]
    return found


def _size(span: Span, every: Collection[Span]) -> int:
    """How many words a span has; 0 where it lies inside a longer one."""
    start, end = span
    is_inside = any(first <= start and end <= last and last - first > end - start for first, last in every)
    return 0 if is_inside else end - start
