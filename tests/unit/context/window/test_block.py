"""The block stands as it was fixed at the turn's first step, whatever has to leave in later ones, and does not repeat
what the window holds (guarantee §4 I6)."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.config.settings import ContextSettings
from gateway.core.ids import artifact_id
from gateway.core.types.artifacts import RequestAttachment
from gateway.core.types.conversation import (
    ConversationHistory,
    ConversationMessage,
    FrozenDecision,
    PromptFrame,
    new_message,
)
from tests.support.o200k import prompt_tokens
from tests.unit.making import assistant, build, build_of, stored, tool, user

LINES = "\n".join(f"line {n}: the value of part {n} is {n * 17}" for n in range(400))
ASK = user("What is the value of part 77?")


def fixed(body: dict[str, Any], block: str) -> list[ConversationMessage]:
    """An old turn with a long result, and a question that was forwarded with a block in its first step."""
    old = [user("old"), assistant(None, "c0"), tool("c0", LINES), assistant("so it is")]
    path = stored([*old, body])
    path[-1] = replace(path[-1], rendered={**body, "content": f"{block}{body['content']}"})
    return path


def in_steps(block: str, count: int) -> ConversationHistory:
    steps = [message for n in range(1, count) for message in (assistant(None, f"c{n}"), tool(f"c{n}", LINES))]
    path = [*fixed(ASK, block), *stored(steps)]
    return ConversationHistory("conv_1", False, (), tuple(path), stored=len(path))


async def test_a_later_step_keeps_the_block_of_the_first() -> None:
    """Results are reduced, steps leave, and the question stands as it stood."""
    block = "<context_data>\n" + "what was recalled " * 40 + "\n</context_data>\n\n"
    for budget, count in ((1500, 3), (900, 4), (400, 30)):
        history = in_steps(block, count)
        built = await build_of(history, budget)
        forwarded = built.fitted.forwarded
        assert built.fitted.new_pass
        question = next(m for m, i in zip(forwarded.messages, forwarded.indexes, strict=True) if i == 4)
        assert question is history.messages[4].rendered
        assert forwarded.messages[-1]["tool_call_id"] == f"c{count - 1}"
        assert sum("context_data" in str(message["content"]) for message in forwarded.messages) == 1
        assert prompt_tokens(forwarded.messages) <= budget
        assert built.fitted.tokens >= 0.7 * budget


async def test_a_block_that_fills_the_first_step_leaves_the_latest_result_something() -> None:
    """What is else kept free for later is for the result that the model has not seen yet."""
    history = in_steps("<context_data>\n" + "what was recalled " * 380 + "\n</context_data>\n\n", 2)
    built = await build_of(history, 1600, settings=ContextSettings())
    forwarded = built.fitted.forwarded
    assert any(message is history.messages[4].rendered for message in forwarded.messages)
    assert "the value of part 77 is 1309" in forwarded.messages[-1]["content"]
    assert prompt_tokens(forwarded.messages) <= 1600


async def test_a_block_that_cannot_be_kept_shrinks() -> None:
    """The question, the latest step and a block that says more than the budget holds."""
    history = in_steps("<context_data>\n" + "what was recalled " * 400 + "\n</context_data>\n\n", 3)
    built = await build_of(history, 500)
    (question,) = [m for m in built.fitted.forwarded.messages if m["role"] == "user"][-1:]
    assert question["content"].endswith(ASK["content"])
    assert "what was recalled" not in question["content"]
    assert prompt_tokens(built.fitted.forwarded.messages) <= 500


async def test_a_new_turn_has_a_block_of_its_own() -> None:
    path = fixed(ASK, "<context_data>\nold block\n</context_data>\n\n")
    new = [assistant("1309"), user("And what is the value of part 78?")]
    messages = (*path, *(replace(m, message_id=None) for m in stored(new)))
    built = await build_of(ConversationHistory("conv_1", False, (), messages, stored=5), 700)
    last = built.fitted.forwarded.messages[-1]["content"]
    assert "old block" not in last
    assert last.endswith("And what is the value of part 78?")


async def test_s4_i6_a_turn_that_began_without_a_block_gets_none_in_a_later_step() -> None:
    old = [message for n in range(8) for message in (user(f"old {n}"), assistant(f"{LINES[n * 900 : n * 900 + 800]}"))]
    steps = [message for n in range(1, 4) for message in (assistant(None, f"c{n}"), tool(f"c{n}", LINES))]
    path = stored([*old, ASK, *steps])
    for budget in (700, 1500, 4000):
        built = await build_of(ConversationHistory("conv_1", False, (), tuple(path), stored=len(path)), budget)
        assert built.fitted.new_pass
        assert "context_data" not in str(built.fitted.forwarded.messages)
        assert ASK in built.fitted.forwarded.messages
        assert built.fitted.tokens >= 0.7 * budget
        new = (*path[:-7], *(replace(message, message_id=None) for message in path[-7:]))
        first = await build_of(ConversationHistory("conv_1", False, (), new, stored=len(old)), budget)
        assert "context_data" in str(first.fitted.forwarded.messages), "where nobody has seen the turn it may have one"


async def test_s4_i2_steps_that_have_left_stay_out() -> None:
    """In later passes, too, when their turn is an old one and all of it would have room; no older turn comes before."""
    older = [user("older"), assistant("so it was")]
    loop = [ASK, *(m for n in range(4) for m in (assistant(None, f"c{n}"), tool(f"c{n}", LINES))), assistant("1309")]
    last = user("And what is the value of part 78?")
    path = [*stored([*older, *loop]), new_message(last)]
    block = "<context_data>\n" + "what was recalled " * 4500 + "\n</context_data>\n\n"
    forms = {"msg_2": {**ASK, "content": f"{block}{ASK['content']}"}}
    frame = PromptFrame(first="msg_2", left_out=frozenset(f"msg_{n}" for n in (3, 4, 5, 6)), forms=forms)
    for budget in (2000, 6000, 14_000, 24_500):
        history = ConversationHistory("conv_1", False, (), tuple(path), stored=len(path) - 1, frame=frame)
        built = await build_of(history, budget)
        calls = [m["tool_call_id"] for m in built.fitted.forwarded.messages if m["role"] == "tool"]
        assert calls in ([], ["c2", "c3"]), f"at a budget of {budget}"
        assert user("older") not in built.fitted.forwarded.messages
        assert built.fitted.new_pass
    assert calls


async def test_what_the_block_says_is_not_said_again_in_a_reduced_result() -> None:
    """An old result is the source of what the block quotes; a later step reduces it in its place."""
    quoted = "\n".join(LINES.split("\n")[40:120])
    path = fixed(ASK, f"<context_data>\n{quoted}\n</context_data>\n\n")
    news = "\n".join(f"news {n}: a weather report from harbour {n}" for n in range(400))
    path += stored([assistant(None, "c1"), tool("c1", news)])
    built = await build_of(ConversationHistory("conv_1", False, (), tuple(path), stored=len(path)), 5000)
    forwarded = built.fitted.forwarded
    assert built.fitted.new_pass
    told = dict(zip(forwarded.indexes, [str(m["content"]) for m in forwarded.messages], strict=True))
    assert "the value of part 77 is 1309" in told[4]
    assert "the value of part 77 is 1309" not in told[2]


RESULT = "\n".join(f"lamp {n}: the keeper of lamp {n} is keeper {n * 17}" for n in range(12))
FILLER = "\n".join(f"line {n}: nothing of interest was said in line {n}" for n in range(400))
ASK_PRICES = user("Who is the keeper of lamp 7?")


@pytest.mark.long
async def test_a_result_that_was_got_twice_is_recalled_where_it_stands_no_more() -> None:
    """The same tool result in the first turn, which leaves, and in the last but one, which stays."""
    first = [user("lamps?"), assistant(None, "c0"), tool("c0", RESULT), assistant("so " + FILLER)]
    later = [user("again?"), assistant(None, "c1"), tool("c1", RESULT), assistant("so")]
    as_messages = 0
    for budget in range(500, 1500, 100):
        built = await build([*first, *later, ASK_PRICES], budget)
        forwarded = built.fitted.forwarded.messages
        assert str(forwarded).count("keeper of lamp 7 is keeper 119") == 1, f"at a budget of {budget}"
        as_messages += any(message["role"] == "tool" for message in forwarded)
    assert as_messages


async def test_an_attached_document_that_a_tool_read_again_is_shown_once() -> None:
    messages = [user("old"), assistant(FILLER), ASK_PRICES, assistant(None, "c1"), tool("c1", RESULT + FILLER)]
    document = RequestAttachment(content=RESULT + FILLER, title="lamps.txt")
    built = await build(messages, 1500, attachments=[document], settings=ContextSettings(low_water=1))
    shown = str(built.fitted.forwarded.messages)
    assert shown.count("keeper of lamp 7 is keeper 119") == 1


async def test_what_a_block_of_an_old_message_holds_is_not_recalled_again() -> None:
    """Though the message was put together anew, for the file in it, and the text is escaped there."""
    said = "The keeper of lamp 7 is called <artifact>Ignatius</artifact>, and held the lamp for eighty long years."
    text = base64.b64encode(b"notes on harbours").decode()
    file = {"type": "file", "file": {"filename": "n.txt", "file_data": f"data:text/plain;base64,{text}"}}
    asked = user([file, {"type": "text", "text": "and what of the harbour?"}])
    path = stored([user(said), assistant("I see"), asked, assistant("It is a port.")])
    block = f"<context_data note='data'>\n[1 user] {said.replace('<', '&lt;')}\n</context_data>\n\n"
    shown = {**asked, "content": [{"type": "text", "text": block}, *asked["content"]]}
    frame = PromptFrame(first="msg_2", forms={"msg_2": shown})
    conversation = ConversationHistory(
        "conv_1", False, (), (*path, new_message(ASK_PRICES)), stored=len(path), frame=frame
    )
    built = await build_of(conversation, 2000)
    assert str(built.fitted.forwarded.messages).count("held the lamp for eighty long years") == 1
    bare = replace(conversation, frame=replace(frame, forms={}))
    recalled = await build_of(bare, 2000)
    assert str(recalled.fitted.forwarded.messages[-1]).count("held the lamp for eighty long years") == 1


async def test_of_a_passage_that_stands_in_part_the_rest_is_recalled() -> None:
    """The window shows a part of a passage that was too long for it; its block the other lines, not these again."""
    known = "The keeper of lamp 7 was called Ignatius, and he held the lamp for eighty years in a village of the coast,"
    other = (
        "before keeper Ignatius of lamp 7 sold the lamp to a merchant named Balthasar, who never lit it in his life."
    )
    path = stored([user("What is known?"), assistant(None, "c1"), tool("c1", f"{known}\n{other}"), assistant("Much.")])
    extract = tool("c1", f'[Extract of tool result "search", id art_1: 106 of 214 characters]\n{known}\n[…]')
    artifact = artifact_id(path[2].body["content"])
    decided = {"msg_2": (FrozenDecision(artifact, "rag_extract", len(known)),)}
    frame = PromptFrame(first="msg_0", forms={"msg_2": extract}, decisions=decided)
    asked = new_message(user("To whom did keeper Ignatius of lamp 7 sell the lamp?"))
    conversation = ConversationHistory("conv_1", False, (), (*path, asked), stored=len(path), frame=frame)
    shown = str((await build_of(conversation, 3000)).fitted.forwarded.messages)
    assert shown.count("eighty years in a village") == 1
    assert shown.count("merchant named Balthasar") == 1
