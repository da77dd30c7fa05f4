"""`build_llm_messages()`: stored history before what the client sent (contract §3)."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.conversation.rebuild import BYTES_PER_TOKEN, build_llm_messages
from gateway.errors import ConversationNotFound, InvalidRequest
from gateway.models.conversation import ConversationMessage, ConversationRef, History, StoredConversation
from gateway.models.exchange import ChatRequest
from gateway.ports import ConversationStore
from tests.unit.making import assistant, chat, stored, system, tool, user

PATH = [user("q1"), assistant(None, "c1"), tool("c1", "r1"), assistant("a1"), user("q2"), assistant("a2")]
BY_ID = ConversationRef("conv_1")


class OneConversation:
    """Answers `find_conversation` alone, and remembers how it was asked."""

    def __init__(self, found: StoredConversation | None) -> None:
        self.found = found
        self.asked: list[tuple[str, ConversationRef, int | None]] = []

    async def find_conversation(
        self, tenant: str, ref: ConversationRef, *, max_bytes: int | None
    ) -> StoredConversation | None:
        self.asked.append((tenant, ref, max_bytes))
        return self.found


def known(path: list[ConversationMessage], **more: Any) -> StoredConversation:
    return StoredConversation("conv_1", path[-1].message_id if path else None, tuple(path), **more)


async def rebuild(
    request: ChatRequest, found: StoredConversation | None, *, remembers: bool = True, budget: int | None = None
) -> tuple[History, OneConversation]:
    store: Any = OneConversation(found)
    port: ConversationStore = store
    history = await build_llm_messages(request, port, remembers=remembers, budget_tokens=budget)
    return history, store


def bodies(history: History) -> list[dict[str, Any]]:
    return [message.body for message in history.messages]


async def test_without_a_name_nothing_is_asked_and_a_new_conversation_begins() -> None:
    history, store = await rebuild(chat([system("s"), user("q")]), None)
    assert store.asked == []
    assert history.created
    assert history.conversation_id
    assert history.conversation_id.startswith("conv_")
    assert (history.instructions, bodies(history), history.stored) == ((system("s"),), [user("q")], 0)


async def test_an_unknown_conversation_is_not_found() -> None:
    with pytest.raises(ConversationNotFound) as raised:
        await rebuild(chat([user("q")], conversation=BY_ID), None)
    assert (raised.value.status, raised.value.param) == (404, "conversation")


async def test_an_unknown_session_is_a_new_conversation_of_that_name() -> None:
    history, store = await rebuild(chat([user("q")], conversation=ConversationRef(session="work")), None)
    assert store.asked == [("tenant", ConversationRef(session="work"), None)]
    assert (history.created, history.session) == (True, "work")


async def test_a_delta_follows_the_whole_history_with_its_tool_results() -> None:
    history, _ = await rebuild(chat([user("q3")], conversation=BY_ID), known(stored(PATH)))
    assert bodies(history) == [*PATH, user("q3")]
    assert (history.conversation_id, history.created, history.stored) == ("conv_1", False, 6)
    assert (history.parent_id, history.at_head) == ("msg_5", True)
    assert history.new_messages[0].sequence_number == 6


async def test_a_resend_is_forwarded_once_with_the_steps_that_the_client_dropped() -> None:
    sent = [user(" q1"), assistant("a1\n"), user("q2"), assistant("a2"), user("q3")]
    history, _ = await rebuild(chat(sent, conversation=BY_ID), known(stored(PATH)))
    assert bodies(history) == [*PATH, user("q3")]
    assert [m.body for m in history.new_messages] == [user("q3")]


async def test_an_edit_branches_from_the_last_shared_message() -> None:
    sent = [user("q1"), assistant("a1"), user("q2 edited")]
    history, _ = await rebuild(chat(sent, conversation=BY_ID), known(stored(PATH)))
    assert bodies(history) == [*PATH[:4], user("q2 edited")]
    assert (history.parent_id, history.at_head, history.stored) == ("msg_3", False, 4)
    assert history.new_messages[0].sequence_number == 4


async def test_a_regenerated_first_turn_branches_from_nothing() -> None:
    history, _ = await rebuild(chat([user("other"), assistant("x"), user("y")], conversation=BY_ID),
                               known(stored(PATH)))  # fmt: skip
    assert bodies(history) == [user("other"), assistant("x"), user("y")]
    assert (history.parent_id, history.at_head, history.stored) == (None, False, 0)


async def test_a_resend_of_an_older_branch_continues_that_branch() -> None:
    older = [*PATH[:4], user("q2 first"), assistant("a2 first")]
    branch = [replace(m, message_id=f"old_{n}") if n > 3 else m for n, m in enumerate(stored(older))]
    found = known(stored(PATH), branches=(tuple(branch),))
    history, _ = await rebuild(chat([*older, user("on")], conversation=BY_ID), found)
    assert bodies(history) == [*older, user("on")]
    assert (history.parent_id, history.at_head) == ("old_5", False)
    history, _ = await rebuild(chat([*PATH, user("on")], conversation=BY_ID), found)
    assert (history.parent_id, history.at_head) == ("msg_5", True)


@pytest.mark.parametrize(("sent", "expected"), [([], [system("old")]), ([system("new")], [system("new")])])
async def test_system_messages_sent_replace_the_stored_ones_and_else_those_stand(
    sent: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    request = chat([*sent, user("q3")], conversation=BY_ID)
    path = [replace(message, instructions_digest="d1") for message in stored(PATH)]
    history, _ = await rebuild(request, known(path, instructions={"d1": (system("old"),), "d2": (system("other"),)}))
    assert list(history.instructions) == expected
    assert bodies(history) == [*PATH, user("q3")]


async def test_a_tool_result_continues_the_calls_that_are_stored() -> None:
    open_path = [*PATH[:4], user("q2"), assistant(None, "c9")]
    history, _ = await rebuild(chat([tool("c9", "r9")], conversation=BY_ID), known(stored(open_path)))
    assert bodies(history) == [*open_path, tool("c9", "r9")]
    with pytest.raises(InvalidRequest) as raised:
        await rebuild(chat([tool("c8", "r8")], conversation=BY_ID), known(stored(open_path)))
    assert raised.value.param == "messages[0]"


async def test_calls_that_nobody_answered_are_left_out_when_the_user_goes_on() -> None:
    open_path = [*PATH[:4], user("q2"), assistant("I look", "c9")]
    history, _ = await rebuild(chat([user("never mind")], conversation=BY_ID), known(stored(open_path)))
    assert bodies(history) == [*PATH[:4], user("q2"), assistant("I look"), user("never mind")]
    assert history.parent_id == "msg_5"


async def test_a_broken_pair_names_the_message_as_the_client_counts() -> None:
    with pytest.raises(InvalidRequest) as raised:
        await rebuild(chat([system("s"), user("a"), tool("c", "x")]), None)
    assert raised.value.param == "messages[2]"


@pytest.mark.parametrize(("messages", "limited"), [([user("q3")], True), ([*PATH, user("q3")], False)])
async def test_of_a_delta_only_what_could_fit_is_read_and_of_a_resend_everything(
    messages: list[dict[str, Any]], limited: bool
) -> None:
    _, store = await rebuild(chat(messages, conversation=BY_ID), known(stored(PATH)), budget=100)
    assert store.asked[0][2] == (100 * BYTES_PER_TOKEN if limited else None)


async def test_how_much_was_not_read_is_known() -> None:
    path = [replace(m, sequence_number=40 + n) for n, m in enumerate(stored(PATH))]
    history, _ = await rebuild(chat([user("q3")], conversation=BY_ID), known(path), budget=100)
    assert bodies(history) == [*PATH, user("q3")]
    assert history.unread == 40
    assert history.new_messages[0].sequence_number == 46


async def test_store_false_reads_the_conversation_and_leaves_none() -> None:
    history, _ = await rebuild(chat([user("q3")], conversation=BY_ID), known(stored(PATH)), remembers=False)
    assert bodies(history) == [*PATH, user("q3")]
    assert history.conversation_id is None
    fresh, _ = await rebuild(chat([user("q")]), None, remembers=False)
    assert fresh.conversation_id is None
