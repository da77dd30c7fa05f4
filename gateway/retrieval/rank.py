"""Scores the passages of texts by their relevance to a question.

It also ranks the records that a superlative asks for: those with the highest or lowest value of a field (`most
expensive`: the highest price, cost, fare …).
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.core.frozen_records import record
from gateway.core.types.relevance import RankedPassage, RelevanceQuery, SearchedSource
from gateway.retrieval.chunks.split import fields_of, passages
from gateway.retrieval.corpus import (
    DAMPING,
    IDENTIFIER,
    NAME,
    SHORT_TEXT_CHARS,
    ContentIndex,
    Numbers,
    Scores,
    SourceCorpus,
    TermLexicon,
    TermRanking,
    Terms,
    fuse,
    index_texts,
    lexical,
    numbers_of,
    rarity,
    run_places,
    saturated,
    share_held,
)
from gateway.retrieval.named_places import ENGLISH, GERMAN, places_named
from gateway.retrieval.question import (
    borrowed_terms,
    line_scores,
    named_before,
    place_scores,
    quotation_scores,
    respelt,
    speaker_weights,
)

# Parses values of records as numbers: amounts with units, sizes, durations, dates.

DIGIT = re.compile(r"\d")
AMOUNT = re.compile(r"^\s*[~<>≈]?\s*[$€£¥₹]?\s*([+-]?\d[\d,_ ]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-zµ%°$€£]{0,8})")
DATE = re.compile(r"^\s*(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2}))?)?")
SLASHED = re.compile(r"^\s*(\d{1,2})/(\d{1,2})/(\d{4})\b")
_MONTH = r"([A-Z][a-z]{2})[a-z]*\.?"
WORDED = re.compile(rf"^\s*{_MONTH} (\d{{1,2}}),? (\d{{4}})\b|^\s*(\d{{1,2}}) {_MONTH} (\d{{4}})\b")
DURATION_VALUE = re.compile(r"^\s*(?:(\d+)\s*h(?:ours?|rs?)?)\s*(?:(\d+)\s*m(?:in(?:utes?)?)?)?\s*$")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_UNITS = {
    1e3: "k thousand kb km",
    1e6: "m mn million mb",
    1e9: "b bn billion gb",
    1e12: "tb",
    2.0**10: "kib",
    2.0**20: "mib",
    2.0**30: "gib",
    1e-6: "mg",
    1e-3: "ms mm g",
    1e-2: "cm",
    1.0: "s sec seconds kg",
    60.0: "min mins minutes",
    3600.0: "h hours",
    86400.0: "days",
}
UNIT_FACTORS = {unit: factor for factor, units in _UNITS.items() for unit in units.split()}
"""Factors to one base unit (second, metre, kilogram, byte). `m` and `b` mean million and billion, as for money."""
DAY = 86400.0
MAX_VALUE_CHARS = 60
"""A longer value is text, whatever it begins with."""


def quantity(value: Any) -> float | None:
    """Parses a value as a number that is comparable within one field, dates in seconds; None if it is no quantity."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    return _of_text(value) if isinstance(value, str) and len(value) < MAX_VALUE_CHARS else None


def _of_text(text: str) -> float | None:
    if DIGIT.search(text) is None:
        return None
    try:
        moment = _moment(text)
    except ValueError:
        return None
    if moment is not None:
        return moment
    if duration := DURATION_VALUE.match(text):
        return int(duration[1]) * 3600.0 + int(duration[2] or 0) * 60.0
    found = AMOUNT.match(text)
    if found is None:
        return None
    return float(re.sub(r"[,_ ]", "", found[1])) * UNIT_FACTORS.get(found[2].lower(), 1.0)


def _moment(text: str) -> float | None:
    """Returns the seconds of a date; None if the text is none. Raises ValueError: there is no such day."""
    if found := DATE.match(text):
        year, month, day, hour, minute, second = (int(group or 0) for group in found.groups())
        return date(year, month, day).toordinal() * DAY + hour * 3600 + minute * 60 + second
    if found := SLASHED.match(text):
        first, other, year = map(int, found.groups())
        month, day = (other, first) if first > 12 else (first, other)
        return date(year, month, day).toordinal() * DAY
    if found := WORDED.match(text):
        name, day_of, in_year = (found[1], found[2], found[3]) if found[1] else (found[5], found[4], found[6])
        if name.lower() in MONTHS:
            return date(int(in_year), MONTHS.index(name.lower()) + 1, int(day_of)).toordinal() * DAY
    return None


