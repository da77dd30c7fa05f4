"""Old turns as texts, by the numbers that they have in the conversation (guarantee §4 I6)."""

from gateway.models.window import LAST_EARLIER, Material
from gateway.window.candidates import transcript
from tests.unit.making import assistant, stored, user


def test_turns_are_counted_from_the_first_of_the_conversation() -> None:
    earlier = stored([assistant("end of three"), user("four"), assistant("answer four")])
    messages = stored([user("five"), assistant("answer five"), user("six")])
    material = Material((), tuple(messages), current=2, earlier=tuple(earlier), turns_before=3)
    found = transcript(material, frozenset())
    assert [(each.turn, each.text) for each in found] == [
        (3, "end of three"), (4, "four"), (4, "answer four"), (5, "five"), (5, "answer five"),
    ]  # fmt: skip
    assert [each.index for each in found] == [LAST_EARLIER - 2, LAST_EARLIER - 1, LAST_EARLIER, 0, 1]
