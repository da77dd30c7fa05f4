"""Old turns as texts, by the numbers that they have in the conversation (guarantee §4 I6)."""

from dataclasses import replace

from gateway.context.window.candidates import transcript
from gateway.core.types.artifacts import LAST_EARLIER, Artifact, ArtifactPosition, ArtifactType
from gateway.core.types.conversation import RecallCache
from gateway.core.types.window import WindowInputs
from tests.unit.making import assistant, stored, user


def test_turns_are_counted_from_the_first_of_the_conversation() -> None:
    earlier = stored([assistant("end of three"), user("four"), assistant("answer four")])
    messages = stored([user("five"), assistant("answer five"), user("six")])
    material = WindowInputs((), tuple(messages), current=2, earlier=tuple(earlier), turns_before=3)
    found = transcript(material, frozenset())
    assert [(each.turn, each.text) for each in found] == [
        (3, "end of three"), (4, "four"), (4, "answer four"), (5, "five"), (5, "answer five"),
    ]  # fmt: skip
    assert [each.index for each in found] == [LAST_EARLIER - 2, LAST_EARLIER - 1, LAST_EARLIER, 0, 1]


def test_words_that_are_noted_are_those_of_the_message_without_its_documents() -> None:
    """Noted where no document is in it; a document may be found there by another request, which knows a lower limit."""
    earlier = stored([user("before the paper after"), {**user("named"), "name": "Ada  L"}, assistant("yes", "c")])
    bare = WindowInputs((), tuple(stored([user("now")])), current=0, earlier=tuple(earlier), turns_before=3)
    place = ArtifactPosition(LAST_EARLIER - 2, None, (7, 16))
    paper = Artifact("art_1", ArtifactType.DOCUMENT, "the paper", 9, "document:7-16", place=place)
    cache = RecallCache()
    for material, first in (
        (bare, "before the paper after"),
        (replace(bare, recallable=(paper,)), "before […] after"),
    ) * 2:
        fresh = transcript(material, frozenset())
        assert [each.text for each in fresh] == [first, "named", "yes\ncalled search({})"]
        assert transcript(replace(material, recall_cache=cache), frozenset()) == fresh
        cache = cache.following()