MOST, LEAST = 1, -1
"""Directions: the highest or the lowest value."""
IRREGULAR = {"best": "good", "worst": "bad", "farthest": "far", "furthest": "far", "latest": "late", "eldest": "old"}
ALONE = {"maximum": MOST, "max": MOST, "biggest": MOST, "minimum": LEAST, "min": LEAST, "fewest": LEAST}
ALONE |= {"greatest": MOST, "highest": MOST, "largest": MOST, "lowest": LEAST, "smallest": LEAST, "most": MOST}
ALONE |= {"least": LEAST, "top": MOST}
"""Superlatives of any field: `highest salary`, `fewest errors`."""
EST = re.compile(r"\b(\w{2,})est\b", re.IGNORECASE)
MORE = re.compile(r"\b(most|least)\s+(?:\w+ly\s+)?(\w+)", re.IGNORECASE)
QUESTION_WORD = re.compile(r"\w+")


@record
class SuperlativeQuestion:
    """A question for the highest (1) or lowest (-1) value of a field.

    `fields` are words in the names of fields with the direction of each, the likeliest first. `direction` applies to a
    field that the question itself names.
    """

    fields: tuple[tuple[str, int], ...]
    direction: int


def superlative(question: str) -> SuperlativeQuestion | None:
    """Finds the first superlative of a question; None if it has none."""
    known = superlative_fields()
    for match in MORE.finditer(question):
        fields = known.get(match[2].lower())
        if fields:
            sign = MOST if match[1].lower() == "most" else LEAST
            return SuperlativeQuestion(tuple((name, each * sign) for name, each in fields), fields[0][1] * sign)
    for word in QUESTION_WORD.findall(question.lower()):
        if base := IRREGULAR.get(word) or _base(word):
            return SuperlativeQuestion(known[base], ALONE.get(word, known[base][0][1]))
        if word in ALONE:
            return SuperlativeQuestion((), ALONE[word])
    return None


def _base(word: str) -> str | None:
    """Returns the adjective of the table from which a word in -est is formed."""
    found = EST.fullmatch(word)
    if found is None:
        return None
    stem = found[1]
    spellings = (stem, stem + "e", re.sub("i$", "y", stem), re.sub(r"(.)\1$", r"\1", stem))
    return next((base for base in spellings if base in superlative_fields()), None)


@cache
def superlative_fields() -> dict[str, tuple[tuple[str, int], ...]]:
    """Returns for each adjective the words in the names of its fields, with the direction of each, the likeliest
    first."""
    found = {}
    for adjectives, names in _told("superlatives.txt"):
        sign, fields = MOST, []
        for name in names.split():
            sign = LEAST if name.startswith("-") else sign
            fields.append((name.removeprefix("-"), sign))
        found.update(dict.fromkeys(adjectives.split(), tuple(fields)))
    return found


def _told(table: str) -> Iterator[tuple[str, str]]:
    """Yields the rows of a table beside this module: names, and what they stand for."""
    for line in Path(__file__).with_name(table).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            names, _, members = line.partition("|")
            yield names, members


FIRST = 5
"""Records of each text that are ranked: more than one, for ties and for fields of another meaning."""
LIKELY = 0.7
"""Minimum worth of a text's field, as a fraction of the best text's."""
MIN_FILLED = 0.2
"""Fraction of a text's records that must have a comparable value in the field."""
NAMED_WORTH = 3.0
"""Worth of a field that the question names; a third if it names only the objects around the field."""
FIELD_WORTH, FADING = 2.0, 0.15
"""Worth of the likeliest field of the superlative, and how much less each following one is worth."""
LABEL_WORTH = 0.5
"""Added if the question names the source, such as `list_lakes`."""
NO_QUANTITIES = frozenset(["id", "zip", "phone"])
"""Names of fields whose numbers have no meaningful order."""


@record
class _FieldRecord:
    """A record's chunks, and its values by the names of their fields (`stop price`)."""

    chunks: list[int]
    fields: list[tuple[str, Any]]


def superlative_scores(corpus: SourceCorpus, question: str) -> Scores | None:
    """Scores the chunks of the records with the highest or lowest values, alternating between all likely texts: first
    the best record of each, then the second. None if the question has no superlative or no text has such a field."""
    asked = superlative(question)
    if asked is None:
        return None
    words = frozenset(term for term, _ in corpus.lexicon.question(question))
    found: list[tuple[float, int, list[list[int]]]] = []
    for number, source in enumerate(corpus.sources):
        records = _records(corpus, number) if source.kind == "artifact" else []
        best = _best_field(records, asked, words, corpus.lexicon)
        if best:
            worth, name, sign = best
            label = frozenset(term for term, _ in corpus.lexicon.question(source.label))
            worth += LABEL_WORTH * bool(words & label)
            found.append((worth, number, _extreme(corpus, records, name, sign)))
    if not found:
        return None
    least = LIKELY * max(worth for worth, _, _ in found)
    likely = [chunks for worth, _, chunks in sorted(found, key=lambda f: (-f[0], -f[1])) if worth >= least]
    scores = np.zeros(corpus.count)
    score = float(FIRST * len(likely))
    for turn in zip_longest(*likely, fillvalue=[]):
        for chunks in turn:
            scores[chunks] = np.maximum(scores[chunks], score)
            score -= 1
    return scores


