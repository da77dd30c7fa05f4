"""The block stands as it was fixed at the turn's first step, whatever has to leave in later ones (guarantee §4 I6)."""

from dataclasses import replace
from typing import Any

from gateway.core.config.settings import ContextSettings
from gateway.core.types.conversation import ConversationHistory, ConversationMessage, PromptFrame, new_message
from tests.support.o200k import prompt_tokens
from tests.unit.making import assistant, build_of, stored, tool, user

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
