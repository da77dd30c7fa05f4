"""Finds the places that a question names in the texts that are searched: lines, rows and cells exactly, of pages,
slides, sheets and files whatever bears on the question (guarantee §14.2)."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from gateway.core.types.places import MARKER, NUMBERED, SHEET, PlaceSection, Span, TextPlaces, after_markers, is_marked
from gateway.core.types.relevance import SearchedSource
from gateway.retrieval.chunks.marked import split_heading
from gateway.retrieval.corpus import Scores, SourceCorpus
from gateway.retrieval.named_places import NamedPlaces

COUNTED = frozenset({"", "file", "sheet"})
"""Kinds of sections whose lines or rows have numbers."""
MAX_FILES = 8
"""Files, or sheets, of one text in which a line is looked for that names none of them."""
FILE_NAME = re.compile(r"[^\s/\\\"']+\.\w{1,8}\b")
MIN_STEM = 4
"""Characters of a file's name without its ending from which it may stand for the file."""


def place_scores(corpus: SourceCorpus, named: NamedPlaces) -> Scores | None:
    """For each chunk how many of the places that the question names it is of; None if there is none."""
    scores = np.zeros(corpus.count)
    for source, index in enumerate(corpus.indexes):
        content = corpus.sources[source].content
        if corpus.sources[source].kind == "turn" or not is_marked(content):
            continue
        known: dict[str, int] = {}
        above: dict[str, str] = {"": ""}
        for number, chunk in enumerate(index.chunks, int(corpus.begins[source])):
            if chunk.heading not in above:
                above[chunk.heading] = f"{split_heading(chunk.heading)[0]}\n"
            markers = above[chunk.heading]
            if content[chunk.start] == "[":
                markers += content[chunk.start : after_markers(content, chunk.start, chunk.end)]
            if markers and markers not in known:
                known[markers] = sum(is_named(m[1], m[2], named) for m in MARKER.finditer(markers))
            scores[number] = known.get(markers, 0)
    return _of_named_texts(corpus, named, scores)


def line_scores(corpus: SourceCorpus, named: NamedPlaces) -> Scores | None:
    """The chunks of the lines, rows and cells that the question names, in its order; None if there are none."""
    if not named.lines:
        return None
    scores = np.zeros(corpus.count)
    for number, source in enumerate(corpus.sources):
        if source.kind == "turn":
            continue
        spans = source.named if source.named is not None else lines_named(named, source)
        for rank, (start, end) in enumerate(spans):
            first, last = corpus.chunk_at(number, start), corpus.chunk_at(number, max(start, end - 1))
            scores[first : last + 1] = np.maximum(scores[first : last + 1], len(spans) - rank)
    return _of_named_texts(corpus, named, scores)


def lines_named(named: NamedPlaces, source: SearchedSource, *, alone: bool = False) -> tuple[Span, ...]:
    """The stretches of a text that are the lines, rows and cells which a question names. Where files and sheets are
    named, it is theirs alone.
    `alone`: lines of a text without marks count, too, though the question does not say of which text they are."""
    content = source.content
    if not named.lines or not content:
        return ()
    if not (alone or source.excerpt_of or is_marked(content) or is_label_named(source.label, named)):
        return ()
    places = TextPlaces(content, excerpt=bool(source.excerpt_of))
    meant = list(_meant(list(places.sections()), named))
    each = (span for first, last in named.lines for one in meant for span in places.lines_of(one, first, last))
    return tuple(dict.fromkeys(each))


def numbered_named(named: NamedPlaces, content: str) -> list[Span]:
    """The pages, slides, chapters and notebook cells of a text that a question names."""
    if not named.numbered or not is_marked(content):
        return []
    sections = TextPlaces(content).sections()
    return [(each.start, each.end) for each in sections if each.kind in NUMBERED and _is_named(each, named)]


def is_label_named(label: str, named: NamedPlaces) -> bool:
    """Whether the question names a text by its title: a file's name, also without its ending."""
    if named.names(label):
        return True
    for name in FILE_NAME.findall(label)[:MAX_FILES]:
        stem = name.rpartition(".")[0]
        if named.names(name) or (len(stem) >= MIN_STEM and named.names(stem)):
            return True
    return False


def _meant(sections: Sequence[PlaceSection], named: NamedPlaces) -> Iterator[PlaceSection]:
    """The sections with lines that the question may mean: of sheets and files that it names, else of the first ones."""
    counted = [each for each in sections if each.kind in COUNTED]
    for kinds in (("sheet",), ("file",)):
        own = [each for each in counted if each.kind in kinds and _is_named(each, named)]
        if own:
            yield from own
            return
    files = {each.file for each in sections if named.names(each.file.rpartition("/")[2])}
    counted = [each for each in counted if each.file in files] if files else counted
    if len({(each.file, _sheet(each)) for each in counted}) <= MAX_FILES:
        yield from counted


def _sheet(section: PlaceSection) -> str:
    found = SHEET.match(section.name) if section.kind == "sheet" else None
    return found[1] if found else ""


def _is_named(section: PlaceSection, named: NamedPlaces) -> bool:
    return is_named(section.kind, section.name, named)


def is_named(kind: str, name: str, named: NamedPlaces) -> bool:
    """Whether the question names the place of a marker: a page by its number, a sheet or file by its name."""
    if kind in NUMBERED:
        return name.isdecimal() and (kind, int(name)) in named.numbered
    sheet = SHEET.match(name) if kind == "sheet" else None
    return named.names_place(kind, sheet[1] if sheet else name.rpartition("/")[2])


def _of_named_texts(corpus: SourceCorpus, named: NamedPlaces, scores: Scores) -> Scores | None:
    """The scores, where some are of texts that the question names by their titles theirs alone; None if all are 0."""
    if not scores.any():
        return None
    if len(corpus.sources) > 1:
        own = np.array([is_label_named(source.label, named) for source in corpus.sources], bool)[corpus.source_of]
        if (scores * own).any():
            scores = np.where(own, scores, 0.0)
    return scores