def _records(corpus: SourceCorpus, source: int) -> list[_FieldRecord]:
    content, chunks, begin = corpus.sources[source].content, list(corpus.indexes[source].chunks), corpus.begins[source]
    if len(content) <= SHORT_TEXT_CHARS:  # one chunk, whose records are separated only here
        firsts = {chunk.record: chunk for chunk in reversed(passages(content)) if chunk.ordinal >= 0}
        return [_FieldRecord([int(begin)], fields_of(content, chunk)) for chunk in firsts.values()]
    return [_FieldRecord(numbers, fields_of(content, chunks[numbers[0] - begin])) for numbers in corpus.records(source)]


def _best_field(
    records: Sequence[_FieldRecord], asked: SuperlativeQuestion, words: frozenset[str], lexicon: TermLexicon
) -> tuple[float, str, int] | None:
    """Returns worth, name and direction of the field that is asked for; None if the records have no such field."""
    best: tuple[float, str, int] | None = None
    likely = [(term, sign) for word, sign in asked.fields for term, _ in lexicon.question(word)[:1]]
    for name in dict.fromkeys(name for each in records for name, _ in each.fields):
        own = name.rpartition(" ")[2]
        if own.lower() in NO_QUANTITIES:
            continue
        own_terms, path = ({term for term, _ in lexicon.question(each)} for each in (own, name))
        place = next((place for place, (term, _) in enumerate(likely) if term in path), None)
        worth, sign = (0.0, asked.direction) if place is None else (FIELD_WORTH - FADING * place, likely[place][1])
        if words & own_terms:
            worth += NAMED_WORTH * len(words & own_terms) / len(own_terms)
        elif words & path:
            worth += NAMED_WORTH / 3
        if worth and (best is None or worth > best[0]) and _is_filled(records, name):
            best = worth, name, sign
    return best


def _is_filled(records: Sequence[_FieldRecord], name: str) -> bool:
    """Returns whether enough of the records have a comparable value of that name."""
    filled = sum(any(each == name and quantity(v) is not None for each, v in record.fields) for record in records)
    return filled >= max(2, MIN_FILLED * len(records))


def _extreme(corpus: SourceCorpus, records: Sequence[_FieldRecord], name: str, sign: int) -> list[list[int]]:
    """Returns for each of the records with the most extreme values its first chunk and the one that holds the value."""
    found = []
    for entry in records:
        values = [(n * sign, v) for each, v in entry.fields if each == name and (n := quantity(v)) is not None]
        if values:
            found.append((*max(values, key=lambda value: value[0]), entry))
    found.sort(key=lambda each: -each[0])
    return [_holding(corpus, entry, name, value) for _, value, entry in found[:FIRST]]


def _holding(corpus: SourceCorpus, record: _FieldRecord, name: str, value: Any) -> list[int]:
    """Returns a record's first chunk, and the first later one that holds a value after its name."""
    pair = re.compile(re.escape(name.rpartition(" ")[2]) + r'"?\s*[:=]\s*"?' + re.escape(str(value)))
    return record.chunks[:1] + [chunk for chunk in record.chunks[1:] if pair.search(corpus.text_of(chunk))][:1]


# Finds turns about a topic that the question names: a question about pets is answered by "we have a puppy".


@cache
def topics() -> dict[int, Numbers]:
    """Returns for each term that names a topic the terms with which people speak of it, as sorted numbers."""
    lexicon = TermLexicon()
    found: dict[int, set[int]] = {}
    for sides in _told("topics.txt"):
        names, members = (numbers_of(lexicon.question(side)).tolist() for side in sides)
        for name in names:
            found.setdefault(name, set()).update(members)
    return {name: np.array(sorted(members), np.int64) for name, members in found.items()}


def topic_scores(corpus: SourceCorpus, question: Terms) -> Scores | None:
    """Returns a BM25 score for each turn of a conversation, in which all words of a topic count as one term.

    Only turns are scored: records name their contents by fields, and a document mostly holds the topic's own name. None
    if the question names no topic or no turn speaks of it."""
    asked = numbers_of(question)
    groups = [np.setdiff1d(topics()[n], asked) for n in dict.fromkeys(asked.tolist()) if n in topics()]
    is_turn = corpus.is_turn
    if not groups or not is_turn.any():
        return None
    members = np.unique(np.concatenate(groups))
    hits = corpus.find(members)
    scores = np.zeros(corpus.count)
    for group in groups:
        chunks = hits.chunks[np.isin(hits.terms, np.searchsorted(members, group))]
        counts = np.where(is_turn, np.bincount(chunks, minlength=corpus.count), 0.0)
        worth = rarity((counts > 0).sum(keepdims=True), int(is_turn.sum()))
        scores += worth * saturated(counts, corpus.lengths / max(1.0, float(corpus.lengths[is_turn].mean())))
    return scores if scores.any() else None


