"""A stored bill grows with what its request decided; whoever looks it up gets every record (guarantee §6.2, ADR 19)."""

import json
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.config.settings import Settings
from gateway.core.errors import UpstreamUnreachable
from gateway.core.ids import artifact_id
from gateway.core.jsons import Json
from gateway.core.types.bill import nameless
from gateway.core.types.chat import ModelFacts
from gateway.core.types.omitted_records import UNLISTED
from gateway.core.types.records import ItemQuery
from gateway.core.types.turn import CompletionQuery
from gateway.storage.cache.memory_cache import MemoryCache
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.conversations.transfers import ConversationTransfer
from gateway.storage.database import schema
from tests.support.agent_loop import Agent
from tests.support.answers import there
from tests.support.in_process import InProcess

pytestmark = pytest.mark.in_turn("module_storage_url")

FEW, MANY = 10, 25
MAX_TIMES = 1.5
"""Of the bytes of a bill after `FEW` steps, those after `MANY`: ids, figures and numbers have a few digits more."""
SMALL_WINDOW = 6000


def pages(number: int) -> str:
    """A result with some words that are nowhere else."""
    return "\n".join(f"The keeper of lamp {number}-{n} is called Name{number * 31 + n}." for n in range(30))


@pytest.fixture(params=[2**20, SMALL_WINDOW], ids=["all-fits", "small-window"])
async def agent(request: pytest.FixtureRequest, module_storage_url: str) -> AsyncIterator[Agent]:
    made = await started(Agent(), module_storage_url, request.param)
    yield made
    await made.process.close()


async def started(agent: Agent, url: str, window: int) -> Agent:
    settings = Settings.model_validate({"storage": {"url": url}, "context": {"planning": "never"}})
    facts = {"m": ModelFacts("m", context_window=window, max_input_tokens=window)}
    agent.process = await InProcess(settings, facts, agent.answer, remembers=True).prepare()
    return agent


async def kept(agent: Agent, completion_id: str) -> tuple[str, str]:
    """The request's id, and its bill as it is stored."""
    columns = (schema.ledger.c.request_id, schema.ledger.c.response_metadata)
    query = sa.select(*columns).where(schema.ledger.c.completion_id == completion_id)
    return await agent.process.transactions.run(lambda c: tuple(c.execute(query).one()))


async def require_all(agent: Agent) -> None:
    """Each completion is found with the very list that its request computed, alone, in a page and in an export."""
    assert agent.conversation is not None
    page = await agent.process.store.list_completions("tenant", CompletionQuery(agent.conversation, limit=1000))
    transfer = ConversationTransfer(agent.process.transactions, SystemClock())
    exported = await transfer.export_conversation("tenant", agent.conversation)
    assert page is not None
    assert exported is not None
    documents = {each["completion_id"]: each for each in json.loads(b"".join(exported))["requests"]}
    assert len(page.found) >= len(agent.completions)
    for number, each in enumerate(page.found):
        entry = each.ledger
        due = agent.process.computed_bill(entry.request_id)
        ways = [entry.metadata, documents[entry.completion_id]["response_metadata"]]
        bills = [way["context_utilization"] for way in ways]
        if number % 10 == 9:
            bills.append(await agent.process.bill(entry.request_id))
        for found in bills:
            assert found["artifacts_processed"] == due["artifacts_processed"]
            assert found.keys() == due.keys()


@pytest.mark.parametrize(
    ("window", "resends"),
    [(2**20, False), (2**20, True), (SMALL_WINDOW, False)],
    ids=["all-fits", "all-fits-resent", "small-window"],
)
async def test_s6_2_a_stored_bill_does_not_grow_with_what_stands(
    module_storage_url: str, window: int, resends: bool
) -> None:
    agent = await started(Agent(resends=resends), module_storage_url, window)
    try:
        await agent.turn(f"Who keeps the lamps? {resends}", [pages(n) for n in range(MANY)])
        sizes = [len((await kept(agent, each))[1]) for each in agent.completions]
        few, many = max(sizes[FEW - 2 : FEW + 3]), max(sizes[-5:])
        assert many <= MAX_TIMES * few
        await require_all(agent)
    finally:
        await agent.process.close()


