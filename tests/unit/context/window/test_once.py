"""The block does not repeat what the window holds (guarantee §4 I6)."""

import base64
from dataclasses import replace

import pytest

from gateway.core.config.settings import ContextSettings
from gateway.core.ids import artifact_id
from gateway.core.types.artifacts import RequestAttachment
from gateway.core.types.conversation import ConversationHistory, FrozenDecision, PromptFrame, new_message
from tests.unit.making import assistant, build, build_of, stored, tool, user

RESULT = "\n".join(f"lamp {n}: the keeper of lamp {n} is keeper {n * 17}" for n in range(12))
FILLER = "\n".join(f"line {n}: nothing of interest was said in line {n}" for n in range(400))
ASK = user("Who is the keeper of lamp 7?")


@pytest.mark.long
async def test_a_result_that_was_got_twice_is_recalled_where_it_stands_no_more() -> None:
    """The same tool result in the first turn, which leaves, and in the last but one, which stays."""
    first = [user("lamps?"), assistant(None, "c0"), tool("c0", RESULT), assistant("so " + FILLER)]
    later = [user("again?"), assistant(None, "c1"), tool("c1", RESULT), assistant("so")]
    as_messages = 0
    for budget in range(500, 1500, 100):
        built = await build([*first, *later, ASK], budget)
        forwarded = built.fitted.forwarded.messages
        assert str(forwarded).count("keeper of lamp 7 is keeper 119") == 1, f"at a budget of {budget}"
        as_messages += any(message["role"] == "tool" for message in forwarded)
    assert as_messages


async def test_an_attached_document_that_a_tool_read_again_is_shown_once() -> None:
    messages = [user("old"), assistant(FILLER), ASK, assistant(None, "c1"), tool("c1", RESULT + FILLER)]
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
    conversation = ConversationHistory("conv_1", False, (), (*path, new_message(ASK)), stored=len(path), frame=frame)
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
