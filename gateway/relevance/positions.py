"""Answers questions of position: `the third entry`, `your first tool call`, `row 12`, `die letzte Zeile`, `how does it
begin`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gateway.models.relevance import Source
from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.named_places import ENGLISH, GERMAN

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
class Position:
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


def position_scores(corpus: Corpus, question: str) -> Scores | None:
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


def position(question: str, tools: frozenset[str]) -> Position | None:
    """The position that a question asks for, None if it asks for none.

    Args:
        tools: words in the names of the tools: `the second grep` is the second text of that tool.
    """
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
    return Position(text[0] if text else None, at, text[1] if text else "", noun in LINES, is_edge)


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


def _tool_words(source: Source) -> frozenset[str]:
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


def _chunks(corpus: Corpus, source: int, asked: Position) -> Sequence[int]:
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


def _of_lines(corpus: Corpus, source: int, record: int) -> Sequence[int]:
    """The chunks of a line and of those that follow it. Lines are few that are looked up, of however many."""
    content = corpus.sources[source].content
    starts = [0, *(found.end() for found in LINE_END.finditer(content))]
    at = record if record >= 0 else len(starts) + record
    if not 0 <= at < len(starts):
        return []
    return list(dict.fromkeys(corpus.chunk_at(source, start) for start in starts[at : at + 1 + FOLLOWING]))