async def test_s6_2_a_looked_up_bill_has_the_list_that_its_request_computed(agent: Agent) -> None:
    """A loop with parallel and repeated results, documents, turns, restored steps, a branch and a failed answer."""
    polls = ["still running", "still running", pages(50), "still running"]
    document = {"title": "Lamps", "content": "\n\n".join(pages(n) for n in range(70, 74))}
    await agent.turn("Who keeps lamp 3-4?", [pages(n) for n in range(8)], attachments=[document])
    await agent.turn("And lamp 50-1?", [*polls, [pages(9), "still running", pages(10)], pages(11)], first=20)
    said = list(agent.said)
    await agent.send({"role": "user", "content": "Who keeps lamp 72-9, and who 3-11?"})
    await agent.send({"role": "user", "content": "And without tools: who keeps lamp 9-2?"}, tools=False)
    other = [*said, {"role": "user", "content": "Something else: who keeps lamp 10-3?"}]
    branch = await agent.process.ask({"model": "m", "messages": other, "conversation": agent.conversation})
    agent.completions.append(branch["id"])
    await agent.turn("Once more.", [pages(n) for n in range(12, 30)], first=40)
    agent.fails = True
    with pytest.raises(UpstreamUnreachable):
        await agent.send({"role": "user", "content": "Is it?"})
    await require_all(agent)
    unlisted = [(await kept(agent, each))[1].count("artifacts_unlisted") for each in agent.completions]
    assert sum(unlisted) > len(unlisted) / 2


def without(records: list[Json], gone: set[str]) -> list[Json]:
    """Without those that stood and are gone; the bill that a record was decided with keeps it."""
    return [each for each in records if not (each.get("standing") and each["artifact_id"] in gone)]


async def items_of(agent: Agent, kind: str) -> tuple[ConversationRecords, list[Json]]:
    records = ConversationRecords(agent.process.transactions, SystemClock(), MemoryCache(2**20, SystemClock()))
    page = await records.items("tenant", there(agent.conversation), ItemQuery(limit=1000, newest_first=False))
    return records, [item for item in page.found if item["type"] == kind]


@pytest.mark.in_turn("which")
@pytest.mark.parametrize("which", [0, 3, -1], ids=["first", "middle", "last"])
async def test_s2_a_deleted_result_is_in_no_list_that_it_stood_in(agent: Agent, which: int) -> None:
    """The others stay, also where the deleted one is where the path of a bill ends."""
    texts = [pages(n) for n in range(8)]
    await agent.turn("Who keeps lamp 3-4?", texts)
    await agent.send({"role": "user", "content": "And lamp 5-1?"})
    before = {each: (await agent.process.bill(each))["artifacts_processed"] for each in agent.completions}
    records, results = await items_of(agent, "function_call_output")
    await records.delete_item("tenant", there(agent.conversation), results[which]["id"])
    for completion_id, listed in before.items():
        found = (await agent.process.bill(completion_id))["artifacts_processed"]
        assert found == without(listed, {artifact_id(texts[which])})


async def test_s2_what_is_left_is_listed_as_it_was_whatever_was_deleted_before_it(agent: Agent) -> None:
    """A result whose call was deleted is not listed; all others keep their numbers, of messages and of steps."""
    texts = [pages(n) for n in range(8)]
    await agent.turn("Who keeps lamp 3-4?", texts)
    await agent.turn("And lamp 9-1?", [pages(n) for n in range(9, 12)], first=10)
    before = {each: (await agent.process.bill(each))["artifacts_processed"] for each in agent.completions}
    gone: set[str] = set()
    for kind, which in (("function_call", 3), ("function_call_output", 1), ("function_call_output", -1)):
        records, items = await items_of(agent, kind)
        results = {item["call_id"]: item for item in (await items_of(agent, "function_call_output"))[1]}
        gone.add(artifact_id(str(results[items[which]["call_id"]]["output"])))
        await records.delete_item("tenant", there(agent.conversation), items[which]["id"])
        for completion_id, listed in before.items():
            assert (await agent.process.bill(completion_id))["artifacts_processed"] == without(listed, gone)