FAILURE_ASKED = re.compile(
    r"\b(?:fail\w*|errors?|exceptions?|crash\w*|abort\w*|(?:went|goes|gone|going) wrong|what'?s? (?:is |was )?wrong"
    r"|(?:doesn|didn|won|isn|not)(?:'?t)? (?:\w+ )?(?:work|start|build|compile|run)\w*|fehler\w*|schief\w*)\b",
    re.IGNORECASE,
)
FAULT_WORDS = re.compile(
    r"(?:\b|\x1b\[[0-9;]{0,20}m|\\u001b\[[0-9;]{0,20}m)(?:[A-Za-z_]{0,60}(?:error|exception)s?|traceback|fatal|panic"
    r"|fail(?:ed|ures?|ing)?|panicked|segmentation fault|segfault|critical|aborted|denied|timed out|killed)\b",
    re.IGNORECASE,
)
"""Words that report a fault, also behind a terminal's colours."""
MAX_FAULTS = 20_000
"""Words of one text that are examined."""


def fault_scores(corpus: SourceCorpus, question: str) -> Scores | None:
    """Returns a BM25 score for each chunk of a tool result or document that reports a fault, all words for one counting
    as one term: `why did it fail` shares no word with `ERROR: disk full`. None if the question asks for no fault, or
    nothing reports one."""
    if FAILURE_ASKED.search(question) is None:
        return None
    counts = np.zeros(corpus.count)
    for number, source in enumerate(corpus.sources):
        if source.kind == "artifact":
            for found in islice(FAULT_WORDS.finditer(source.content), MAX_FAULTS):
                counts[corpus.chunk_at(number, found.start())] += 1
    if not counts.any():
        return None
    worth = rarity((counts > 0).sum(keepdims=True), corpus.count)
    scores: Scores = worth * saturated(counts, corpus.lengths / max(1.0, float(corpus.lengths.mean())))
    return scores


# Finds positions that a question asks for: `the third entry`, `your first tool call`, `row 12`, `die letzte Zeile`,
# `how does it begin`.

LAST = -1
ORDINAL_NOUN = re.compile(
    r"(?:(?:the|very|your|my|our|its)\s+)*"
    r"(?P<ordinal>(?:(?:second|third|next)[- ]to[- ]last|penultimate|" + "|".join(ENGLISH) + r"|\d{1,7}(?:st|nd|rd|th)"
    r"|last|final|latest|most recent|(?:" + "|".join(GERMAN) + r"|(?:vor)?letzte)[rnsm]?)\b"
    r"|\d{1,7}\.(?=\s+(?:zeile|reihe|eintrag|datensatz|absatz|satz|treffer)\b))"
    r"(?:\s+(?:single|data|full|complete|recorded|listed|returned))*\s+(?P<nouns>\w+(?:\s+\w+)?)",
    re.IGNORECASE,
)
NOUN_NUMBER = re.compile(
    r"\b(?P<nouns>(?:tool )?\w+)\s+(?:number\s+|no\.?\s*|nummer\s+|nr\.?\s*|#\s*)?(?P<ordinal>\d{1,7})\b", re.IGNORECASE
)
_NOUNS = """
call tool step output response command run invocation action toolcall
document attachment file page upload result search query request report
entry item row record line element object hit match result paragraph section sentence
entries items rows records lines elements objects hits matches results
zeile zeilen reihe eintrag einträge datensatz datensätze treffer absatz satz
"""
_CALLS, _TEXTS, *_RECORDS = _NOUNS.strip().splitlines()
CALLS, TEXTS, RECORDS = frozenset(_CALLS.split()), frozenset(_TEXTS.split()), frozenset(" ".join(_RECORDS).split())
LINE_NOUNS = frozenset(["line", "lines", "zeile", "zeilen"])
BEGIN = re.compile(r"\b(?:begins?|beginning|starts?\s+with|start|opens?\s+with|at the top|top of)\b", re.IGNORECASE)
END_WORDS = re.compile(r"\b(?:ends?\s+with|ends?|at the bottom|bottom of|at the end|tail)\b", re.IGNORECASE)
_TOOL_WORDS = """
read open opened view viewed cat see saw show showed look looked load loaded
search searched grep find found query queried look looked
run ran execute executed bash shell command exec test tested
edit edited write wrote written change changed patch replace create created
fetch fetched visit visited browse browsed download downloaded get got web
"""
TOOL_WORDS = tuple(frozenset(line.split()) for line in _TOOL_WORDS.strip().splitlines())
"""Words of one line mean the same kind of tool: `the first file you opened` is the first result of `read_file`."""
RANK_WORD = re.compile(r"[A-Za-z]+")
FOLLOWING = 2
"""Further records ranked after the one that is asked for: people do not all count from the same line."""


