"""Questions of position: `the third entry`, `your first tool call`, `row 12`, `how does it begin`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gateway.models.relevance import Source
from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.records import records_of

LAST = -1
WORDS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ORDINAL = (
    r"(?:(?:the|very|your|my|our|its)\s+)*"
    r"(?P<ordinal>(?:second|third|next)[- ]to[- ]last|penultimate|" + "|".join(WORDS) + r"|\d{1,4}(?:st|nd|rd|th)"
    r"|last|final|latest|most recent)\b"
)
_FILLING = r"(?:\s+(?:single|data|full|complete|recorded|listed|returned))*"
ORDINAL_NOUN = re.compile(_ORDINAL + _FILLING + r"\s+(?P<nouns>\w+(?:\s+\w+)?)", re.I)
NOUN_NUMBER = re.compile(r"\b(?P<nouns>(?:tool )?\w+)\s+(?:number\s+|no\.?\s*|#\s*)?(?P<ordinal>\d{1,5})\b", re.I)
_NOUNS = """
call tool step output response command run invocation action toolcall
document attachment file page upload result search query request report
entry entries item items row rows record records line lines element elements object objects hit hits match matches
"""
_CALLS, _TEXTS, _RECORDS = _NOUNS.strip().splitlines()
CALLS, TEXTS = frozenset(_CALLS.split()), frozenset(_TEXTS.split())
RECORDS = frozenset(_RECORDS.split()) | {"result", "results", "paragraph", "section", "sentence"}
BEGIN = re.compile(r"\b(?:begins?|beginning|starts?\s+with|start|opens?\s+with|at the top|top of)\b", re.IGNORECASE)
END = re.compile(r"\b(?:ends?\s+with|ends?|at the bottom|bottom of|at the end|tail)\b", re.IGNORECASE)
LINES = frozenset(["line", "lines"])


@dataclass(frozen=True, slots=True)
class Position:
    """Which text and which record in it are meant, from 0 on, from the end if negative (-1: the last); None: not said.

    `noun` is the word by which the text was named (`grep`, `file`, `call`). `by_lines`: the record is a line. `edge`:
    it is where the text begins or ends, whatever stands there.
    """

    text: int | None = None
    record: int | None = None
    noun: str = ""
    by_lines: bool = False
    edge: bool = False


def position(question: str, tools: frozenset[str]) -> Position | None:
    """The position that a question asks for, None if it does not.

    Args:
        tools: words in the names of the texts' tools: `the second grep` is the second text of that tool.
    """
    text: tuple[int, str] | None = None
    record: tuple[int, str] | None = None
    edge = (0, "") if BEGIN.search(question) else (LAST, "") if END.search(question) else None
    for match in (*ORDINAL_NOUN.finditer(question), *NOUN_NUMBER.finditer(question)):
        at, nouns = _number(match["ordinal"].lower()), match["nouns"].lower().split()
        if at is None:
            continue
        whole = nouns[0] == "result" and (edge is not None or record)
        if nouns[0] in RECORDS and nouns[0] not in tools and not whole:
            record = record or (at, nouns[0])
        elif noun := next((noun for noun in nouns if _is_text(noun, tools)), None):
            text = text or (at, noun)
    if text is None and record is None:
        return None
    at_record, noun = record or edge or (None, "")
    return Position(
        text[0] if text else None,
        at_record,
        text[1] if text else "",
        noun in LINES,
        record is None and edge is not None,
    )


def _is_text(noun: str, tools: frozenset[str]) -> bool:
    single = noun.removesuffix("s")
    return bool({noun, single} & (CALLS | TEXTS)) or single in tools or noun in tools


def _number(ordinal: str) -> int | None:
    if ordinal in WORDS:
        return WORDS.index(ordinal)
    if ordinal[0].isdigit():
        number = int(re.sub(r"\D", "", ordinal))
        return number - 1 if number else None
    if ("last" in ordinal and ordinal != "last") or ordinal == "penultimate":
        return -3 if ordinal.startswith("third") else -2
    return LAST


# The passages at the position that a question asks for.


WORD = re.compile(r"[A-Za-z]+")
_VERBS = """
read open opened view viewed cat see saw show showed look looked load loaded
search searched grep find found query queried look looked
run ran execute executed bash shell command exec test tested
edit edited write wrote written change changed patch replace create created
fetch fetched visit visited browse browsed download downloaded get got web
"""
DOINGS = tuple(frozenset(line.split()) for line in _VERBS.strip().splitlines())
"""Tools do what people say in several words."""
BESIDE = 2
"""How many records after the one that is meant are put beside it."""


def places(corpus: Corpus, question: str) -> Scores | None:
    """Scores of the chunks at the position that the question asks for, None if it asks for none."""
    fetched = [i for i, source in enumerate(corpus.sources) if source.kind == "artifact"]
    fetched.sort(key=lambda i: corpus.sources[i].number)
    tools = {i: _tool_words(corpus.sources[i]) for i in fetched}
    asked = position(question, frozenset().union(*tools.values()))
    if asked is None or not fetched:
        return None
    if asked.text is None:
        meant = _newest(corpus, fetched)
    else:
        among = _named(asked.noun, question, fetched, tools)
        if not -len(among) <= asked.text < len(among):
            return None
        meant = [among[asked.text]]
    scores = np.zeros(corpus.count)
    for number in meant:
        chunks = _chunks(corpus, number, asked)
        for place, chunk in enumerate(chunks):
            scores[chunk] = max(scores[chunk], len(chunks) - place)
    return scores


def _tool_words(source: Source) -> frozenset[str]:
    return frozenset(word.lower() for word in WORD.findall(source.label.partition(" ")[0]))


def _named(noun: str, question: str, fetched: Sequence[int], tools: dict[int, frozenset[str]]) -> list[int]:
    """The texts among which is counted: those of the tools that the noun or the question's verb names, else all."""
    said = set(WORD.findall(question.lower()))
    single = noun.removesuffix("s")
    by_noun = [i for i in fetched if {noun, single} & tools[i]] if single not in CALLS else []
    doing = [words for words in DOINGS if said & words]
    by_verb = [i for i in by_noun or fetched if any(tools[i] & words for words in doing)]
    if single in CALLS and single != "run":
        return list(fetched)
    return by_verb or by_noun or list(fetched)


def _newest(corpus: Corpus, fetched: Sequence[int]) -> list[int]:
    """Without a text named, what was fetched last is meant: all of the turn under way, else the latest."""
    current = [i for i in fetched if not corpus.sources[i].historical]
    return current or list(fetched[-1:])


def _chunks(corpus: Corpus, number: int, asked: Position) -> list[int]:
    """The chunks at that position of a text, the best first."""
    begin, end = int(corpus.begins[number]), int(corpus.begins[number + 1])
    every = list(range(begin, end))
    if asked.record is None or not every:
        return every[: 1 + BESIDE]
    starts = [] if asked.edge else _starts(corpus.sources[number].content, asked)
    if starts:
        at = asked.record if asked.record >= 0 else len(starts) + asked.record
        if not 0 <= at < len(starts):
            return []
        return list(dict.fromkeys(corpus.chunk_at(number, start) for start in starts[at : at + 1 + BESIDE]))
    at = asked.record if asked.record >= 0 else len(every) + asked.record
    return every[max(0, at) : at + 1 + BESIDE]


def _starts(content: str, asked: Position) -> list[int]:
    """Where the records of a text begin, or its lines if lines are meant; empty if it has none but its chunks."""
    if asked.by_lines:
        return [match.start() for match in re.finditer(r"(?m)^", content)]
    return [record.start for record in records_of(content)]
