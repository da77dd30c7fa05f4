"""The passages at the position that a question asks for."""

import re
from collections.abc import Sequence

import numpy as np

from gateway.models.relevance import Source
from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.ordinals import CALLS, Position, position
from gateway.relevance.records import records_of

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