@record
class NamedPosition:
    """The numbers of the text, and of the record in it, that a question asks for: from 0 on, from the end if negative
    (-1: the last), None if not stated.

    `noun` is the word for the text (`grep`, `file`, `call`). `by_lines`: the record is a line. `edge`: the record is
    whatever the text begins or ends with.
    """

    text: int | None = None
    record: int | None = None
    noun: str = ""
    by_lines: bool = False
    edge: bool = False


def position_scores(corpus: SourceCorpus, question: str) -> Scores | None:
    """Scores the chunks at the position that the question asks for; None if it asks for none."""
    artifacts = [i for i, source in enumerate(corpus.sources) if source.kind == "artifact"]
    artifacts.sort(key=lambda i: corpus.sources[i].number)
    labels = {i: corpus.sources[i].label.partition(" ")[0].lower() for i in artifacts}
    tools = {i: frozenset(RANK_WORD.findall(label)) for i, label in labels.items()}
    asked = position(question, frozenset().union(*tools.values()))
    if asked is None or not artifacts:
        return None
    if asked.text is None:  # all texts that the current turn fetched, else the latest one
        sources = [i for i in artifacts if not corpus.sources[i].historical] or artifacts[-1:]
    else:
        among = _of_tool(asked.noun, question, artifacts, tools)
        if not -len(among) <= asked.text < len(among):
            return None
        sources = [among[asked.text]]
    scores = np.zeros(corpus.count)
    for source in sources:
        chunks = _chunks(corpus, source, asked)
        scores[chunks] = np.arange(len(chunks), 0, -1)
    return scores


def position(question: str, tools: frozenset[str]) -> NamedPosition | None:
    """Finds the position that a question asks for; None if it asks for none.
    `tools`: words in the names of the tools: `the second grep` is the second text of that tool."""
    text: tuple[int, str] | None = None
    record: tuple[int, str] | None = None
    edge = 0 if BEGIN.search(question) else LAST if END_WORDS.search(question) else None
    for match in (*ORDINAL_NOUN.finditer(question), *NOUN_NUMBER.finditer(question)):
        number, nouns = _number(match["ordinal"].lower()), match["nouns"].lower().split()
        if number is None:
            continue
        is_text = nouns[0] == "result" and (edge is not None or record)
        if nouns[0] in RECORDS and nouns[0] not in tools and not is_text:
            record = record or (number, nouns[0])
        elif noun := next((n for n in nouns if {n, n.removesuffix("s")} & (CALLS | TEXTS | tools)), None):
            text = text or (number, noun)
    if text is None and record is None:
        return None
    at, noun = record or (edge, "")
    is_edge = record is None and edge is not None
    return NamedPosition(text[0] if text else None, at, text[1] if text else "", noun in LINE_NOUNS, is_edge)


def _number(ordinal: str) -> int | None:
    """Returns the index of an ordinal, negative from the end; None for `0th`."""
    if ordinal in ENGLISH:
        return ENGLISH.index(ordinal)
    for number, word in enumerate(GERMAN):
        if ordinal.startswith(word):
            return number
    if ordinal[0].isdigit():
        number = int(re.sub(r"\D", "", ordinal))
        return number - 1 if number else None
    if ordinal.startswith(("penultimate", "vorletzte")) or ordinal.endswith(("to last", "to-last")):
        return -3 if ordinal.startswith("third") else -2
    return LAST


def _of_tool(noun: str, question: str, artifacts: list[int], tools: dict[int, frozenset[str]]) -> list[int]:
    """Returns the texts that are counted: those of the tools named by the noun or the question's verb, else all."""
    single = noun.removesuffix("s")
    if single in CALLS and single != "run":
        return artifacts
    said = set(RANK_WORD.findall(question.lower()))
    meant = [words for words in TOOL_WORDS if said & words]
    by_noun = [i for i in artifacts if {noun, single} & tools[i]] if single not in CALLS else []
    by_verb = [i for i in by_noun or artifacts if any(tools[i] & words for words in meant)]
    return by_verb or by_noun or artifacts


def _chunks(corpus: SourceCorpus, source: int, asked: NamedPosition) -> Sequence[int]:
    """Returns the chunks at that position of a source, the one that is asked for first."""
    every = range(int(corpus.begins[source]), int(corpus.begins[source + 1]))
    if asked.record is None or not every:
        return every[: 1 + FOLLOWING]
    units: Sequence[int] = every
    if asked.by_lines:
        return _of_lines(corpus, source, asked.record)
    elif not asked.edge:
        units = [chunks[0] for chunks in corpus.records(source)] or every
    at = asked.record if asked.record >= 0 else len(units) + asked.record
    if not 0 <= at < len(units):
        return []
    found = units[at : at + 1 + FOLLOWING]
    if asked.record > 0 and corpus.chunk(units[at]).kind == "row":
        found = [*found, units[at - 1]]  # some people count a table's header as its first row
    return list(dict.fromkeys(found))


