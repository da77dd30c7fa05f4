"""What is read of a tenant's past on both databases: bounded, of the current branch, and the tenant's own (§10.12)."""

from gateway.core.clock import SystemClock
from gateway.core.ids import artifact_id, new_id
from gateway.core.types.conversation import new_message
from gateway.core.types.memory import ThingQuery
from gateway.core.types.records import NewConversation
from gateway.pipeline.features.entity_memory import noted
from gateway.storage.cache.memory_cache import MemoryCache
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.conversations.reading import PastReader
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.entities.entity_store import EntityStore
from tests.support.answers import there
from tests.unit.making import assistant, user


async def begun(transactions: DatabaseTransactions, tenant: str, *texts: str) -> str:
    """A conversation in which these were said in turn."""
    clock = SystemClock()
    records = ConversationRecords(transactions, clock, MemoryCache(2**20, clock))
    bodies = [user(text) if number % 2 == 0 else assistant(text) for number, text in enumerate(texts)]
    new = NewConversation(new_id("conv_"), {}, tuple(map(new_message, bodies)))
    return (await records.create(tenant, new, new_id("req_"))).conversation_id


def said(found: object) -> list[str]:
    return [str(each.content) for each in found.messages]  # type: ignore[attr-defined]


async def test_the_latest_that_fits_is_read_and_the_large_passed_over(
    transactions: DatabaseTransactions, tenant: str
) -> None:
    past = PastReader(transactions)
    own = await begun(transactions, tenant, "first", "x" * 5000, "third", "fourth")
    whole = there(await past.texts(tenant, own, 10**6))
    assert (said(whole), whole.complete) == (["first", "x" * 5000, "third", "fourth"], True)
    assert 5000 < whole.size < 6000
    part = there(await past.texts(tenant, own, 1000))
    assert (said(part), part.complete) == (["first", "third", "fourth"], False)
    assert part.size <= 1000
    latest = there(await past.texts(tenant, own, 10**6, 2))
    assert (said(latest), latest.complete) == (["third", "fourth"], False)


async def test_the_latest_conversations_are_the_tenants_own(transactions: DatabaseTransactions, tenant: str) -> None:
    past = PastReader(transactions)
    first = await begun(transactions, tenant, "Where is the Harbour?", "There.")
    other = await begun(transactions, f"{tenant}-other", "Where is the harbour?", "Here.")
    second = await begun(transactions, tenant, "Who is there?", "Nobody.")
    assert [each.id for each in await past.recent(tenant, 5)] == [second, first]
    assert [each.id for each in await past.recent(tenant, 1)] == [second]
    assert [each.id for each in await past.recent(tenant, 5, "the harbour")] == [first]
    assert [each.id for each in await past.recent(tenant, 5, "%\x00_")] == []
    assert [each.id for each in await past.lines(tenant, [first, other, "conv_x"])] == [first]
    assert await past.texts(tenant, other, 1000) is None
    assert await past.holders(tenant, artifact_id("x"), 5) == ()


async def test_things_are_noted_for_a_user_without_a_conversation(
    transactions: DatabaseTransactions, tenant: str
) -> None:
    async def secret() -> bytes:
        return b"secret"

    memory = EntityStore(transactions, SystemClock(), secret, MemoryCache(1000, SystemClock()))
    made = await memory.note(tenant, None, (noted("order", "A-77", None, "created"),), "ann", None)
    assert [(each.scope, each.conversation_id, each.times) for each in made] == [("user", None, 1)]
    again = await memory.note(tenant, None, (noted("order", "A-77", None, "changed"),), "ann", None)
    assert [(each.memory_id, each.times) for each in again] == [(made[0].memory_id, 2)]
    place = await memory.place_of(tenant, "ann")
    assert len((await memory.page(tenant, ThingQuery(place=place))).found) == 1
    assert not (await memory.page(f"{tenant}-other", ThingQuery())).found
