"""Very long texts: a first look finds the regions that share words with the question; only those are searched closely.

An index of 50 million characters takes seconds and a gigabyte. The first look takes a tenth of that time, and no more
memory than a region.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gateway.core.types.places import is_marked
from gateway.core.types.regions import REGION_CHARS, Span, region_spans
from gateway.core.types.relevance import RankedPassage, RelevanceQuery, SearchedSource
from gateway.retrieval.chunks import tables
from gateway.retrieval.chunks.marked import MarkerHeadings
from gateway.retrieval.in_places import lines_named, numbered_named
from gateway.retrieval.named_places import MAX_NUMBERS, NamedPlaces, named_places
from gateway.retrieval.question import borrowed_terms
from gateway.retrieval.terms import TermLexicon

LARGE_CHARS = 4_000_000
"""Characters from which a text is looked through by regions: an index of so many takes half a second and 100 MB."""
SEARCHED_CHARS = 2_000_000
"""Characters of the best regions, which are searched closely: ten times as many as a large window holds."""
LONG_STEM = 5
"""Letters from which a stem is looked for without its last one, which differs in some forms: `battery`, `batteries`."""

Search = Callable[[Sequence[SearchedSource]], list[list[RankedPassage]]]


def is_large(source: SearchedSource) -> bool:
    """Whether its text is looked through by regions."""
    return len(source.content) >= LARGE_CHARS


def search_by_regions(
    search: Search, query: RelevanceQuery, sources: Sequence[SearchedSource]
) -> list[list[RankedPassage]]:
    """The passages of each source, scored by `search` as one corpus; of a large text those of its best regions, and
    every other region as one passage of score 0."""
    needles, named = _needles(query), named_places(query.question)
    each = [_parts(source, needles, named) if is_large(source) else [(source, 0, 0)] for source in sources]
    found = iter(search([part for parts in each for part, _, _ in parts]))
    return [
        list(_joined(parts, found, len(source.content))) if is_large(source) else next(found)
        for source, parts in zip(sources, each, strict=True)
    ]


def _needles(query: RelevanceQuery) -> dict[str, float]:
    """The beginnings of the words that are looked for, with their weights."""
    lexicon = TermLexicon()
    terms: dict[str, float] = dict(borrowed_terms(query.question, query.recent, lexicon))
    for text in (query.question, *query.searches):
        terms |= {term: 1.0 for term, _ in lexicon.question(text)}
    found: dict[str, float] = {}
    for term, weight in terms.items():
        stem = term[:-1] if len(term) >= LONG_STEM and term.isalpha() else term
        found[stem] = max(weight, found.get(stem, 0.0))
    return found


def _parts(
    source: SearchedSource, needles: dict[str, float], named: NamedPlaces
) -> list[tuple[SearchedSource, int, int]]:
    """The best regions as sources of their own: each with its first character in the text, and the length of the
    table's first row that stands above it. Lines are counted in the whole text."""
    text = source.content
    header = "" if is_marked(text) else _first_row(text)
    markers = MarkerHeadings(text) if is_marked(text) else None
    parts = []
    lines = lines_named(named, source, alone=True)
    wanted = [*lines, *numbered_named(named, text)]
    for start, end in _merged(_best(text, needles, wanted)):
        above = markers.above(start) if markers else header if start > 0 else ""
        own = tuple(_shifted(lines, start, end, len(above) - start))
        parts.append((replace(source, content=above + text[start:end], named=own), start, len(above)))
    return parts


def _shifted(spans: Sequence[Span], start: int, end: int, by: int) -> Iterator[Span]:
    """What these spans have of a stretch, moved."""
    for low, high in spans:
        if low < end and high > start:
            yield max(low, start) + by, min(high, end) + by


def _best(text: str, needles: dict[str, float], named: Sequence[Span] = ()) -> list[Span]:
    """The regions that share most words with the question, in order: the first, the last, and those in which a place
    begins that it names are always among them."""
    regions = list(region_spans(text))
    counts = np.empty((len(regions), len(needles)))
    for number, (start, end) in enumerate(regions):
        lower = text[start:end].lower()
        counts[number] = [lower.count(needle) for needle in needles]
    holding = np.count_nonzero(counts, axis=0)
    rarity = np.log1p((len(regions) - holding + 0.5) / (holding + 0.5)) * list(needles.values())
    scores = (counts / (counts + 1.0)) @ rarity
    begins = [start for start, _ in regions]
    of_places = [bisect_right(begins, start) - 1 for start, _ in named[:MAX_NUMBERS]]
    order = [0, len(regions) - 1, *of_places, *np.argsort(-scores, kind="stable").tolist()]
    chosen, chars = set(), 0
    for number in order:
        start, end = regions[number]
        if chars + end - start > SEARCHED_CHARS:
            break
        if number not in chosen:
            chosen.add(number)
            chars += end - start
    return [regions[number] for number in sorted(chosen)]


def _merged(spans: Sequence[Span]) -> Iterator[Span]:
    """The spans in order; neighbours as one."""
    held: Span | None = None
    for start, end in spans:
        if held is not None and held[1] == start:
            held = held[0], end
            continue
        if held is not None:
            yield held
        held = start, end
    if held is not None:
        yield held


def _first_row(text: str) -> str:
    """The first row of a table, which names the columns; "" for other texts."""
    end = text.find("\n") + 1
    if not 0 < end < REGION_CHARS or tables.separator_of(text, 0, REGION_CHARS) is None:
        return ""
    return text[:end]


def _joined(
    parts: Sequence[tuple[SearchedSource, int, int]], found: Iterator[list[RankedPassage]], length: int
) -> Iterator[RankedPassage]:
    """The passages of all parts by their place in the whole text; what no part holds is in passages of score 0."""
    at = 0
    for source, start, above in parts:
        yield from _unsearched(at, start)
        for passage in next(found):
            if passage.end > above:
                shift = start - above
                yield replace(passage, start=max(passage.start, above) + shift, end=passage.end + shift)
        at = start + len(source.content) - above
    yield from _unsearched(at, length)


def _unsearched(start: int, end: int) -> Iterator[RankedPassage]:
    return (RankedPassage(at, min(end, at + REGION_CHARS), 0.0) for at in range(start, end, REGION_CHARS))
