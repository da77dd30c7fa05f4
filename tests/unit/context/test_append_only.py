"""What was forwarded is frozen until something has to leave (guarantee §4 I7), in this process."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.agent_session import begins_with, breaks, filled, talk
from tests.support.documents import keeper, lamps, prompt_tokens, prose
from tests.support.local import LocalGateway


@pytest.fixture
def local() -> Iterator[LocalGateway]:
    with LocalGateway() as made:
        yield made


def test_s4_i7_two_models_in_one_conversation(local: LocalGateway) -> None:
    """Each model's requests begin with what it was sent before, whatever another model was sent in between."""
    session = filled(local.session(name="two models"))
    sent: dict[str, Any] = {"small": session.forwarded[-1], "gpt-4o": []}
    for turn, model in enumerate(("gpt-4o", "small", "gpt-4o", "small"), 70):
        session.model = model
        talk(session, range(turn, turn + 1), words=2, steps=1)
        for forwarded in session.forwarded[-2:]:
            assert begins_with(forwarded, sent[model]), (turn, model)
            sent[model] = forwarded
    assert begins_with(session.said, sent["gpt-4o"]), "the large window was sent everything, as it was said"


def test_s4_i7_a_larger_budget_later_changes_nothing_that_was_frozen(local: LocalGateway) -> None:
    """Nor does a short answer, for which less room is reserved; a smaller budget makes something leave."""
    session = filled(local.session(name="budgets", context={"max_input_tokens": 2000}))
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


def test_s4_i7_documents_stay_where_they_were_put(local: LocalGateway) -> None:
    """Attached documents stand in the block of the turn that brought them; what had to leave comes back as an extract
    in a new block when it is asked for, and stays there, too."""
    session = local.session(name="documents")
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


def test_s4_i7_somebody_who_has_shown_nothing_is_sent_no_block_of_others(local: LocalGateway) -> None:
    """§3.2 goes before I7: a short chat that is recognised by its words alone is sent what its client sent, reduced as
    before; what a document said that somebody attached stays with them."""
    secret = lamps(150)
    session = local.session(how="resend", name="short", model="small")
    session.turn("short: keep this.", [], "Yes.", attachments=[{"title": "Secret", "content": secret}])
    assert breaks(session.forwarded) == []
    other = local.session(how="resend", name="short", model="small")
    other.said, other.conversation = list(session.said), session.conversation
    other.turn("Who is the keeper of lamp 7?", [], "Who knows.")
    assert other.forwarded[-1] == other.said[:-1]
