"""Scores the passages of texts by their relevance to a question."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gateway.core.types.relevance import RankedPassage, RelevanceQuery, SearchedSource
from gateway.retrieval.corpus import (
    ContentIndex,
    Scores,
    SourceCorpus,
    TermRanking,
    fuse,
    index_texts,
    lexical,
    rarity,
    saturated,
    share_held,
)
from gateway.retrieval.in_places import line_scores, place_scores
from gateway.retrieval.named_places import ENGLISH, GERMAN, named_places
from gateway.retrieval.question import borrowed_terms, named_before, quotation_scores, speaker_weights
from gateway.retrieval.superlatives import superlative_scores
from gateway.retrieval.term_ids import Numbers, numbers_of, places
from gateway.retrieval.terms import IDENTIFIER, NAME, TermLexicon, Terms

# Finds talk about a topic that the question names: a question about pets is answered by "we have a puppy".

TOPICS_FILE = Path(__file__).with_name("topics.txt")
"""One topic a line: `words that name it | words in which people speak of it`."""


@cache
def topics() -> dict[int, Numbers]:
    """For each term that names a topic, the terms in which people speak of it, as sorted numbers."""
    lexicon = TermLexicon()
    found: dict[int, set[int]] = {}
    for line in TOPICS_FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            names, members = (numbers_of(lexicon.question(side)).tolist() for side in line.split("|"))
            for name in names:
                found.setdefault(name, set()).update(members)
    return {name: np.array(sorted(members), np.int64) for name, members in found.items()}


def topic_scores(corpus: SourceCorpus, question: Terms) -> Scores | None:
    """A BM25 score for each turn of a conversation, in which all words of a topic count as one term.

    Only turns are scored: records name what they hold by fields, and a document mostly holds the topic's own name.
    None if the question names no topic or no turn speaks of it."""
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


# Answers questions of position: `the third entry`, `your first tool call`, `row 12`, `die letzte Zeile`, `how does it
# begin`.

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
    r"\b(?P<nouns>(?:tool )?\w+)\s+(?:number\s+|no\.?\s*|nummer\s+|nr\.?\s*|#\s*)?(?P<ordinal>\d{1,7})\b",
    re.IGNORECASE,
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
LINES = frozenset(["line", "lines", "zeile", "zeilen"])
BEGIN = re.compile(r"\b(?:begins?|beginning|starts?\s+with|start|opens?\s+with|at the top|top of)\b", re.IGNORECASE)
END = re.compile(r"\b(?:ends?\s+with|ends?|at the bottom|bottom of|at the end|tail)\b", re.IGNORECASE)
_TOOL_WORDS = """
read open opened view viewed cat see saw show showed look looked load loaded
search searched grep find found query queried look looked
run ran execute executed bash shell command exec test tested
edit edited write wrote written change changed patch replace create created
fetch fetched visit visited browse browsed download downloaded get got web
"""
TOOL_WORDS = tuple(frozenset(line.split()) for line in _TOOL_WORDS.strip().splitlines())
"""Words of one line mean the same kind of tool: `the first file you opened` is what `read_file` gave first."""
WORD = re.compile(r"[A-Za-z]+")
LINE_END = re.compile("\n")
FOLLOWING = 2
"""Records after the one that is asked for that are ranked, too: people do not all count from the same line."""


@dataclass(frozen=True, slots=True)
class NamedPosition:
    """Which text, and which record in it, a question asks for: from 0 on, from the end if negative (-1: the last),
    None if it does not say.

    `noun` is the word for the text (`grep`, `file`, `call`). `by_lines`: the record is a line. `edge`: the record is
    whatever the text begins or ends with.
    """

    text: int | None = None
    record: int | None = None
    noun: str = ""
    by_lines: bool = False
    edge: bool = False


def position_scores(corpus: SourceCorpus, question: str) -> Scores | None:
    """Scores of the chunks at the position that the question asks for, None if it asks for none."""
    artifacts = [i for i, source in enumerate(corpus.sources) if source.kind == "artifact"]
    artifacts.sort(key=lambda i: corpus.sources[i].number)
    tools = {i: _tool_words(corpus.sources[i]) for i in artifacts}
    asked = position(question, frozenset().union(*tools.values()))
    if asked is None or not artifacts:
        return None
    if asked.text is None:  # all of what the current turn fetched, else the latest
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
    """The position that a question asks for, None if it asks for none.
    `tools`: words in the names of the tools: `the second grep` is the second text of that tool."""
    text: tuple[int, str] | None = None
    record: tuple[int, str] | None = None
    edge = 0 if BEGIN.search(question) else LAST if END.search(question) else None
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
    return NamedPosition(text[0] if text else None, at, text[1] if text else "", noun in LINES, is_edge)


def _number(ordinal: str) -> int | None:
    """The index that an ordinal stands for, negative from the end; None for `0th`."""
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


def _tool_words(source: SearchedSource) -> frozenset[str]:
    return frozenset(word.lower() for word in WORD.findall(source.label.partition(" ")[0]))


def _of_tool(noun: str, question: str, artifacts: list[int], tools: dict[int, frozenset[str]]) -> list[int]:
    """The texts that are counted: those of the tools that the noun or the question's verb names, else all."""
    single = noun.removesuffix("s")
    if single in CALLS and single != "run":
        return artifacts
    said = set(WORD.findall(question.lower()))
    meant = [words for words in TOOL_WORDS if said & words]
    by_noun = [i for i in artifacts if {noun, single} & tools[i]] if single not in CALLS else []
    by_verb = [i for i in by_noun or artifacts if any(tools[i] & words for words in meant)]
    return by_verb or by_noun or artifacts


