"""Resolves what a question refers to: whose messages it asks for, which words it quotes, what its pronouns stand for,
and what is in the places that it names (guarantee §14.2). A first scan finds the regions of very long texts that share
words with it, so that only those are searched closely.

An index of 50 million characters would take seconds and a gigabyte. The first scan takes a tenth of that time, and no
more memory than a region."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from string import ascii_lowercase

import numpy as np

from gateway.core.types import places
from gateway.core.types.places import PlaceSection, Span, TextPlaces
from gateway.core.types.relevance import RankedPassage, RelevanceQuery, SearchedSource
from gateway.retrieval.chunks import structured
from gateway.retrieval.chunks.chunk import MarkerHeadings, split_heading
from gateway.retrieval.corpus import (
    IDENTIFIER,
    MAX_QUESTION_TERMS,
    NAME,
    NUMBER,
    PLAIN,
    SEARCHED_WORD,
    Scores,
    SourceCorpus,
    TermLexicon,
    Terms,
    rarity,
)
from gateway.retrieval.named_places import MAX_NUMBERS, NamedPlaces, places_named

COUNTED = frozenset({"", "file", "sheet"})
"""Kinds of sections whose lines or rows have numbers."""
MAX_FILES = 8
"""Files, or sheets, of one text that are searched for a line if the question names none of them."""
NAMED_FILE = re.compile(r"[^\s/\\\"']+\.\w{1,8}\b")
MIN_STEM = 4
"""Minimum characters of a file's name without its ending if it is to stand for the file."""


def place_scores(corpus: SourceCorpus, named: NamedPlaces) -> Scores | None:
    """Returns for each chunk how many of the places that the question names contain it; None if there are none."""
    scores = np.zeros(corpus.count)
    for source, index in enumerate(corpus.indexes):
        content = corpus.sources[source].content
        if corpus.sources[source].kind == "turn" or not places.is_marked(content):
            continue
        known: dict[str, int] = {}
        above: dict[str, str] = {"": ""}
        for number, chunk in enumerate(index.chunks, int(corpus.begins[source])):
            if chunk.heading not in above:
                above[chunk.heading] = f"{split_heading(chunk.heading)[0]}\n"
            markers = above[chunk.heading]
            if content[chunk.start] == "[":
                markers += content[chunk.start : places.after_markers(content, chunk.start, chunk.end)]
            if markers and markers not in known:
                known[markers] = sum(is_named(m[1], m[2], named) for m in places.PLACE_MARKER.finditer(markers))
            scores[number] = known.get(markers, 0)
    return _of_named_texts(corpus, named, scores)


def line_scores(corpus: SourceCorpus, named: NamedPlaces) -> Scores | None:
    """Scores the chunks of the lines, rows and cells that the question names, in its order; None if there are none."""
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
    """Returns the stretches of a text that are the lines, rows and cells named by a question. If the question names
    files and sheets, only their lines count.
    `alone`: lines of a text without marks count, too, though the question does not name the text."""
    content = source.content
    if not named.lines or not content:
        return ()
    if not (alone or source.excerpt_of or places.is_marked(content) or is_label_named(source.label, named)):
        return ()
    text_places = TextPlaces(content, excerpt=bool(source.excerpt_of))
    meant = list(_meant(list(text_places.sections()), named))
    each = (span for first, last in named.lines for one in meant for span in text_places.lines_of(one, first, last))
    return tuple(dict.fromkeys(each))


def numbered_named(named: NamedPlaces, content: str) -> list[Span]:
    """Returns the pages, slides, chapters and notebook cells of a text that a question names."""
    if not named.numbered or not places.is_marked(content):
        return []
    pages = (each for each in TextPlaces(content).sections() if each.kind in places.NUMBERED)
    return [(each.start, each.end) for each in pages if is_named(each.kind, each.name, named)]


def is_label_named(label: str, named: NamedPlaces) -> bool:
    """Returns whether the question names a text by its title: a file's name, with or without its ending."""
    if named.names(label):
        return True
    for name in NAMED_FILE.findall(label)[:MAX_FILES]:
        stem = name.rpartition(".")[0]
        if named.names(name) or (len(stem) >= MIN_STEM and named.names(stem)):
            return True
    return False


def _meant(sections: Sequence[PlaceSection], named: NamedPlaces) -> Iterator[PlaceSection]:
    """Yields sections with lines that the question may mean: of sheets and files that it names, else the first."""
    counted = [each for each in sections if each.kind in COUNTED]
    for kinds in (("sheet",), ("file",)):
        own = [each for each in counted if each.kind in kinds and is_named(each.kind, each.name, named)]
        if own:
            yield from own
            return
    files = {each.file for each in sections if named.names(each.file.rpartition("/")[2])}
    counted = [each for each in counted if each.file in files] if files else counted
    if len({(each.file, _sheet(each)) for each in counted}) <= MAX_FILES:
        yield from counted


