"""What was forwarded is frozen until something has to leave (guarantee §4 I7)."""

from typing import Any

import pytest

from tests.support.agent_session import HOWS, TOOLS, AgentSession, How, begins_with, breaks, filled, prefix, runs, talk
from tests.support.answers import Json, chat, user
from tests.support.documents import keeper, lamps, prompt_tokens, prose
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

BUDGET = 4096 - 512
WAYS = [(how, bool(number % 2)) for number, how in enumerate(HOWS)]
"""How a session goes on, every other one streamed: a stream is forwarded as a whole answer is."""


@pytest.mark.parametrize(("how", "stream"), WAYS)
def test_s4_i7_something_leaves_and_then_nothing_for_several_turns(
    gateway: GatewayProcess, upstream: MockUpstream, how: How, stream: bool
) -> None:
    """One pass frees the window down to its low water; until that has run full again, requests only append."""
    session = AgentSession(upstream, [gateway], how, stream, name=f"leaves {how} {stream}")
    talk(session, range(8), words=120)
    broken = breaks(session.forwarded)
    assert broken, "something had to leave"
    assert all(each >= 3 for each in runs(broken, len(session.forwarded))[1:-1]), broken
    for number, messages in enumerate(session.forwarded):
        assert prompt_tokens({"messages": messages}) <= BUDGET, number
    for number in broken:
        assert session.bills[number]["tokens_used"] <= 0.75 * BUDGET + 1


@pytest.fixture(scope="module")
def module_pair(module_start_gateway: GatewayFactory, module_storage_url: str) -> list[GatewayProcess]:
    """Two gateways on one database."""
    return [module_start_gateway({"storage": {"url": module_storage_url}}) for _ in range(2)]


@pytest.mark.in_turn("how")
@pytest.mark.parametrize("how", HOWS)
def test_s4_i7_a_restart_and_two_processes_change_nothing(
    upstream: MockUpstream, module_pair: list[GatewayProcess], how: How
) -> None:
    """What is frozen lives in the storage: the turns of one conversation go to two gateways by turns, one of which is
    started again in between."""
    first, second = module_pair
    session = filled(AgentSession(upstream, [first, second], name=f"two {how}", how=how))
    count = len(session.forwarded)
    first.terminate()
    first.start()
    talk(session, range(50, 52), words=10)
    assert [number for number in breaks(session.forwarded) if number >= count] == []


@pytest.mark.in_turn("how")
@pytest.mark.parametrize("how", ["resend", "resend_by_id"])
def test_s4_i7_an_edit_and_another_answer_share_what_was_frozen_before_them(
    gateway: GatewayProcess, upstream: MockUpstream, how: How
) -> None:
    """A branch begins with what was forwarded up to the first message that the client changed; the one that it left
    goes on as it was."""
    session = filled(AgentSession(upstream, [gateway], name=f"branches {how}", how=how))
    frozen, said = session.forwarded[-1], list(session.said)
    talk(session, range(60, 61), words=20, steps=0)
    kept, one = list(session.said), session.forwarded[-1]
    assert begins_with(one, frozen)
    session.said = kept[:-2]
    talk(session, range(61, 62), words=20, steps=0)  # the question is another one
    assert begins_with(session.forwarded[-1], frozen)
    session.said = kept[:-2]
    session.upstream.reply(text="Another answer.")
    session.ask([kept[-2]])  # the same question again
    assert session.forwarded[-1] == one
    changed = next(i for i, message in enumerate(said) if message["role"] == "user" and message in frozen[2:])
    session.said = said[:changed]
    talk(session, range(62, 63), words=20, steps=2)
    *_, edited, second, third = session.forwarded
    shared = prefix(frozen, edited)
    assert frozen[shared]["content"].endswith(said[changed]["content"]), "all before the edited message"
    assert begins_with(second, edited), "the new branch goes on from what its first request was sent"
    assert begins_with(third, second)
    session.said = kept
    talk(session, range(63, 64), words=20, steps=1)
    assert begins_with(session.forwarded[-2], one), "the branch that was left goes on as it was"
    assert begins_with(session.forwarded[-1], session.forwarded[-2])