def _chunks(corpus: SourceCorpus, source: int, asked: NamedPosition) -> Sequence[int]:
    """The chunks at that position of a source, the one that is asked for first."""
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
        found = [*found, units[at - 1]]  # a table's header is its first row to some
    return list(dict.fromkeys(found))


def _of_lines(corpus: SourceCorpus, source: int, record: int) -> Sequence[int]:
    """The chunks of a line and of those that follow it. Lines are few that are looked up, of however many."""
    content = corpus.sources[source].content
    starts = [0, *(found.end() for found in LINE_END.finditer(content))]
    at = record if record >= 0 else len(starts) + record
    if not 0 <= at < len(starts):
        return []
    return list(dict.fromkeys(corpus.chunk_at(source, start) for start in starts[at : at + 1 + FOLLOWING]))


# Follows what the best passages name to other passages: an order's customer, a film's director.

MAX_HOLDERS = 12
"""Chunks that may hold an identifier or a name for it to say which record is meant."""
OTHER_PIECE = 0.5
"""Weight of a piece of a record that does not hold its identifier, as a fraction of the one that does."""


def named_records(corpus: SourceCorpus, terms: Terms, weights: dict[str, float]) -> Scores | None:
    """Scores of the chunks that hold a rare identifier or name of the question, and of the other pieces of their
    records: those first that hold the most of its other terms. None if there is no such chunk.
    `weights`: of terms; 1 for those that are not in it."""
    identifiers = list(dict.fromkeys(term for term, kind in terms if kind in (IDENTIFIER, NAME)))
    if not identifiers or not corpus.count:
        return None
    of, chunks, held = _holders(corpus, identifiers)
    worth = rarity(held, corpus.count) * np.array([weights.get(term, 1.0) for term in identifiers])
    rare = held[of] <= MAX_HOLDERS
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
    """All chunks of the record that a chunk is a piece of; the chunk alone if it is of none."""
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
"""Chunks that may hold an identifier or a name for it to lead from one passage to another."""
LINK_WORTH = {IDENTIFIER: 1.0, NAME: 0.5}
"""An identifier means one thing; several people share a name."""
LINKED_WEIGHT, CHAIN_WEIGHT = 0.4, 0.8
"""Weights of the rankings, as fractions of the question's own. Tuned (ADR 11)."""
IN_CONVERSATION = 0.4
"""Fraction of these weights where the best passage is a turn: people name the same few people all the time."""
CHAINED = 3
"""Passages that hold what the best one lacks and are ranked beside the first ones."""


def linked(corpus: SourceCorpus, question: Terms, scores: Scores) -> list[TermRanking]:
    """Two rankings of chunks that share rare identifiers and names with the best ones: all of them, and the few that
    also hold a term of the question that the best one lacks. Empty if the best ones lead nowhere."""
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
    """The terms that stand in more chunks than one but not in many, the rarest first."""
    terms = list(kinds.items())
    _, _, held = _holders(corpus, list(kinds))
    value = rarity(held, corpus.count) * np.array([worth[term] for term in kinds])
    useful = [i for i in np.argsort(-value, kind="stable") if 2 <= held[i] <= MAX_LINKED]
    return [terms[i] for i in useful[:MAX_LINKS]]


def _holders(corpus: SourceCorpus, terms: list[str]) -> tuple[Numbers, Numbers, Numbers]:
    """Pairs of a term (its index) and a chunk that holds it, and how many chunks hold each term."""
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
THIRD_ROUND = 0.5
"""Weight of a link from what the second round found, as a fraction of one from the first."""
EXACT_WEIGHT = 4.0
"""Weight of the record at the position or with the value that is asked for: before all that only shares words."""
PLACE_WEIGHT = 2.0
"""Weight of a place that the question names: all of it is of use, so its words still say which passage comes first."""
MIN_HELD = 0.3
"""Share of what a question says that a passage holds where the question calls for it. Chosen by hand."""
CURRENT_WEIGHT = 1.15
"""Weight of what the current turn fetched, as a multiple of the same in older turns."""
NEIGHBOUR_SHARES = (0.3, 0.21, 0.15, 0.09)
"""Fractions of its score that a turn gives to those one, two, three and four turns away: an answer follows what was
asked. Records, lines and paragraphs give nothing: there a share only takes room from better ones (measured).

All weights here are tuned (ADR 11)."""