def _sheet(section: PlaceSection) -> str:
    found = places.SHEET.match(section.name) if section.kind == "sheet" else None
    return found[1] if found else ""


def is_named(kind: str, name: str, named: NamedPlaces) -> bool:
    """Returns whether the question names the place of a marker: a page by its number, a sheet or file by its name."""
    if kind in places.NUMBERED:
        return name.isdecimal() and (kind, int(name)) in named.numbered
    sheet = places.SHEET.match(name) if kind == "sheet" else None
    return named.names_place(kind, sheet[1] if sheet else name.rpartition("/")[2])


def _of_named_texts(corpus: SourceCorpus, named: NamedPlaces, scores: Scores) -> Scores | None:
    """Returns the scores, only those of texts named by title if any of them score; None if all are 0."""
    if not scores.any():
        return None
    if len(corpus.sources) > 1:
        own = np.array([is_label_named(source.label, named) for source in corpus.sources], bool)[corpus.source_of]
        if (scores * own).any():
            scores = np.where(own, scores, 0.0)
    return scores


SPEAKER = re.compile(r"(?:\[[^\]\n]{1,60}\] ?)?([^\W\d_][\w.'-]{0,30}(?: [^\W\d_][\w.'-]{0,30}){0,2}): ")
"""The beginning of a turn in a chat log: perhaps a time in brackets, then the speaker's name."""
MIN_SPEAKERS = 0.5
"""Fraction of the turns that must name a speaker: a single line that begins with a word and a colon is no chat log."""
OTHERS_SHARE = 0.2
"""Weight of turns of speakers other than the person whom the question names. Tuned (ADR 11)."""


def speaker_weights(corpus: SourceCorpus, question: str) -> Scores | None:
    """Returns for each chunk 1, or `OTHERS_SHARE` if it is a turn of a speaker whom the question does not name. None if
    the question names none of the speakers, or all of them."""
    names = [speaker(source) for source in corpus.sources]
    turns = [source.kind == "turn" for source in corpus.sources]
    known = {name for name in names if name}
    if sum(name != "" for name in names) < max(1, MIN_SPEAKERS * sum(turns)) or len(known) < 2:
        return None
    asked = {word.lower() for word in SEARCHED_WORD.findall(question)}
    named = {name for name in known if asked & {word.lower() for word in SEARCHED_WORD.findall(name) if len(word) > 1}}
    if not named or named == known:
        return None
    by_source = [OTHERS_SHARE if turn and name not in named else 1.0 for turn, name in zip(turns, names, strict=True)]
    each: Scores = np.array(by_source)[corpus.source_of]
    return each


def speaker(source: SearchedSource) -> str:
    """Returns the speaker of a turn: the message's `name`, or the name that begins its text; empty without either."""
    if source.kind != "turn":
        return ""
    _, _, name = source.label.partition(" ")
    if name:
        return name
    found = SPEAKER.match(source.content)
    return found[1] if found else ""


QUOTED = re.compile(r'"([^"\n]{3,200})"|“([^”\n]{3,200})”|`([^`\n]{3,200})`|(?<!\w)\'([^\'\n]{3,200})\'(?!\w)')
MAX_QUOTED_PLACES = 200
"""Occurrences of a quotation that are examined in one text; one with more identifies no passage."""


def quotation_scores(corpus: SourceCorpus, question: str) -> Scores:
    """Returns for each chunk the rarity of the question's quotations that begin in it; longer ones count more. They are
    searched as written, except for case: stop words and signs matter here."""
    scores = np.zeros(corpus.count)
    quotations = {next(filter(None, groups)).strip().lower() for groups in QUOTED.findall(question)}
    texts = [source.content.lower() for source in corpus.sources] if quotations else []
    for quotation in sorted(quotations):
        pattern = re.compile(re.escape(quotation))
        chunks = sorted(
            {
                corpus.chunk_at(number, match.start())
                for number, text in enumerate(texts)
                if corpus.indexes[number].chunks and len(text) == len(corpus.sources[number].content)
                for match in islice(pattern.finditer(text), MAX_QUOTED_PLACES)
            }
        )
        if chunks:
            scores[chunks] += rarity(np.array([len(chunks)]), corpus.count)[0] * np.log2(2 + len(quotation.split()))
    return scores


