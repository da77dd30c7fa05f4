"""Large documents in the storage: their text, their index and who makes it, their end (guarantee §14.7)."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.ids import artifact_id, content_digest, new_id
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.places import LargeIndex
from gateway.operations.document_indexing import DocumentIndexing
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.encryption.rewrite import find_others, seal_all
from gateway.storage.large_documents import HELD, KEPT, TRIES, ArrivingTexts, LargeDocuments
from gateway.storage.store import ConversationStore
from tests.integration.commits import turn
from tests.support.answers import there
from tests.support.schemas import bring_up

pytestmark = pytest.mark.in_turn("module_storage_url")

TEXT = "\n".join(f"Lamp {number} is kept by Name{number * 7}x." for number in range(2_000))
DIGEST = content_digest(TEXT)
TABLES = (schema.large_documents, schema.document_regions, schema.document_postings)


class MuchLater(SystemClock):
    """A clock by which nobody comes any more."""

    def now(self) -> datetime:
        return super().now() + KEPT + timedelta(seconds=1)


class Later(SystemClock):
    """A clock that is ahead."""

    def now(self) -> datetime:
        return super().now() + HELD + timedelta(seconds=1)


def keeping_large(transactions: DatabaseTransactions, stored: Callable[[], None] | None = None) -> ConversationStore:
    clock = SystemClock()
    return ConversationStore(transactions, clock, arriving=ArrivingTexts(transactions, clock, 1_000, stored))


@pytest.fixture
def keeping(transactions: DatabaseTransactions) -> ConversationStore:
    """A store for which the text is a large document."""
    return keeping_large(transactions)


@pytest.fixture
def large(transactions: DatabaseTransactions) -> LargeDocuments:
    return LargeDocuments(transactions, SystemClock())


@pytest.fixture(autouse=True)
async def nothing_left(transactions: DatabaseTransactions) -> None:
    """Claims are of all tenants: what a test before has left is none of this one's."""
    await transactions.run(lambda c: c.execute(schema.large_documents.delete()), write=True)


def document(text: str = TEXT) -> Artifact:
    name = artifact_id(text)
    metadata = {"attachment_type": "document", "label": None}
    return Artifact(
        name, ArtifactType.DOCUMENT, text, len(text), "attachment:0:Lamps", title="Lamps", metadata=metadata
    )


async def begun(store: ConversationStore, tenant: str) -> str:
    conversation = new_id("conv_")
    await store.commit(turn(tenant, conversation, created=True, attachments=(document(),)))
    return conversation


async def known(large: LargeDocuments, tenant: str) -> LargeIndex | None:
    found = await large.indexes(tenant, [DIGEST])
    return found[0] if found else None


async def rows(transactions: DatabaseTransactions, tenant: str) -> list[int]:
    def count(connection: sa.Connection) -> list[int]:
        each = (sa.select(sa.func.count()).where(table.c.tenant == tenant) for table in TABLES)
        return [int(connection.execute(query).scalar_one()) for query in each]

    return await transactions.run(count)


async def made(large: LargeDocuments, tenant: str) -> None:
    """Makes the index as a running gateway does."""
    arrived = asyncio.Event()
    arrived.set()
    running = asyncio.ensure_future(DocumentIndexing(large, arrived).run())

    for _ in range(3_000):
        index = await known(large, tenant)
        if index is not None and index.status == "ready":
            break
        await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_s14_7_the_turn_stores_the_text_once_and_the_index_is_made_behind_it(
    large: LargeDocuments, transactions: DatabaseTransactions, tenant: str
) -> None:
    woken: list[bool] = []
    keeping = keeping_large(transactions, lambda: woken.append(True))
    conversation = await begun(keeping, tenant)
    await begun(keeping, tenant)
    assert woken == [True, True]
    index = there(await known(large, tenant))
    assert (index.chars, index.indexed, index.status) == (len(TEXT), 0, "building")
    assert (await rows(transactions, tenant))[:2] == [1, index.regions]
    bodies = sa.select(schema.attachments.c.body).where(schema.attachments.c.conversation_id == conversation)
    body = await transactions.run(lambda connection: connection.execute(bodies).scalar_one())
    assert "Lamp 7" not in body
    read = (await large.regions(tenant, {DIGEST: range(index.regions)}))[DIGEST]
    assert "".join(each.text for each in read) == TEXT
    assert await large.regions("somebody else", {DIGEST: [0]}) == {DIGEST: []}
    await made(large, tenant)
    ready = there(await known(large, tenant))
    assert ready.progress == 1.0