def _of_lines(corpus: SourceCorpus, source: int, record: int) -> Sequence[int]:
    """Returns the chunks of a line and of those that follow it, looking up only these few lines."""
    content = corpus.sources[source].content
    starts = [0, *(found.end() for found in re.finditer("\n", content))]
    at = record if record >= 0 else len(starts) + record
    if not 0 <= at < len(starts):
        return []
    return list(dict.fromkeys(corpus.chunk_at(source, start) for start in starts[at : at + 1 + FOLLOWING]))


# Follows what the best passages name to other passages: an order's customer, a film's director.

MAX_TERM_HOLDERS = 12
"""An identifier or a name held by more chunks does not identify a record."""
OTHER_PIECE = 0.5
"""Weight of a piece of a record without its identifier, as a fraction of the piece with it."""


def named_records(corpus: SourceCorpus, terms: Terms, weights: dict[str, float]) -> Scores | None:
    """Scores the chunks that hold a rare identifier or name of the question, and the other pieces of their records:
    first those that hold the most of its other terms. None if there is no such chunk.
    `weights`: of terms; 1 for terms that are not in it."""
    identifiers = list(dict.fromkeys(term for term, kind in terms if kind in (IDENTIFIER, NAME)))
    if not identifiers or not corpus.count:
        return None
    of, chunks, held = _holders(corpus, identifiers)
    worth = rarity(held, corpus.count) * np.array([weights.get(term, 1.0) for term in identifiers])
    rare = held[of] <= MAX_TERM_HOLDERS
    scores = np.zeros(corpus.count)
    for term, chunk in zip(of[rare].tolist(), chunks[rare].tolist(), strict=True):
        scores[chunk] += worth[term]
        others = [other for other in _record_pieces(corpus, chunk) if other != chunk]
        scores[others] = np.maximum(scores[others], OTHER_PIECE * worth[term])
    if not scores.any():
        return None
    rest = [(term, kind) for term, kind in terms if term not in identifiers]
    total: Scores = scores + np.where(scores > 0, lexical(corpus, rest), 0.0)
    return total


def _record_pieces(corpus: SourceCorpus, number: int) -> list[int]:
    """Returns all chunks of the record that a chunk is a piece of; the chunk alone if it belongs to none."""
    mine = corpus.chunk(number)
    source = corpus.source_of[number]
    first, last = number, number + 1
    if mine.ordinal >= 0:
        while first > corpus.begins[source] and corpus.chunk(first - 1).record == mine.record:
            first -= 1
        while last < corpus.begins[source + 1] and corpus.chunk(last).record == mine.record:
            last += 1
    return list(range(first, last))


BEST = 3
"""Passages of the first round that are followed."""
NEARLY = 0.5
"""Minimum score of a passage that is followed, as a fraction of the best."""
MAX_LINKS = 16
"""Identifiers and names that are followed: the rarest."""
MAX_LINKED = 40
"""An identifier or a name held by more chunks links no passages."""
LINK_WORTH = {IDENTIFIER: 1.0, NAME: 0.5}
"""Worth of a link: an identifier means one thing; several people share a name."""
LINKED_WEIGHT, CHAIN_WEIGHT = 0.4, 0.8
"""Weights of the rankings, as fractions of the question's own. Tuned (ADR 11)."""
IN_CONVERSATION = 0.4
"""Fraction of these weights if the best passage is a turn: people name the same few people all the time."""
CHAINED = 3
"""Passages with terms that the best one lacks that are ranked beside the first ones."""