PRONOUN = re.compile(
    r"\b(?:it|its|it's|that|this|these|those|they|them|their|he|him|his|she|her|hers|there)\b", re.IGNORECASE
)
ORDINAL = "first|second|third|last|next|previous|other|same|former|latter|above"
POINTING = re.compile(
    rf"\b(?:(?:that|this|the|the (?:{ORDINAL})) ones?|these|those|the (?:former|latter|same|above)|as (?:above|before)"
    rf"|(?:the|its|their) (?:{ORDINAL})(?=\s*(?:[?.!,;]|$)))",
    re.IGNORECASE,
)
"""Words that refer to earlier messages even if the question names something itself."""
RECENT = 6
"""Messages before the question from which a pronoun borrows terms."""
RECENT_CHARS = 4000
"""Characters read of each of them: a pronoun refers to the beginning of a message more often than to its end."""
EXCHANGE = 2
"""The latest messages, which mostly hold what a pronoun means."""
FADING = 0.6
"""Weight of a message's terms as a fraction of those of the next later one. Tuned (ADR 11)."""
MAX_BORROWED = 24
"""Limit of borrowed terms, so that they do not outnumber those of the question."""
SHORT_QUESTION = 8
"""A question with fewer terms that names nothing is taken for a follow-up."""
BORROWED_WEIGHT = {IDENTIFIER: 1.0, NAME: 0.7, NUMBER: 0.5, PLAIN: 0.15}
"""Weight of a borrowed term by its kind: pronouns stand for things that have a name. Tuned (ADR 11)."""
PIECE_WEIGHT = 0.3


def borrowed_terms(question: str, recent: Sequence[str], lexicon: TermLexicon) -> dict[str, float]:
    """Returns terms of the latest messages that the question's pronouns may stand for, with their weights.

    Empty if the question refers to nothing outside itself: it has no pronoun, or one that stands for a name in it.
    `recent`: the messages before the question, latest last."""
    own = lexicon.question(question)
    names_nothing = not _names(question, lexicon) and len(own) < SHORT_QUESTION
    if not (names_nothing or _refers_back(question, lexicon)):
        return {}
    found: dict[str, float] = {}
    for age, text in enumerate(reversed(recent[-RECENT:])):
        for term, kind in lexicon.question(text[:RECENT_CHARS]):
            weight = BORROWED_WEIGHT.get(kind, PIECE_WEIGHT) * FADING**age
            found[term] = max(found.get(term, 0.0), weight)
    for term, _ in own:
        found.pop(term, None)
    return dict(sorted(found.items(), key=lambda item: -item[1])[:MAX_BORROWED])


def named_before(question: str, recent: Sequence[str], lexicon: TermLexicon) -> Terms:
    """Returns the names and identifiers of the latest exchange, one of which a pronoun of the question stands for; none
    if the question has no such pronoun, and words of its own."""
    if lexicon.question(question) and not _refers_back(question, lexicon):
        return []
    found = [term for text in recent[-EXCHANGE:] for term in lexicon.question(text[:RECENT_CHARS])]
    return [term for term in found if term[1] in (IDENTIFIER, NAME)]


def _refers_back(question: str, lexicon: TermLexicon) -> bool:
    """Returns whether a pronoun stands for nothing in the question itself: `his` after a name means that name."""
    first = PRONOUN.search(question)
    if first is None or POINTING.search(question):
        return first is not None
    return not _names(question[: first.start()], lexicon)


def _names(text: str, lexicon: TermLexicon) -> bool:
    """Returns whether the text names a person or thing. The first word is capitalised in any case, and words in
    capitals (`ZIP`, `URL`) mostly are what is asked for."""
    rest = " ".join(word for word in text.split()[1:] if not (word.isalpha() and word.isupper()))
    return any(kind in (IDENTIFIER, NAME, NUMBER) for _, kind in lexicon.question(rest))


RESPELT_LETTERS = range(5, 25)
"""Letters of words that are respelt. Most shorter words are one letter away from another word; longer ones are data."""
MAX_RESPELT = 6
"""Words of a question that are respelt. A question with more that no text holds is about something else."""


def respelt(corpus: SourceCorpus, question: str) -> str:
    """Returns the question with each word that no text holds, but for one slip of the keyboard, as the texts spell it:
    `Ghandi` is `gandhi`. The first letter counts as right."""
    words = [word for word in SEARCHED_WORD.findall(question) if len(word) in RESPELT_LETTERS]
    searched = list(dict.fromkeys(words))[:MAX_QUESTION_TERMS]
    plain = [w for w in searched if w.isascii() and w.isalpha() and len(corpus.lexicon.unstemmed(w)) == 1]
    absent = [word for word, times in zip(plain, _occurrences(corpus, plain), strict=True) if not times][:MAX_RESPELT]
    slips = {word: _slips(word.lower()) for word in absent}
    every = list(dict.fromkeys([slip for each in slips.values() for slip in each]))
    times_of = dict(zip(every, _occurrences(corpus, every), strict=True))
    for word, each in slips.items():
        if found := [(times_of[slip], -len(slip), slip) for slip in each if times_of[slip]]:
            spelling = max(found)[-1]
            question = re.sub(rf"\b{word}\b", spelling.capitalize() if word[0].isupper() else spelling, question)
    return question