async def test_s14_7_one_process_makes_an_index_and_another_goes_on_where_it_died(
    keeping: ConversationStore, large: LargeDocuments, transactions: DatabaseTransactions, tenant: str
) -> None:
    await begun(keeping, tenant)
    first = there(await large.claim("one"))
    assert await large.claim("two") is None
    moved = there(await large.add_segment(first, 0, 3, [(1, b"x")]))
    assert await LargeDocuments(transactions, Later()).claim("two") is not None, "whoever held it has died"
    assert await large.add_segment(moved, 1, 3, [(2, b"y")]) is None, "it is another's now"
    index = there(await known(large, tenant))
    assert index.indexed == 3
    assert (await rows(transactions, tenant))[2] == 1


async def test_s14_7_an_index_that_cannot_be_made_is_left_after_a_few_tries(
    keeping: ConversationStore, large: LargeDocuments, tenant: str
) -> None:
    await begun(keeping, tenant)
    for _ in range(TRIES):
        claim = there(await large.claim("one"))
        await large.give_up(claim, failed=True)
    assert await large.claim("one") is None
    index = there(await known(large, tenant))
    assert index.status == "failed"


async def test_s14_7_a_document_goes_with_its_last_holder(
    keeping: ConversationStore, large: LargeDocuments, transactions: DatabaseTransactions, tenant: str
) -> None:
    other = f"{tenant}-other"
    first, second = await begun(keeping, tenant), await begun(keeping, tenant)
    await begun(keeping, other)
    await made(large, tenant)
    await keeping.delete_conversation(tenant, first)
    assert all(await rows(transactions, tenant))
    await keeping.delete_conversation(tenant, second)
    assert await rows(transactions, tenant) == [0, 0, 0]
    assert (await rows(transactions, other))[0] == 1, "another tenant's is its own"


async def test_s14_7_what_is_deleted_while_it_is_indexed_is_gone(
    keeping: ConversationStore, large: LargeDocuments, transactions: DatabaseTransactions, tenant: str
) -> None:
    conversation = await begun(keeping, tenant)
    claim = there(await large.claim("one"))
    await keeping.delete_conversation(tenant, conversation)
    assert await large.unindexed(claim, 10) == []
    assert await large.add_segment(claim, 0, 3, [(1, b"x")]) is None
    assert await rows(transactions, tenant) == [0, 0, 0]


LONG = "\n".join(f"Lamp {number} is kept by Name{number * 7}x." for number in range(160_000))


async def test_s14_7_a_long_text_comes_in_slices_and_other_turns_pass_between_them(
    keeping: ConversationStore, large: LargeDocuments, transactions: DatabaseTransactions, tenant: str
) -> None:
    seen: list[list[str]] = []

    async def look() -> None:
        statuses = sa.select(schema.large_documents.c.status).where(schema.large_documents.c.tenant == tenant)
        while True:
            seen.append(list(await transactions.run(lambda c: c.execute(statuses).scalars().all())))
            await keeping.commit(turn(f"{tenant}-other", new_id("conv_"), created=True))
            assert await large.claim("one") is None, "nothing is indexed that no turn has brought"

    looking = asyncio.ensure_future(look())
    conversation = new_id("conv_")
    await keeping.commit(turn(tenant, conversation, created=True, attachments=(document(LONG),)))
    looking.cancel()
    assert isinstance((await asyncio.gather(looking, return_exceptions=True))[0], asyncio.CancelledError)
    assert ["arriving"] in seen
    digest = content_digest(LONG)
    found = (await large.indexes(tenant, [digest]))[0]
    assert found.status == "building"
    read = (await large.regions(tenant, {digest: range(found.regions)}))[digest]
    assert "".join(each.text for each in read) == LONG


