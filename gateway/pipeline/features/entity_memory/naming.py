"""Which things a question names: by the aliases that stand in it, the longest first (guarantee §11.14)."""

from collections import Counter
from collections.abc import Iterable, Sequence

from gateway.core.types.memory import MAX_RECALLED, MemoryEntity, SearchPhrases
from gateway.pipeline.features.entity_memory.aliases import COMMON, question_words, runs_of

Span = tuple[int, int]
"""Words of the question, from … to (exclusive)."""


def phrases_of(question: str) -> SearchPhrases:
    """What is looked up for a question."""
    return SearchPhrases(tuple(run for run in runs_of(question_words(question)) if run not in COMMON))


def search_of(query: str) -> SearchPhrases:
    """What is looked up where somebody searches: single words count, too."""
    words = question_words(query)
    return SearchPhrases(runs_of(words), tuple(dict.fromkeys(word for word in words if word != "\n")))


def named_by(question: str, found: Iterable[MemoryEntity], most: int = MAX_RECALLED) -> tuple[MemoryEntity, ...]:
    """Those of the things that a question names, at most `most`.

    Words that name a thing do not name others by fewer of them: "my workflow 12" is not each thing that is "my
    workflow". What few things are called comes first, then what is called by more words, then the latest. Of a thing
    that is remembered for the conversation and for its user, what was noted last counts.
    """
    words = question_words(question)
    latest: dict[tuple[str, str], MemoryEntity] = {}
    for thing in found:
        known = latest.get(thing.key)
        if known is None or thing.mentioned_at > known.mentioned_at:
            latest[thing.key] = thing
    places = [(thing, spans) for thing in latest.values() if (spans := _spans(words, thing))]
    count = Counter(span for _, spans in places for span in spans)
    whole = {span for span in count if not any(_is_inside(span, other) for other in count)}
    worth = [(min((count[each], -_size(each)) for each in own), thing) for thing, s in places if (own := s & whole)]
    worth.sort(key=lambda each: (*each[0], *_latest_first(each[1])))
    return tuple(thing for _, thing in worth[:most])


def ranked(query: str, found: Iterable[MemoryEntity]) -> tuple[MemoryEntity, ...]:
    """What a search found: what has an alias that is in the query, then what has most of its words; then the latest."""
    words = question_words(query)
    wanted = frozenset(words)

    def worth(thing: MemoryEntity) -> tuple[int, int, float, str]:
        whole = max(map(_size, _spans(words, thing)), default=0)
        own = wanted.intersection(" ".join(thing.aliases).split(" "))
        return -whole, -len(own), *_latest_first(thing)

    return tuple(sorted(found, key=worth))


def _latest_first(thing: MemoryEntity) -> tuple[float, str]:
    return -thing.mentioned_at.timestamp(), thing.memory_id


def _spans(words: Sequence[str], thing: MemoryEntity) -> frozenset[Span]:
    """Where the thing's aliases stand in the question."""
    text = f" {' '.join(words)} "
    here = [alias.split(" ") for alias in thing.aliases if f" {alias} " in text]
    return frozenset(
        (at, at + len(own))
        for own in here
        for at in range(len(words) - len(own) + 1)
        if words[at] == own[0] and list(words[at : at + len(own)]) == own
    )


def _size(span: Span) -> int:
    return span[1] - span[0]


def _is_inside(span: Span, other: Span) -> bool:
    """Whether it is a part of a longer one."""
    return other != span and other[0] <= span[0] and span[1] <= other[1]