def linked(corpus: SourceCorpus, question: Terms, scores: Scores) -> list[TermRanking]:
    """Returns two rankings of chunks that share rare identifiers and names with the best ones: all such chunks, and the
    few that also hold a term of the question that the best one lacks. Empty if the best ones have no such links."""
    least = NEARLY * scores.max(initial=0.0)
    best = [int(i) for i in np.argsort(-scores, kind="stable")[:BEST] if scores[i] > least]
    asked = {term for term, _ in question}
    worth: dict[str, float] = {}
    kinds: dict[str, int] = {}
    for rank, chunk in enumerate(best, 1):
        for term, kind in corpus.lexicon.question(corpus.text_of(chunk)):
            if kind in LINK_WORTH and term not in asked:
                kinds[term] = kind
                worth[term] = max(worth.get(term, 0.0), LINK_WORTH[kind] / rank)
    links = _useful(corpus, worth, kinds) if worth else []
    if not links:
        return []
    first_terms = corpus.terms[corpus.firsts[best[0]] : corpus.firsts[best[0] + 1]]
    lacking = [each for each, number in zip(question, numbers_of(question), strict=True) if number not in first_terms]
    found = lexical(corpus, links, worth)
    found[best] = 0
    missing = np.where(found > 0, lexical(corpus, lacking), 0.0)
    strict = lexical(corpus, [(term, kind) for term, kind in links if kind == IDENTIFIER], worth)
    chain = np.where((strict > 0) & (missing > 0), strict + missing, 0.0)
    chain[np.argsort(-chain, kind="stable")[CHAINED:]] = 0.0
    weight = IN_CONVERSATION if corpus.is_turn[best[0]] else 1.0
    return [TermRanking(found + missing, weight * LINKED_WEIGHT), TermRanking(chain, weight * CHAIN_WEIGHT)]


def _useful(corpus: SourceCorpus, worth: dict[str, float], kinds: dict[str, int]) -> Terms:
    """Returns the terms that more than one chunk holds, but not many, the rarest first."""
    terms = list(kinds.items())
    _, _, held = _holders(corpus, list(kinds))
    value = rarity(held, corpus.count) * np.array([worth[term] for term in kinds])
    useful = [i for i in np.argsort(-value, kind="stable") if 2 <= held[i] <= MAX_LINKED]
    return [terms[i] for i in useful[:MAX_LINKS]]


def _holders(corpus: SourceCorpus, terms: list[str]) -> tuple[Numbers, Numbers, Numbers]:
    """Returns pairs of a term (its index) and a chunk that holds it, and how many chunks hold each term."""
    hits = corpus.seek(terms)
    cells = np.unique(hits.terms * corpus.count + hits.chunks)
    of = cells // corpus.count
    return of, cells % corpus.count, np.bincount(of, minlength=len(terms))


QUOTATION_WEIGHT = 2.0
"""Weight of a quotation's rarity, as a multiple of that of a term."""
TOPIC_WEIGHT = 0.5
"""Weight of a topic's words, as a fraction of the question's own."""
NAMED_WEIGHT = 1.5
"""Weight of the records that the question names, as a multiple of its own ranking."""
CONTINUED_WEIGHT = 0.15
"""Weight of the passages beside the best ones: they go before those that share only a common word with the question."""
BESIDE_BEST = 0.95
"""Limit of their score, as a fraction of that of the passage that they stand beside."""
THIRD_ROUND = 0.5
"""Weight of a link from results of the second round, as a fraction of one from the first."""
EXACT_WEIGHT = 4.0
"""Weight of the record at the position or with the value that is asked for: before passages that only share words."""
PLACE_WEIGHT = 2.0
"""Weight of a place that the question names: all of it is of use, so its words still decide which passage is first."""
MIN_HELD = 0.3
"""Share of a question's content that a passage must hold for the question to call for it. Chosen by hand."""
CURRENT_WEIGHT = 1.15
"""Weight of results of the current turn, as a multiple of those of older turns."""
NEIGHBOUR_SHARES = (0.3, 0.21, 0.15, 0.09)
"""Fractions of its score that a turn adds to those one, two, three and four turns away: an answer follows its question.
Records, lines and paragraphs add nothing: there a share only displaces better passages (measured).

All weights here are tuned (ADR 11)."""

Indexed = Callable[[Sequence[str], TermLexicon], list[ContentIndex]]
"""Returns the index of each text."""


def relevance(
    query: RelevanceQuery, sources: Sequence[SearchedSource], indexed: Indexed = index_texts
) -> list[list[RankedPassage]]:
    """Returns each source's passages in document order, scored as one corpus (see `core.types.relevance.Relevance`)."""
    lexicon = TermLexicon()
    corpus = SourceCorpus(sources, indexed([source.content for source in sources], lexicon), lexicon)
    asked = query.question
    query = replace(query, question=respelt(corpus, asked))
    ranked = rankings(query, corpus, asked)
    scores = _with_continuations(corpus, ranked[0].scores, fuse(ranked, corpus.count))
    calls = iter(called(query, corpus, ranked).tolist())
    by_speaker = speaker_weights(corpus, query.question)
    each = iter((scores if by_speaker is None else scores * by_speaker).tolist())
    return [
        [RankedPassage(c.start, c.end, next(each), c.heading, next(calls)) for c in index.chunks]
        for index in corpus.indexes
    ]