async def test_s14_7_two_requests_that_bring_the_same_long_text_store_it_once(
    keeping: ConversationStore, large: LargeDocuments, tenant: str
) -> None:
    both = (turn(tenant, new_id("conv_"), created=True, attachments=(document(LONG),)) for _ in range(2))
    await asyncio.gather(*map(keeping.commit, both))
    digest = content_digest(LONG)
    found = (await large.indexes(tenant, [digest]))[0]
    read = (await large.regions(tenant, {digest: range(found.regions)}))[digest]
    assert "".join(each.text for each in read) == LONG


async def test_s14_7_what_of_a_text_no_turn_came_for_is_deleted_or_taken_up(
    keeping: ConversationStore, large: LargeDocuments, transactions: DatabaseTransactions, tenant: str
) -> None:
    digest = content_digest(LONG)
    for clock, left in ((SystemClock(), 1), (MuchLater(), 0)):
        await ArrivingTexts(transactions, SystemClock()).store(tenant, {digest: LONG})
        await ArrivingTexts(transactions, clock).expire()
        assert (await rows(transactions, tenant))[0] == left
    await ArrivingTexts(transactions, SystemClock()).store(tenant, {digest: LONG})
    some = (schema.document_regions.c.tenant == tenant, schema.document_regions.c.number >= 300)
    await transactions.run(lambda c: c.execute(schema.document_regions.delete().where(*some)), write=True)
    conversation = new_id("conv_")
    await keeping.commit(turn(tenant, conversation, created=True, attachments=(document(LONG),)))
    found = (await large.indexes(tenant, [digest]))[0]
    read = (await large.regions(tenant, {digest: range(found.regions)}))[digest]
    assert "".join(each.text for each in read) == LONG
    await ArrivingTexts(transactions, MuchLater()).expire()
    assert (await rows(transactions, tenant))[0] == 1, "a turn has it now"


async def test_s14_7_a_text_goes_where_its_conversation_was_deleted_meanwhile(
    keeping: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    await keeping.commit(turn(tenant, new_id("conv_"), created=False, attachments=(document(LONG),)))
    assert await rows(transactions, tenant) == [0, 0, 0]


async def test_s14_7_text_and_index_are_sealed(
    module_storage_url: str, transactions: DatabaseTransactions, tenant: str
) -> None:
    settings = {"url": module_storage_url, "encryption_key": "11" * 32}
    sealed = open_transactions(StorageSettings.model_validate(settings))
    try:
        await bring_up(sealed)
        store = keeping_large(sealed)
        texts = LargeDocuments(sealed, SystemClock())
        conversation = await begun(store, tenant)
        await made(texts, tenant)

        def raw(connection: sa.Connection) -> list[str]:
            columns = (schema.document_regions.c.text, schema.document_postings.c.data)
            plain = (sa.select(sa.type_coerce(each, sa.Text)).where(each.table.c.tenant == tenant) for each in columns)
            return [value for query in plain for value in connection.execute(query).scalars()]

        values = await transactions.run(raw)
        assert values
        assert all(value.startswith("\x1aenc1:") for value in values)
        read = (await texts.regions(tenant, {DIGEST: [0]}))[DIGEST]
        assert read[0].text == TEXT[: len(read[0].text)]
        assert (await texts.indexes(tenant, [DIGEST], list(range(256))))[0].data
        await store.delete_conversation(tenant, conversation)
    finally:
        await sealed.close()


@pytest.mark.chaos
async def test_s14_7_what_was_stored_before_there_was_a_key_is_sealed_by_the_command(
    keeping: ConversationStore, large: LargeDocuments, module_storage_url: str, tenant: str
) -> None:
    await begun(keeping, tenant)
    await made(large, tenant)
    settings = {"url": module_storage_url, "encryption_key": "11" * 32}
    sealed = open_transactions(StorageSettings.model_validate(settings))
    try:
        async for _ in seal_all(sealed):
            pass
        left = {each.table: each.rows.total() async for each in find_others(sealed)}
        assert {left["document_regions"], left["document_postings"]} == {0}
        texts = LargeDocuments(sealed, SystemClock())
        assert (await texts.regions(tenant, {DIGEST: [0]}))[DIGEST][0].text == TEXT[:8_000].rpartition("\n")[0] + "\n"
    finally:
        await sealed.close()
