"""§13.3: outlines of conversations and single requests, on both databases."""

from decimal import Decimal

import pytest

from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.errors import ConversationNotFound, NotFound
from gateway.core.ids import new_id
from gateway.core.types.conversation import ConversationRef
from gateway.core.types.turn import TurnCommit
from gateway.inspection.explained_request import DELETED, NO_MESSAGES, NOT_STORED, RELAYED, explained_request
from gateway.inspection.reader import ExplanationReader
from gateway.storage.conversations.reading import PastReader
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.large_documents import LargeDocuments
from gateway.storage.store import ConversationStore
from gateway.storage.turns.questions import beginning
from tests.integration.commits import bill, document, message, turn
from tests.support.answers import there

PLAN = {"artifacts": [], "search_queries": ["lamp"], "reasoning": "r", "prompt": "You plan.\n\nQuestion: lamp?"}
QUESTION = 'Who "keeps" lamp 41? ñ\n' + "x" * 1000


@pytest.fixture
def explained(transactions: DatabaseTransactions) -> ExplanationReader:
    return ExplanationReader(PastReader(transactions), LargeDocuments(transactions, SystemClock()))


async def two_turns(store: ConversationStore, tenant: str) -> tuple[str, list[TurnCommit]]:
    """A conversation of two turns, the second with a document and a plan, and a sibling of its first answer."""
    name = new_id("conv_")
    instructions = ({"role": "system", "content": "Be brief."},)
    first = turn(tenant, name, QUESTION, ("one", "two"), created=True, instructions=instructions)
    await store.commit(first)
    answer = there(first.turn).answers[0]
    record = {"artifact_id": "art_0123456789abcdef", "strategy": "include_full", "source": "attachment:0:paper"}
    used = {"artifacts_processed": [{**record, "original_size_chars": 10, "processed_size_chars": 10}]}
    entry = {"metadata": {"usage": {"prompt_tokens": 7}, "context_utilization": used}}
    second = turn(
        tenant,
        name,
        "And 42?",
        ("three",),
        parent_id=answer.message.message_id,
        base=answer.digest,
        attachments=(document("All of it."),),
        completion_plan=PLAN,
        instructions=instructions,
        entry=entry,
    )
    await store.commit(second)
    return name, [first, second]


async def test_s13_3_an_outline_has_all_branches_and_the_sums_of_the_ledger(
    store: ConversationStore, explained: ExplanationReader, tenant: str
) -> None:
    name, (first, second) = await two_turns(store, tenant)
    found = await explained.conversation(tenant, name)
    assert [each.number for each in found.page] == [1, 2]
    assert found.page[0].question == jsons.loads(jsons.dumps(QUESTION))[: len(found.page[0].question or "")]
    assert len(found.page[0].question or "") > 300
    assert found.page[1].request_ids == (second.ledger.request_id,)
    costs = [call.total or Decimal(0) for each in (first, second) for call in each.ledger.calls]
    assert found.page[0].sums.cost + found.page[1].sums.cost == sum(costs)
    assert found.outline.sums.requests == 2
    assert [run.why for run in found.branches] == [None, None, "choice"]
    other = await explained.conversation(tenant, name, branch=found.branches[2].leaf_id)
    assert (other.turns, other.is_current) == (1, False)
    assert (await explained.conversation(None, name)).outline.tenant == tenant


async def test_s13_3_another_tenant_s_conversation_and_request_do_not_exist(
    store: ConversationStore, explained: ExplanationReader, tenant: str
) -> None:
    name, (first, _) = await two_turns(store, tenant)
    for owner, conversation in (("somebody", name), (tenant, "conv_nowhere"), (None, "conv_nowhere")):
        with pytest.raises(ConversationNotFound):
            await explained.conversation(owner, conversation)
    for owner, request in (("somebody", first.ledger.request_id), (None, "req_nowhere"), (tenant, "chatcmpl-no")):
        with pytest.raises(NotFound):
            await explained.request(owner, request)


async def test_s13_3_a_request_has_its_branch_its_plan_and_its_documents(
    store: ConversationStore, explained: ExplanationReader, tenant: str
) -> None:
    _, (first, second) = await two_turns(store, tenant)
    for owner, name in ((tenant, second.ledger.request_id), (None, second.ledger.completion_id or "")):
        stored = await explained.request(owner, name)
        assert stored.number == 2
        assert there(stored.before).entry.request_id == first.ledger.request_id
        found = explained_request(stored, 8000)
        assert found.planner_prompt == PLAN["prompt"]
        assert "prompt" not in there(found.plan)
        assert found.artifacts[0].original == "All of it."
        assert found.question == "And 42?"
        assert found.answer == {"role": "assistant", "content": "three"}


async def test_s13_3_a_plan_goes_with_an_item_and_all_with_its_conversation(
    store: ConversationStore, explained: ExplanationReader, tenant: str
) -> None:
    name, (_, second) = await two_turns(store, tenant)
    await store.delete_conversation(tenant, name)
    found = explained_request(await explained.request(tenant, second.ledger.request_id), 8000)
    assert (found.reason, found.plan, found.planner_prompt, found.changes) == (DELETED, None, None, None)
    assert found.bill.calls


async def test_s13_3_a_bill_without_content_says_why(
    store: ConversationStore, explained: ExplanationReader, tenant: str
) -> None:
    alone = TurnCommit(bill(tenant, None))
    await store.commit(alone)
    assert (await explained.request(tenant, alone.ledger.request_id)).reason == NOT_STORED
    relayed = TurnCommit(bill(tenant, None, endpoint="embeddings", metadata={"managed": False}))
    await store.commit(relayed)
    assert (await explained.request(tenant, relayed.ledger.request_id)).reason == RELAYED
    name, _ = await two_turns(store, tenant)
    without = TurnCommit(bill(tenant, name))
    await store.commit(without)
    assert (await explained.request(tenant, without.ledger.request_id)).reason == NO_MESSAGES
    failed = turn(tenant, name, "Fails", (), status="failed", at_head=False)
    await store.commit(failed)
    assert (await explained.request(tenant, failed.ledger.request_id)).request is not None
    assert await store.find_conversation(tenant, ConversationRef(name), max_bytes=None) is not None


@pytest.mark.parametrize(
    ("text", "most"), [("a\\u00e9" * 300, 400), ('"quoted" \\ and\nlines' * 40, 400), ("\U0001f600" * 300, 380)]
)
def test_how_a_message_begins_is_read_wherever_its_body_was_cut(text: str, most: int) -> None:
    for content in (text, [{"type": "text", "text": text}]):
        body = jsons.dumps_stored(message("user", content).body)
        for cut in range(most - 12, most):
            found = beginning(body[:cut])
            assert found
            assert text.startswith(found)