def test_s4_i7_a_request_that_stores_nothing_uses_what_was_frozen(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """`store: false` begins with it, and leaves nothing."""
    session = filled(AgentSession(upstream, [gateway], name="not stored"))
    frozen, said, conversation = session.forwarded[-1], session.said, session.conversation
    body = {"conversation": conversation, "store": False, "model": "small"}
    upstream.reply(text="Told.")
    chat(gateway, messages=[{"role": "user", "content": "And now?"}], tools=TOOLS, **body)
    assert begins_with(upstream.last.body["messages"], frozen)
    session.said = said
    talk(session, range(90, 91), words=20, steps=1)
    assert begins_with(session.forwarded[-1], frozen)


def test_s4_i7_what_is_forwarded_after_a_deletion_is_frozen(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """What an item was deleted of loses its blocks; those that come later stay."""
    session = {"session": "deleted from"}
    fields: Json = {"model": "small", "context": session}
    for number in range(4):
        conversation = chat(gateway, user(f"Number {number}. " + "word " * 150), **fields)["conversation"]["id"]
    path = f"/conversations/{conversation}/items"
    item = gateway.get(path, params={"order": "asc"}).json()["data"][0]
    assert gateway.delete(f"{path}/{item['id']}").status_code == 200
    chat(gateway, user("Which number?"), model="small", context={**session, "max_input_tokens": 400})
    for question in ("And then?", "And now?"):
        chat(gateway, user(question), **fields)
    one, two, three = (each.body["messages"] for each in upstream.chats[-3:])
    assert begins_with(two, one)
    assert "<context_data" in two[-1]["content"]
    assert begins_with(three, two)


@pytest.mark.chaos
def test_s4_i7_two_models_in_one_conversation(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Each model's requests begin with what it was sent before, whatever another model was sent in between."""
    session = filled(AgentSession(upstream, [gateway], name="two models"))
    sent: dict[str, Any] = {"small": session.forwarded[-1], "gpt-4o": []}
    for turn, model in enumerate(("gpt-4o", "small", "gpt-4o", "small"), 70):
        session.model = model
        talk(session, range(turn, turn + 1), words=2, steps=1)
        for forwarded in session.forwarded[-2:]:
            assert begins_with(forwarded, sent[model]), (turn, model)
            sent[model] = forwarded
    assert begins_with(session.said, sent["gpt-4o"]), "the large window was sent everything, as it was said"


def test_s4_i7_a_larger_budget_later_changes_nothing_that_was_frozen(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Nor does a short answer, for which less room is reserved; a smaller budget makes something leave."""
    session = filled(AgentSession(upstream, [gateway], name="budgets", context={"max_input_tokens": 2000}))
    frozen = session.forwarded[-1]
    for turn, limit in ((80, 3500), (81, 2500), (82, 4000)):
        session.context = {"max_input_tokens": limit}
        talk(session, range(turn, turn + 1), words=20, steps=1)
        assert begins_with(session.forwarded[-1], frozen), limit
        frozen = session.forwarded[-1]
    session.context = {"max_input_tokens": 1000}
    talk(session, range(83, 84), words=20, steps=0)
    assert not begins_with(session.forwarded[-1], frozen)
    assert prompt_tokens({"messages": session.forwarded[-1]}) <= 1000


def test_s4_i7_documents_stay_where_they_were_put(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Attached documents stand in the block of the turn that brought them; what had to leave comes back as an extract
    in a new block when it is asked for, and stays there, too."""
    session = AgentSession(upstream, [gateway], name="documents")
    session.turn("Keep these.", [], "Kept.", attachments=[{"title": "Lamps", "content": lamps(20)}])
    session.turn("Who is the keeper of lamp 3?", ["nothing"], "Name21x")
    assert breaks(session.forwarded) == []
    session.turn("And these.", [prose(5, 300)], "Kept.", attachments=[{"title": "More", "content": lamps(120)}])
    assert breaks(session.forwarded), "there was no room for them"
    count = len(session.forwarded)
    for lamp in (17, 111):
        session.turn(f"Who is the keeper of lamp {lamp}?", ["nothing", "found"], "Thanks.")
        assert keeper(lamp) in str(session.forwarded[-1])
    later = [number for number in breaks(session.forwarded) if number >= count]
    assert len(later) <= 1, "documents that were new have filled the budget: the next pass frees room for more turns"


def test_s4_i7_somebody_who_has_shown_nothing_is_sent_no_block_of_others(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """§3.2 goes before I7: a short chat that is recognised by its words alone is sent what its client sent, reduced as
    before; what a document said that somebody attached stays with them."""
    secret = lamps(150)
    session = AgentSession(upstream, [gateway], how="resend", name="short", model="small")
    session.turn("short: keep this.", [], "Yes.", attachments=[{"title": "Secret", "content": secret}])
    assert breaks(session.forwarded) == []
    other = AgentSession(upstream, [gateway], how="resend", name="short", model="small")
    other.said, other.conversation = list(session.said), session.conversation
    other.turn("Who is the keeper of lamp 7?", [], "Who knows.")
    assert other.forwarded[-1] == other.said[:-1]
