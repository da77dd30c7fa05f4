"""Questions are asked in other words than they are answered: a topic finds what belongs to it."""

import re
from itertools import chain
from pathlib import Path

import pytest

from gateway.retrieval import rank
from gateway.retrieval.corpus import STOPWORDS
from tests.unit.retrieval.asking import documents, ranked, turns

TABLES = {path.name: path.read_text(encoding="utf-8") for path in Path(rank.__file__).parent.glob("*.txt")}
LINES = [line for line in TABLES["topics.txt"].splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_file_says_where_its_words_come_from(table: str) -> None:
    assert "# Source: " in table


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.partition("|")[0].strip())
def test_a_line_of_the_file_is_names_of_a_topic_and_words_that_speak_of_it(line: str) -> None:
    assert re.fullmatch(r"[a-z]+(?: [a-z]+)* \| [a-z]+(?: [a-z]+)*", line)
    names, members = (side.split() for side in line.split("|"))
    assert len(set(names)) == len(names)
    assert len(set(members)) == len(members)
    assert not STOPWORDS.intersection(chain(names, members))


def test_a_topic_finds_what_is_told_of_it_in_other_words() -> None:
    talk = [f"nothing to tell about number {n}" for n in range(30)]
    talk[7] = "yesterday we brought a puppy home"
    talk[21] = "then a short trip to Lisbon"
    assert talk[7] in ranked("Which pets do they keep?", turns(*talk))[:3]
    assert talk[21] in ranked("Which cities did she see?", turns(*talk))[:3]


def test_the_topic_s_own_word_counts_more_than_what_belongs_to_it() -> None:
    talk = [f"nothing to tell about number {n}" for n in range(30)]
    talk[7] = "yesterday we brought a puppy home"
    talk[21] = "yesterday we brought a pet home"
    assert ranked("What about a pet?", turns(*talk))[0] == talk[21]


def test_topics_are_looked_up_in_conversations_alone() -> None:
    assert ranked("Which pets are there?", documents("a puppy", "a chair")) == []
