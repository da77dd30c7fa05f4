"""How much is read of a conversation that its client has compacted."""

from dataclasses import replace
from typing import Any, cast

import pytest

from gateway.conversations.rebuild import RebuildOptions, build_llm_messages
from gateway.core.errors import InvalidRequest
from gateway.core.types.conversation import ConversationRef
from gateway.storage.store import ConversationStore
from tests.unit.making import OPTIONS, chat, user


@pytest.mark.parametrize(("limit", "read"), [(1000, 2000), (2000, 4000), (4000, 8000), (9000, 8000), (None, 8000)])
async def test_of_a_compacted_conversation_as_much_is_read_as_is_not_compacted_anew(
    limit: int | None, read: int
) -> None:
    """Half of the limit at most, at four bytes a token."""
    asked: list[int | None] = []

    class Reader:
        async def find_conversation(self, *_: Any, max_bytes: int | None, **__: Any) -> None:
            asked.append(max_bytes)

    options = replace(OPTIONS, clear_above=limit)
    request = chat([user("go on")], conversation=ConversationRef(at="msg_1"), options=options)
    with pytest.raises(InvalidRequest):
        await build_llm_messages(request, cast(ConversationStore, Reader()), RebuildOptions(remembers=True))
    assert asked == [read + request.size]