async def test_s2_what_stood_is_not_listed_where_nobody_noted_a_deletion(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a request that was under way: its numbers are no longer those of the path, and no other is taken."""
    texts = [pages(n) for n in range(8)]
    await agent.turn("Who keeps lamp 3-4?", texts)
    before = (await agent.process.bill(agent.completions[-1]))["artifacts_processed"]
    records, results = await items_of(agent, "function_call_output")
    monkeypatch.setattr("gateway.storage.conversations.delete_item.note_deletion", lambda *_: None)
    await records.delete_item("tenant", there(agent.conversation), results[2]["id"])
    found = (await agent.process.bill(agent.completions[-1]))["artifacts_processed"]
    assert found == [record for record in before if "standing" not in record]


async def test_s2_of_a_deleted_conversation_a_bill_lists_what_its_request_decided(agent: Agent) -> None:
    """And counts what stood, as the answer did; no name comes back."""
    await agent.turn("Who keeps lamp 3-4?", [pages(n) for n in range(8)])
    before = {each: await agent.process.bill(each) for each in agent.completions}
    assert await agent.process.store.delete_conversation("tenant", there(agent.conversation))
    for completion_id, bill in before.items():
        found = await agent.process.bill(completion_id)
        fresh = [{**r, "source": nameless(r["source"])} for r in bill["artifacts_processed"] if "standing" not in r]
        assert found == {**bill, "artifacts_processed": fresh}


async def test_s6_2_a_replica_of_the_version_before_reads_the_bill_and_writes_its_own(agent: Agent) -> None:
    """A row of this version is a bill with a shorter list to it; a row with the whole list stays as it stands."""
    await agent.turn("Who keeps lamp 3-4?", [pages(n) for n in range(8)])
    request_id, text = await kept(agent, agent.completions[-1])
    short = json.loads(text)["context_utilization"]
    due = agent.process.computed_bill(request_id)
    assert {*short} - {*due} == {UNLISTED}
    assert all(short[name] == due[name] for name in due if name != "artifacts_processed")
    assert all(record in due["artifacts_processed"] for record in short["artifacts_processed"])
    table, old = schema.ledger, jsons.dumps_text({**json.loads(text), "context_utilization": due})
    update = table.update().where(table.c.request_id == request_id)
    await agent.process.transactions.run(lambda c: c.execute(update.values(response_metadata=old)), write=True)
    assert await agent.process.bill(agent.completions[-1]) == due


@pytest.mark.parametrize("spoilt", ["{}", '{"runs":[[1]],"behind":"x"}', '{"runs":7,"behind":[1]}', '{"behind":3}'])
async def test_s6_2_a_bill_that_somebody_has_spoilt_is_still_found(agent: Agent, spoilt: str) -> None:
    await agent.turn("Who keeps lamp 3-4?", [pages(n) for n in range(3)])
    request_id, text = await kept(agent, agent.completions[-1])
    bill = json.loads(text)
    bill["context_utilization"][UNLISTED] = json.loads(spoilt)
    table = schema.ledger
    update = table.update().where(table.c.request_id == request_id).values(response_metadata=json.dumps(bill))
    await agent.process.transactions.run(lambda c: c.execute(update), write=True)
    found = await agent.process.bill(agent.completions[-1])
    assert found["artifacts_processed"] == bill["context_utilization"]["artifacts_processed"]