def _occurrences(corpus: SourceCorpus, words: Sequence[str]) -> list[int]:
    """Returns how often each of these ASCII words occurs, in texts or their labels."""
    if not words:
        return []
    stems = corpus.lexicon.stems([word.lower() for word in words])
    distinct = list(dict.fromkeys(stems))
    found = np.bincount(corpus.seek(distinct).terms, minlength=len(distinct)) + corpus.labels(distinct).sum(0)
    times = dict(zip(distinct, found.tolist(), strict=True))
    return [times[stem] for stem in stems]


def _slips(word: str) -> list[str]:
    """Returns the words from which one slip leads to this one: a letter too much, missing, replaced or moved."""
    inner, places_in = range(1, len(word)), range(1, len(word) + 1)
    less = [word[:at] + word[at + 1 :] for at in inner]
    more = [word[:at] + letter + word[at:] for at in places_in for letter in ascii_lowercase]
    replaced = [word[:at] + letter + word[at + 1 :] for at in inner for letter in ascii_lowercase]
    moved = [rest[:to] + word[at] + rest[to:] for at, rest in zip(inner, less, strict=True) for to in inner]
    return [*less, *more, *replaced, *moved]


LARGE_TEXT_CHARS = 4_000_000
"""Characters from which a text is scanned by regions: an index of so many takes half a second and 100 MB."""
SEARCHED_CHARS = 2_000_000
"""Characters of the best regions that are searched closely: ten times as many as a large window holds."""
LONG_STEM = 5
"""Letters from which a stem is searched without its last one, which differs in some forms: `battery`, `batteries`."""

Search = Callable[[Sequence[SearchedSource]], list[list[RankedPassage]]]


def is_large(source: SearchedSource) -> bool:
    """Returns whether the source's text is scanned by regions."""
    return len(source.content) >= LARGE_TEXT_CHARS


def search_by_regions(
    search: Search, query: RelevanceQuery, sources: Sequence[SearchedSource]
) -> list[list[RankedPassage]]:
    """Returns the passages of each source, scored by `search` as one corpus; for a large text those of its best
    regions, and every other region as one passage of score 0."""
    needles, named = _needles(query), places_named(query.question)
    each = [_parts(source, needles, named) if is_large(source) else [(source, 0, 0)] for source in sources]
    found = iter(search([part for parts in each for part, _, _ in parts]))
    return [
        list(_joined(parts, found, len(source.content))) if is_large(source) else next(found)
        for source, parts in zip(sources, each, strict=True)
    ]


def _needles(query: RelevanceQuery) -> dict[str, float]:
    """Returns the beginnings of the words to search for, with their weights."""
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
    """Returns the best regions as sources of their own: each with its first character in the text, and the length of
    the heading that precedes it (markers, or a table's first row). Lines are counted in the whole text."""
    text = source.content
    header = "" if places.is_marked(text) else _first_row(text)
    markers = MarkerHeadings(text) if places.is_marked(text) else None
    parts = []
    lines = lines_named(named, source, alone=True)
    wanted = [*lines, *numbered_named(named, text)]
    for start, end in _merged(_best(text, needles, wanted)):
        above = markers.above(start) if markers else header if start > 0 else ""
        by = len(above) - start
        own = tuple((max(low, start) + by, min(high, end) + by) for low, high in lines if low < end and high > start)
        parts.append((replace(source, content=above + text[start:end], named=own), start, len(above)))
    return parts


def _best(text: str, needles: dict[str, float], named: Sequence[Span] = ()) -> list[Span]:
    """Returns the regions that share most words with the question, in order; the first, the last, and those in which a
    place begins that it names are always included."""
    regions = list(places.region_spans(text))
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
    """Yields the spans in order, adjacent ones merged."""
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
    """Returns the first row of a table, which names the columns; "" for other texts."""
    end = text.find("\n") + 1
    if not 0 < end < places.REGION_CHARS or structured.separator_of(text, 0, places.REGION_CHARS) is None:
        return ""
    return text[:end]


def _joined(
    parts: Sequence[tuple[SearchedSource, int, int]], found: Iterator[list[RankedPassage]], length: int
) -> Iterator[RankedPassage]:
    """Yields the passages of all parts by their place in the whole text, and passages of score 0 between the parts."""
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
    return (RankedPassage(at, min(end, at + places.REGION_CHARS), 0.0) for at in range(start, end, places.REGION_CHARS))