Indexed = Callable[[Sequence[str], TermLexicon], list[ContentIndex]]
"""Gives the index of each text."""


def relevance(
    query: RelevanceQuery, sources: Sequence[SearchedSource], indexed: Indexed = index_texts
) -> list[list[RankedPassage]]:
    """For each source its passages in document order, scored as one corpus (see `core.types.relevance.Relevance`)."""
    lexicon = TermLexicon()
    corpus = SourceCorpus(sources, indexed([source.content for source in sources], lexicon), lexicon)
    ranked = rankings(query, corpus)
    scores = fuse(ranked, corpus.count)
    calls = iter(called(query, corpus, ranked).tolist())
    by_speaker = speaker_weights(corpus, query.question)
    each = iter((scores if by_speaker is None else scores * by_speaker).tolist())
    return [
        [RankedPassage(c.start, c.end, next(each), c.heading, next(calls)) for c in index.chunks]
        for index in corpus.indexes
    ]


def rankings(query: RelevanceQuery, corpus: SourceCorpus) -> list[TermRanking]:
    """All rankings of the chunks that bear on a query; `fuse` makes one of them."""
    question = corpus.lexicon.question(query.question)
    weights = borrowed_terms(query.question, query.recent, corpus.lexicon)
    terms = question + [(term, 0) for term in weights]
    main = lexical(corpus, terms, weights) + QUOTATION_WEIGHT * quotation_scores(corpus, query.question)
    main *= _turn_weights(corpus)
    of_topics = topic_scores(corpus, question)
    if of_topics is not None:
        main += TOPIC_WEIGHT * of_topics
    found = [TermRanking(with_neighbours(corpus, main))]
    of_names = named_records(corpus, terms, weights)
    if of_names is not None:
        found.append(TermRanking(of_names, NAMED_WEIGHT, calls=True))
    found += linked(corpus, question, main)
    third = linked(corpus, question, fuse(found, corpus.count)) if len(found) > 1 else []
    found += [TermRanking(each.scores, THIRD_ROUND * each.weight) for each in third]
    named = named_places(query.question)
    of_lines = line_scores(corpus, named)
    at_position = position_scores(corpus, query.question) if of_lines is None else None
    for exact in (of_lines, at_position, superlative_scores(corpus, query.question)):
        if exact is not None:
            found.append(TermRanking(exact, EXACT_WEIGHT, calls=True))
    of_places = place_scores(corpus, named)
    if of_places is not None:
        found.append(TermRanking(of_places, PLACE_WEIGHT, calls=True))
    return found + _of_searches(corpus, query.searches, {term for term, _ in question})


def called(query: RelevanceQuery, corpus: SourceCorpus, ranked: Sequence[TermRanking]) -> NDArray[np.bool_]:
    """For each chunk whether the query asks for it by itself: it holds a good part of what the question or a further
    search says, or of what a pronoun stands for, or is what they name or point at. Short turns of a conversation say
    little by themselves, so a word in common is enough for them."""
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
    """The scores, to which each turn adds for every distance a share of the better of the two turns so far away."""
    found = [i for i, source in enumerate(corpus.sources) if source.kind == "turn"]
    if not found:
        return scores
    result = scores.copy()
    turns = np.array(sorted(found, key=lambda i: corpus.sources[i].number))
    order = places(corpus.begins[turns], corpus.begins[turns + 1] - corpus.begins[turns])
    own = scores[order]
    for distance, share in enumerate(NEIGHBOUR_SHARES, 1):
        if distance < len(own):
            before, after = np.zeros(len(own)), np.zeros(len(own))
            before[distance:], after[:-distance] = own[:-distance], own[distance:]
            result[order] += share * np.maximum(before, after)
    return result


def _of_searches(corpus: SourceCorpus, searches: Sequence[str], asked: Collection[str]) -> list[TermRanking]:
    """Rankings by further queries, which together weigh as much as the question. A query that has no word but the
    question's says nothing new and is left out."""
    each = [corpus.lexicon.question(search) for search in searches]
    new = [terms for terms in each if any(term not in asked for term, _ in terms)]
    return [TermRanking(lexical(corpus, terms), 1 / len(new)) for terms in new]


def _turn_weights(corpus: SourceCorpus) -> Scores:
    """For each chunk `CURRENT_WEIGHT` where the current turn fetched it, else 1."""
    current = np.array([not source.historical and source.kind == "artifact" for source in corpus.sources], bool)
    return np.where(current[corpus.source_of], CURRENT_WEIGHT, 1.0)
