"""Standing instructions of users: whatever the pattern finds, the quick look for its words finds, too."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.window.candidates import (
    RULE,
    RULE_CHARS,
    RULE_WORDS,
    PassageCandidate,
    TranscriptMessage,
    kept_words,
)
from gateway.core.types.conversation import CarriedCache
from gateway.core.types.relevance import RankedPassage

INSTRUCTIONS = (
    "Never say so.",
    "Please always answer in French.",
    "DO NOT use tables.",
    "Don't guess. Don’t ask.",
    "Well, you must cite.",
    "It MUST be short.",
    "And make sure that it runs.",
    "From now on: metres.",
    "Under no circumstances name her.",
    "Only ever use pytest.",
    "keep to the plan",
    "Also stick to the facts",
    "So remember to test.",
    "Avoid jargon!",
    "House rules: no smoking",
)
PIECES = st.sampled_from([*INSTRUCTIONS, *RULE_WORDS, " ", ".", "\n", ": ", "ſ", "K", "s", "please "])


def candidate(number: int, text: str, speaker: str = "user") -> PassageCandidate:
    return PassageCandidate(
        TranscriptMessage(number, number + 1, speaker, text), number, RankedPassage(0, len(text), 0.0), number
    )


@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_instructions_are_kept(text: str) -> None:
    said = [candidate(0, "Hello."), candidate(1, "The weather is fine."), candidate(2, text)]
    said += [candidate(3, text, "assistant")]
    assert [c.order for c in kept_words(said)] == [0, 2]


@given(st.lists(st.one_of(PIECES, PIECES.map(str.upper), PIECES.map(str.title), st.text(max_size=5)), max_size=6))
def test_the_quick_look_misses_nothing(pieces: list[str]) -> None:
    text = "".join(pieces)
    if RULE.search(text):
        assert any(word in text.casefold() for word in RULE_WORDS)


@pytest.mark.parametrize("text", [*INSTRUCTIONS, "The weather is fine.", "x" * 700 + " never"])
def test_what_is_noted_of_a_message_is_what_its_words_say(text: str) -> None:
    """Also where a part of one that says otherwise is looked at."""
    rules: CarriedCache[str, bool] = CarriedCache()
    said = [candidate(-9, "Hello."), candidate(-8, text), candidate(-7, f"{text} {text}")]
    part = replace(candidate(-6, f"ok {text}"), passage=RankedPassage(0, 2, 0.0))
    fresh = [c.order for c in kept_words([*said, part])]
    assert (-8 in fresh) == bool(RULE.search(text) and len(text) <= RULE_CHARS)
    assert -6 not in fresh
    for _ in range(3):
        assert [c.order for c in kept_words([*said, part], rules)] == fresh
        rules = rules.following()
