"""How much of a window summaries of old turns take by `context.memory` (guarantee §11.13)."""

from dataclasses import replace

import pytest

from gateway.core.types.chat import PromptBudget
from gateway.core.types.conversation import ConversationHistory, new_message
from gateway.core.types.memory import SummarySegment
from tests.unit.making import FACTS, assistant, chat, context_manager, stored, user

TALK = [
    m
    for n in range(60)
    for m in (user(f"Question {n}: " + "what of the lamp? " * 8), assistant(f"The lamp of room {n} hangs. " * 8))
]


def segment(number: int) -> SummarySegment:
    """Of two turns, twenty tokens."""
    first = 4 * number
    text = f"Summary {number}. " + "word " * 15
    return SummarySegment(f"sum_{number}", first, first + 3, f"msg_{first + 3}", text)


async def shown(conversation: ConversationHistory, memory: str, budget: int) -> tuple[int, int]:
    """How many summaries are in the window, and how many tokens of old messages' passages are beside them."""
    request = chat([m.body for m in conversation.new_messages])
    request = replace(request, options=replace(request.options, memory=memory))
    manager = context_manager()
    built = await manager.build(request, conversation, FACTS, PromptBudget(budget, 128_000))
    assert built.fitted.tokens <= budget
    return (built.utilization.memory or {}).get("segments", 0), len(built.fitted.forwarded.block)


@pytest.mark.parametrize("budget", [2000, 3000])
async def test_s11_13_summaries_come_before_passages_or_share_their_room(budget: int) -> None:
    """With `summary` more of them are shown than with `both`, and fewer passages."""
    path = (*stored(TALK), new_message(user("What of the lamp?"), len(TALK)))
    summaries = tuple(map(segment, range(20)))
    conversation = ConversationHistory("conv_1", False, (), path, stored=len(TALK), segments=summaries)
    first, beside_first = await shown(conversation, "summary", budget)
    shared, beside_shared = await shown(conversation, "both", budget)
    assert first > shared
    assert beside_first < beside_shared
