"""What a question consists of: its parts, what it quotes, and what its pronouns stand for."""

import re
from collections.abc import Sequence

import numpy as np

from gateway.models.relevance import Source
from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.terms import IDENTIFIER, NAME, NUMBER, PLAIN, Lexicon, Terms, words

# Whose words they are: what is asked of a person, that person has mostly said.


NAMED = re.compile(r"(?:\[[^\]\n]{1,60}\] ?)?([^\W\d_][\w.'-]{0,30}(?: [^\W\d_][\w.'-]{0,30}){0,2}): ")
"""A turn of a chat log: its time in brackets perhaps, then who speaks."""
MOSTLY = 0.5
"""Part of the turns that must say who speaks: one line that happens to begin with a word and a colon says nothing."""
OTHERS_SHARE = 0.2
"""What a turn counts that somebody else said than those whom the question names."""


def said_by_those_asked_about(corpus: Corpus, question: str) -> Scores | None:
    """What each chunk counts by who said it, 1 for what is not talk; None where the question names none of those who
    talk, or all of them."""
    names = [speaker(source) for source in corpus.sources]
    talk = [source.kind == "turn" for source in corpus.sources]
    known = {name for name in names if name}
    if sum(name != "" for name in names) < max(1, MOSTLY * sum(talk)) or len(known) < 2:
        return None
    asked = {word.lower() for word in words(question)}
    meant = {name for name in known if asked & {word.lower() for word in words(name) if len(word) > 1}}
    if not meant or meant == known:
        return None
    counts = [OTHERS_SHARE if is_talk and name not in meant else 1.0 for is_talk, name in zip(talk, names, strict=True)]
    each: Scores = np.array(counts)[corpus.source_of]
    return each


def speaker(source: Source) -> str:
    """Who said a turn of a talk: the message's name, or the one its text begins with; empty if neither says."""
    if source.kind != "turn":
        return ""
    _, _, name = source.label.partition(" ")
    if name:
        return name
    found = NAMED.match(source.content)
    return found[1] if found else ""


PARTS = re.compile(
    r"[?;:,.!](?=\s|$)|\n|\b(?:or|than|and|versus|vs|both|but|while|whereas|compared|between|as well as|whose|who|which"
    r"|that|where|when)\b",
    re.IGNORECASE,
)
QUOTED = re.compile(r'"([^"\n]{3,200})"|“([^”\n]{3,200})”|`([^`\n]{3,200})`|(?<!\w)\'([^\'\n]{3,200})\'(?!\w)')
PRONOUN = re.compile(
    r"\b(?:it|its|it's|that|this|these|those|they|them|their|he|him|his|she|her|hers|there)\b", re.IGNORECASE
)
ORDINAL = "first|second|third|last|next|previous|other|same|former|latter|above"
POINTING = re.compile(
    rf"\b(?:(?:that|this|the|the (?:{ORDINAL})) ones?|these|those|the (?:former|latter|same|above)|as (?:above|before)"
    rf"|(?:the|its|their) (?:{ORDINAL})(?=\s*(?:[?.!,;]|$)))",
    re.IGNORECASE,
)
"""What points out of the question, whatever it names itself."""
MOST_PARTS = 4
RECENT = 6
"""Messages before the question from which a pronoun borrows."""
FADING = 0.6
MOST_BORROWED = 24


def quotations(question: str) -> list[str]:
    """What the question quotes, in quotation marks or as code."""
    return list(dict.fromkeys(next(filter(None, groups)).strip() for groups in QUOTED.findall(question)))


def parts(question: str, lexicon: Lexicon) -> list[Terms]:
    """The parts of a question that is made of several: of a comparison its sides, of a chain its links. Empty if it is
    of one piece; parts that name nothing are none."""
    found = [lexicon.question(part) for part in PARTS.split(question)]
    named = [terms for terms in found if any(kind in (IDENTIFIER, NAME, NUMBER) for _, kind in terms)]
    weighty = named if len(named) > 1 else [terms for terms in found if len(terms) > 1]
    return weighty[:MOST_PARTS] if len(weighty) > 1 else []


def borrowed(question: str, recent: Sequence[str], lexicon: Lexicon) -> dict[str, float]:
    """Terms that the question's pronouns may stand for, out of the messages just before it, with what each counts.

    Identifiers, names and numbers above all; those of the latest message most. Nothing without a pronoun that points
    out of the question, unless the question names nothing at all.
    """
    own = lexicon.question(question)
    names_nothing = not _names(question, lexicon) and len(own) < 8
    if not (_points_back(question, lexicon) or names_nothing):
        return {}
    worth = {IDENTIFIER: 1.0, NAME: 0.7, NUMBER: 0.5, PLAIN: 0.15}
    found: dict[str, float] = {}
    for age, text in enumerate(reversed(recent[-RECENT:])):
        for term, kind in lexicon.question(text[:4000]):
            value = worth.get(kind, 0.3) * FADING**age
            found[term] = max(found.get(term, 0.0), value)
    for term, _ in own:
        found.pop(term, None)
    best = sorted(found.items(), key=lambda item: -item[1])[:MOST_BORROWED]
    return dict(best)


def _points_back(question: str, lexicon: Lexicon) -> bool:
    """Whether it has a pronoun that stands for nothing in the question itself: `his` after a name means that name."""
    first = PRONOUN.search(question)
    if first is None or POINTING.search(question):
        return first is not None
    return not _names(question[: first.start()], lexicon)


def _names(text: str, lexicon: Lexicon) -> bool:
    """Whether it names something. Its first word is written with a capital whatever it is, and `ZIP` or `URL` name
    what is asked for, not whom it is asked about."""
    rest = " ".join(word for word in text.split()[1:] if not (word.isalpha() and word.isupper()))
    return any(kind in (IDENTIFIER, NAME, NUMBER) for _, kind in lexicon.question(rest))