def rankings(query: RelevanceQuery, corpus: SourceCorpus, asked: str) -> list[TermRanking]:
    """Returns all rankings of the chunks by a query; `fuse` combines them into one. `asked`: the question before words
    that no text holds were respelt, such as `cheapest`."""
    question = corpus.lexicon.question(query.question)
    weights = borrowed_terms(query.question, query.recent, corpus.lexicon)
    terms = question + [(term, 0) for term in weights]
    main = lexical(corpus, terms, weights) + QUOTATION_WEIGHT * quotation_scores(corpus, query.question)
    current = np.array([not source.historical and source.kind == "artifact" for source in corpus.sources], bool)
    main *= np.where(current[corpus.source_of], CURRENT_WEIGHT, 1.0)
    of_topics = topic_scores(corpus, question)
    if of_topics is not None:
        main += TOPIC_WEIGHT * of_topics
    of_faults = fault_scores(corpus, asked)
    if of_faults is not None:
        main += of_faults
    found = [TermRanking(with_neighbours(corpus, main))]
    if of_faults is not None and np.count_nonzero(of_faults) <= MAX_TERM_HOLDERS:
        found.append(TermRanking(of_faults, 0.0, calls=True))
    of_names = named_records(corpus, terms, weights)
    if of_names is not None:
        found.append(TermRanking(of_names, NAMED_WEIGHT, calls=True))
    found += linked(corpus, question, main)
    third = linked(corpus, question, fuse(found, corpus.count)) if len(found) > 1 else []
    found += [TermRanking(each.scores, THIRD_ROUND * each.weight) for each in third]
    named = places_named(asked)
    of_lines = line_scores(corpus, named)
    at_position = position_scores(corpus, asked) if of_lines is None else None
    for exact in (of_lines, at_position, superlative_scores(corpus, asked)):
        if exact is not None:
            found.append(TermRanking(exact, EXACT_WEIGHT, calls=True))
    of_places = place_scores(corpus, named)
    if of_places is not None:
        found.append(TermRanking(of_places, PLACE_WEIGHT, calls=True))
    return found + _of_searches(corpus, query.searches, {term for term, _ in question})


def _with_continuations(corpus: SourceCorpus, own: Scores, scores: Scores) -> Scores:
    """Returns the scores, with more for the passages before and behind the best ones of prose or code, which go on with
    what these begin; never as much as these have."""
    result = scores.copy()
    for rank, best in enumerate(np.argsort(-own, kind="stable")[:BEST].tolist(), 1):
        if own[best] <= 0 or corpus.is_turn[best] or corpus.chunk(best).ordinal >= 0:
            continue
        most = BESIDE_BEST * scores[best]
        for other in (best - 1, best + 1):
            if 0 <= other < corpus.count and corpus.source_of[other] == corpus.source_of[best]:
                more = scores[other] + CONTINUED_WEIGHT / (DAMPING + rank)
                result[other] = max(result[other], min(more, most))
    return result


def called(query: RelevanceQuery, corpus: SourceCorpus, ranked: Sequence[TermRanking]) -> NDArray[np.bool_]:
    """Returns for each chunk whether the query calls for it: it holds a good part of the content of the question or of
    a further search, or of what a pronoun stands for, or it is what they name or point at. Short turns of a
    conversation hold little by themselves, so that a shared word is enough for them."""
    lexicon = corpus.lexicon
    asked = [lexicon.question(text) for text in (query.question, *query.searches)]
    found: NDArray[np.bool_] = corpus.is_turn.copy()
    for terms in asked:
        found |= share_held(corpus, terms) >= MIN_HELD
    names = named_before(query.question, query.recent, lexicon)
    found |= share_held(corpus, names, labels=False) >= MIN_HELD
    for ranking in ranked:
        if ranking.calls:
            found |= ranking.scores > 0
    return found


def with_neighbours(corpus: SourceCorpus, scores: Scores) -> Scores:
    """Returns the scores; each turn gets for every distance a share of the better of the two turns at that distance."""
    found = [i for i, source in enumerate(corpus.sources) if source.kind == "turn"]
    if not found:
        return scores
    result = scores.copy()
    turns = np.array(sorted(found, key=lambda i: corpus.sources[i].number))
    order = run_places(corpus.begins[turns], corpus.begins[turns + 1] - corpus.begins[turns])
    own = scores[order]
    for distance, share in enumerate(NEIGHBOUR_SHARES, 1):
        if distance < len(own):
            before, after = np.zeros(len(own)), np.zeros(len(own))
            before[distance:], after[:-distance] = own[:-distance], own[distance:]
            result[order] += share * np.maximum(before, after)
    return result


def _of_searches(corpus: SourceCorpus, searches: Sequence[str], asked: Collection[str]) -> list[TermRanking]:
    """Returns rankings by further queries, which together weigh as much as the question. A query with no words beyond
    the question's adds nothing and is left out."""
    each = [corpus.lexicon.question(search) for search in searches]
    new = [terms for terms in each if any(term not in asked for term, _ in terms)]
    return [TermRanking(lexical(corpus, terms), 1 / len(new)) for terms in new]
