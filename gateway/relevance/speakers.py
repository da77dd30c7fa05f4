"""Whose words they are: what is asked of a person, that person has mostly said."""

import re

import numpy as np

from gateway.models.relevance import Source
from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.words import words

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
