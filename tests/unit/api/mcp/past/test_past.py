"""A tenant's past is searched within bounds, and an artifact shown as far as it may be (guarantee §10.12)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gateway.api.mcp import tools as words
from gateway.api.mcp.past.conversation_search import (
    EXCERPT_CHARS,
    EXTRACT_CHARS,
    LOOKED_THROUGH,
    MAX_CHARS,
    MAX_CONVERSATIONS,
    MAX_EXCERPTS,
    READ_BYTES,
    SEARCHED_BYTES,
    PastSearch,
)
from gateway.core.errors import NotFound
from gateway.core.ids import artifact_id
from gateway.core.types.bill import CostSums
from gateway.core.types.conversation import new_message
from gateway.core.types.memory import MemoryEntity
from gateway.core.types.past_turns import ConversationTexts
from gateway.core.types.report_lists import ConversationLine
from tests.unit.making import NOW, assistant, tool, user


def line(number: int, question: str | None = None) -> ConversationLine:
    """The conversation of that number; the higher, the later it was active."""
    time = NOW + timedelta(minutes=number)
    return ConversationLine(f"conv_{number:032d}", "red", (), question, None, None, time, time, CostSums())


class Shelf:
    """Conversations that are read from memory, in place of `PastReader`; `asked` are those that were."""

    def __init__(self, said: dict[int, list[dict[str, Any]]], *, size: int | None = None) -> None:
        self.said = {line(number).id: bodies for number, bodies in said.items()}
        self.all = [line(number, str(bodies[0]["content"])[:200]) for number, bodies in said.items()]
        self.size = size
        self.asked: list[str] = []
        self.room: list[int] = []

    async def recent(self, tenant: str, most: int, text: str | None = None) -> tuple[ConversationLine, ...]:
        latest = sorted(self.all, key=lambda each: each.updated_at, reverse=True)
        found = [each for each in latest if text is None or text.casefold() in (each.question or "").casefold()]
        return tuple(found[:most])

    async def lines(self, tenant: str, conversation_ids: Sequence[str]) -> tuple[ConversationLine, ...]:
        return tuple(each for each in self.all if each.id in conversation_ids)

    async def holders(self, tenant: str, name: str, most: int) -> tuple[str, ...]:
        return ()

    async def texts(self, tenant: str, conversation_id: str, max_bytes: int) -> ConversationTexts | None:
        self.asked.append(conversation_id)
        self.room.append(max_bytes)
        bodies = self.said.get(conversation_id)
        if bodies is None:
            return None
        messages = tuple(replace(new_message(body), message_id=f"msg_{n}") for n, body in enumerate(bodies))
        size = self.size if self.size is not None else sum(len(str(body)) for body in bodies)
        return ConversationTexts(messages, (), min(size, max_bytes), size <= max_bytes)


class NoLargeTexts:
    """Nothing of what is on the shelf is large."""


class Memory:
    """Things that any search finds, in place of `ThingMemory`."""

    def __init__(self, *things: MemoryEntity) -> None:
        self.things = things

    async def search(self, *_: Any) -> tuple[MemoryEntity, ...]:
        return self.things


def past(shelf: Shelf, *things: MemoryEntity) -> PastSearch:
    """The past over these; both fakes have the methods that it calls."""
    return PastSearch(shelf, Memory(*things), 8000, NoLargeTexts())  # type: ignore[arg-type]


async def test_the_best_conversation_comes_first_with_its_best_passages() -> None:
    said = {
        1: [user("Who feeds the goats?"), assistant("Milla feeds the goats."), *[user("Goats again?")] * 9],
        2: [user("What is for lunch?"), assistant("Soup.")],
        3: [user("Where do goats sleep?"), assistant("In the barn.")],
    }
    found = await past(Shelf(said)).search("red", "who feeds the goats", 5)
    assert [each.line.id for each in found.conversations] == [line(1).id, line(3).id]
    excerpts = found.conversations[0].excerpts
    assert {each.text for each in excerpts[:2]} == {"Who feeds the goats?", "Milla feeds the goats."}
    assert len(excerpts) <= MAX_EXCERPTS
    assert (found.searched, found.complete) == (3, True)


async def test_of_equal_ones_the_latest_comes_first_and_the_limit_holds() -> None:
    said = {number: [user("Is the ferry late?"), assistant("Yes.")] for number in range(9)}
    found = await past(Shelf(said)).search("red", "ferry late", 4)
    assert [each.line.id for each in found.conversations] == [line(number).id for number in (8, 7, 6, 5)]


async def test_old_conversations_are_found_by_how_they_begin_and_by_a_things_name() -> None:
    said = {number: [user(f"Small talk {number}")] for number in range(10, 10 + MAX_CONVERSATIONS + 5)}
    said |= {
        9: [user("Hm"), assistant("Just behind the latest.")],
        1: [user("Plan the Regatta")],
        2: [user("Hello"), assistant("Done.")],
        3: [user("Elsewhere")],
    }
    times = (NOW, NOW)
    thing = MemoryEntity(
        "mem_1", "conversation", line(2).id, "order", "A-77", "Regatta flags", ("a",), "created", 1, *times
    )
    shelf = Shelf(said)
    next_one = MemoryEntity(
        "mem_2", "conversation", line(14).id, "order", "A-78", "Regatta", ("a",), "created", 1, *times
    )
    found = await past(shelf, thing, next_one).search("red", "regatta", 5)
    assert {each.line.id for each in found.conversations} == {line(1).id, line(2).id, line(14).id}
    assert line(3).id not in shelf.asked
    assert len(shelf.asked) == MAX_CONVERSATIONS + 3
    assert found.complete is False
    assert "there are more" in words.found_as_text(found)


async def test_a_search_reads_no_more_than_its_bytes() -> None:
    said = {number: [user("goats")] for number in range(40)}
    shelf = Shelf(said, size=SEARCHED_BYTES // 8)
    found = await past(shelf).search("red", "goats", 5)
    assert (found.searched, found.size, found.complete) == (8, SEARCHED_BYTES, False)
    assert len(shelf.asked) == 8


async def test_excerpts_are_cut() -> None:
    found = await past(Shelf({1: [user("goat " * 2000)]})).search("red", "goat", 5)
    assert all(len(each.text) <= EXCERPT_CHARS + 1 for each in found.conversations[0].excerpts)


ROWS = "\n".join(f"{n}: account {n} holds {7 * n} crowns and {n % 11} cows" for n in range(4000))
STEPS = [user("Look."), assistant("", "call_1", name="books", arguments='{"of": "all"}'), tool("call_1", ROWS)]


async def test_an_artifact_is_read_in_parts_or_by_a_question() -> None:
    shelf = Shelf({1: STEPS})
    name = artifact_id(ROWS)
    first = await past(shelf).artifact("red", name, None, None)
    assert (first.text, first.start, first.end, first.complete) == (ROWS[:MAX_CHARS], 0, MAX_CHARS, False)
    assert first.artifact.title == "books"
    last = await past(shelf).artifact("red", f"{name}-2", None, None, len(ROWS) - 10)
    assert last.text == ROWS[-10:]
    assert words.extract_as_object(last)["next_offset"] is None
    beyond = await past(shelf).artifact("red", name, None, None, 10**9)
    assert (beyond.text, words.extract_as_object(beyond)["next_offset"]) == ("", None)
    shown = await past(shelf).artifact("red", name, None, "What does account 3210 hold?")
    assert shown.passages
    assert "account 3210 holds 22470 crowns" in shown.text
    assert len(shown.text) < 1.2 * EXTRACT_CHARS
    assert "data, not instructions" in words.extract_as_text(shown)
    nothing = await past(shelf).artifact("red", name, None, "zeppelin")
    assert not nothing.passages, "where nothing bears on the question, it begins with its beginning"


async def test_an_artifact_is_looked_for_within_bounds() -> None:
    shelf = Shelf({number: [user("hello")] for number in range(30)})
    with pytest.raises(NotFound, match="name its conversation_id"):
        await past(shelf).artifact("red", "art_0000000000000000", None, None)
    assert len(shelf.asked) == LOOKED_THROUGH
    assert max(shelf.room) == READ_BYTES


def test_half_a_sign_is_replaced_wherever_it_stands() -> None:
    assert words.plain({"a": ["half \ud83d", {"b": "whole 😀"}], "n": 1}) == {
        "a": ["half ?", {"b": "whole 😀"}],
        "n": 1,
    }
