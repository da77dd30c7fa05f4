"""§14.5: one contract for contents of files, whoever keeps them: a folder, either database, a bucket of S3."""

import asyncio
import hashlib
import importlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from gateway.core import errors
from gateway.core.clock import SystemClock
from gateway.core.config.setting_sections import FileSettings, S3Settings
from gateway.core.config.settings import CacheSettings
from gateway.core.ports import CacheBackend, ContentStore
from gateway.core.types.artifacts import cache_group
from gateway.core.types.audit_log import AuditActor
from gateway.core.types.chat import RequestCaller
from gateway.core.types.files import ContentPlace, FileQuery
from gateway.documents.files import file_service as store
from gateway.documents.files.factory import DiskContents
from gateway.documents.files.file_service import PIECES_AT_ONCE, FileService, UploadFields
from gateway.documents.files.sealed import object_name, opened, sealed
from gateway.documents.files.uploads import PartUploads
from gateway.operations.encrypting import seal_contents
from gateway.storage.cache.memory_cache import open_cache
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.encryption.columns import KeyVault, for_row
from gateway.storage.store import ConversationStore
from gateway.storage.stored_files import DatabaseContents, FileRows, digests_of, kinds_elsewhere
from gateway.storage.turns.bills import ledger_row
from tests.integration.commits import bill, document, quoted, turn
from tests.integration.traces import traces
from tests.support.hand_clock import DayClock

pytestmark = pytest.mark.in_turn("module_storage_url")

NAMES = iter(range(1000))
BIG = bytes(range(256)) * 4096 * 9  # 9 MiB: parts of a bucket, pieces of a database


@pytest.fixture(scope="module")
def bucket() -> Any:
    """A bucket of moto's own S3."""
    server = importlib.import_module("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    httpx.put(f"http://{host}:{port}/files")
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["disk", "database", "s3"])
async def contents(
    request: pytest.FixtureRequest, tmp_path: Path, transactions: DatabaseTransactions
) -> AsyncIterator[ContentStore]:
    if request.param == "disk":
        yield DiskContents(tmp_path)
    elif request.param == "database":
        yield DatabaseContents(transactions)
    else:
        from gateway.upstream.s3 import S3Contents

        where = {"endpoint": request.getfixturevalue("bucket"), "prefix": f"p{next(NAMES)} ä/"}
        keys = {"access_key": SecretStr("k"), "secret_key": SecretStr("s")}
        async with httpx.AsyncClient() as client:
            yield S3Contents(S3Settings.model_validate({"bucket": "files", **where, **keys}), client)


Make = Callable[..., FileService]


@pytest.fixture
def clock() -> DayClock:
    return DayClock(datetime(2026, 11, 21, tzinfo=UTC))


@pytest.fixture
def make(contents: ContentStore, transactions: DatabaseTransactions, clock: DayClock) -> Make:
    """The store over it, with these settings."""

    def made(vault: KeyVault | None = None, cache: CacheBackend | None = None, **settings: Any) -> FileService:
        rows = FileRows(transactions, clock, cache or open_cache(CacheSettings(), SystemClock()))
        return FileService(rows, {"it": contents}, "it", FileSettings.model_validate(settings), vault)

    return made


async def of(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def whole(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


async def all_names(contents: ContentStore, tenant_folder: str = "") -> list[str]:
    return [name async for batch in contents.names() for name in batch if name.startswith(tenant_folder)]


def said() -> UploadFields:
    return UploadFields("a.txt", "user_data", "text/plain")


@pytest.mark.parametrize("content", [b"", b"x", BIG], ids=["empty", "small", "big"])
async def test_s14_5_what_was_put_is_read_until_it_is_deleted(contents: ContentStore, content: bytes) -> None:
    name = f"{'a' * 16}/obj_{next(NAMES):012x}"
    pieces = [content[at : at + 700_001] for at in range(0, len(content), 700_001)]
    await contents.put(name, of(*pieces))
    assert await whole(contents.open(name)) == content
    for start in {len(content) // 2, max(0, len(content) - 1)}:
        assert await whole(contents.open(name, start)) == content[start:]
    assert name in await all_names(contents)
    await contents.delete(name, name)
    assert name not in await all_names(contents)
    with pytest.raises(errors.StorageUnavailable):
        await whole(contents.open(name))


async def test_s14_5_what_breaks_off_leaves_nothing(contents: ContentStore) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield BIG
        raise RuntimeError("the client left")

    name = f"{'b' * 16}/obj_{next(NAMES):012x}"
    with pytest.raises(RuntimeError, match="left"):
        await contents.put(name, broken())
    assert name not in await all_names(contents)


async def test_s14_5_what_ended_an_upload_is_told_also_where_it_cannot_be_cleared_away() -> None:
    """The storage's fault stood in the place of the client's departure, and an end was not obeyed."""
    from gateway.upstream.s3 import S3Contents

    def bucket(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            return httpx.Response(503)
        return httpx.Response(200, headers={"etag": "e"}, content=b"<r><UploadId>u</UploadId></r>")

    async def broken() -> AsyncIterator[bytes]:
        yield BIG
        raise asyncio.CancelledError

    settings = S3Settings.model_validate({"bucket": "files", "access_key": "k", "secret_key": "s"})
    async with httpx.AsyncClient(transport=httpx.MockTransport(bucket)) as client:
        with pytest.raises(asyncio.CancelledError):
            await S3Contents(settings, client).put("a/obj_1", broken())


async def test_s14_5_a_content_stands_once_and_goes_with_its_last_file(
    make: Make, contents: ContentStore, tenant: str
) -> None:
    files, caller = make(), RequestCaller(tenant, None, {})
    before = len(await all_names(contents))
    first = await files.add(caller, of(b"same"), said)
    second = await files.add(caller, of(b"sa", b"me"), said)
    assert len(await all_names(contents)) == before + 1
    await files.delete(tenant, first.id, None)
    record, pieces = await files.content(tenant, second.id)
    assert (await whole(pieces), record.size) == (b"same", 4)
    with pytest.raises(errors.FileNotFound):
        await files.content(f"{tenant}-other", second.id)
    await files.delete(tenant, second.id, None)
    assert len(await all_names(contents)) == before


async def test_s14_5_deleting_and_uploading_at_once_loses_nothing(make: Make, tenant: str) -> None:
    files, caller = make(), RequestCaller(tenant, None, {})
    last = await files.add(caller, of(b"same"), said)
    for _ in range(8):
        added, _gone = await asyncio.gather(files.add(caller, of(b"same"), said), files.delete(tenant, last.id, None))
        assert await whole((await files.content(tenant, added.id))[1]) == b"same"
        last = added


async def test_s14_5_a_deleted_file_leaves_conversations(
    make: Make, transactions: DatabaseTransactions, tenant: str
) -> None:
    """What was attached by its id goes with it, and how requests failed that may have read it; what another file
    brought stays. The trail tells it. What was said of its text in a summary goes, though two have read it."""
    cache = open_cache(CacheSettings(), SystemClock())
    files = make(cache=cache)
    made = await files.add(RequestCaller(tenant, None, {}), of(b"words"), said)
    now = datetime(2026, 11, 21, tzinfo=UTC)
    names = [f"conv_{tenant}", f"conv_read_{tenant}", f"conv_other_{tenant}", f"conv_too_{tenant}"]
    conversations = [{"id": each, "tenant": tenant, "created_at": now, "updated_at": now} for each in names]
    held = {"conversation_id": f"conv_{tenant}", "size": 2, "body": "{}", "created_at": now}
    digests = digests_of(hashlib.sha256(b"words").digest())[0], "of-its-text"
    read = [{"tenant": tenant, "conversation_id": each, "digest": of} for each in names[1::2] for of in digests]
    await cache.set("summary", b"words", 60, group=cache_group(tenant, "of-its-text"))
    bills = [ledger_row(bill(tenant, each, "failed", **quoted("words"))) for each in names]

    def work(connection: sa.Connection) -> None:
        connection.execute(schema.conversations.insert(), conversations)
        connection.execute(schema.cached_contents.insert(), read)
        connection.execute(schema.ledger.insert(), [for_row(schema.ledger, each) for each in bills])
        for number, file_id in enumerate((made.id, "file-other")):
            row = {**held, "number": number, "artifact_id": f"art_{number}", "file_id": file_id}
            connection.execute(schema.attachments.insert().values(**row))

    await transactions.run(work, write=True)
    await files.delete(tenant, made.id, AuditActor("key_1"))
    left = sa.select(schema.attachments.c.file_id).where(schema.attachments.c.conversation_id == f"conv_{tenant}")
    told = sa.select(schema.admin_events.c.details).where(schema.admin_events.c.object == made.id)
    assert await transactions.run(lambda c: list(c.execute(left).scalars())) == ["file-other"]
    assert await transactions.run(lambda c: list(c.execute(told).scalars())) == ['{"conversations":3}']
    assert await cache.get("summary") is None
    failed = sa.select(schema.ledger.c.conversation_id).where(schema.ledger.c.failure.is_not(None))
    failed = failed.where(schema.ledger.c.tenant == tenant)
    assert await transactions.run(lambda c: list(c.execute(failed).scalars())) == names[2:3], "it may be quoted there"


async def test_s14_5_what_a_failed_request_was_told_of_a_file_is_not_kept(
    make: Make, store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """Its attachments are not stored, so that nobody would find the words when the file is deleted."""
    made = await make().add(RequestCaller(tenant, None, {}), of(b"words of a file"), said)
    paper = replace(document("larkspur"), metadata={"attachment_type": "document", "file_id": made.id})
    told = {"status": "failed", "attachments": (paper,), "entry": quoted("larkspur")}
    await store.commit(turn(tenant, f"conv_failed_{tenant}", answers=(), created=True, **told))
    assert await traces(transactions, "larkspur") == []


async def test_s14_5_bounds_and_quotas(make: Make, contents: ContentStore, tenant: str) -> None:
    files, caller = make(max_bytes=10, quota_bytes=12), RequestCaller(tenant, None, {})
    before = len(await all_names(contents))
    with pytest.raises(errors.RequestTooLarge):
        await files.add(caller, of(b"x" * 11), said)
    both = (files.add(caller, of(each * 7), said) for each in (b"a", b"b"))
    found = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(isinstance(each, errors.FilesQuotaExceeded) for each in found) == [False, True]
    assert len(await all_names(contents)) == before + 1


async def test_s14_6_files_that_are_fetched_at_once_are_bounded(
    make: Make, contents: ContentStore, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the bytes that their rows say, before any is read; one alone may be larger."""
    monkeypatch.setattr(store, "FETCHED_BYTES", 15)
    files, caller = make(), RequestCaller(tenant, None, {})
    small, large = [(await files.add(caller, of(b"x" * size), said)).id for size in (10, 20)]
    began, goes_on, opens = asyncio.Event(), asyncio.Event(), contents.open

    async def slowly(name: str, start: int = 0) -> AsyncIterator[bytes]:
        began.set()
        await goes_on.wait()
        async for piece in opens(name, start):
            yield piece

    monkeypatch.setattr(contents, "open", slowly)
    first = asyncio.create_task(files.whole(tenant, small))
    await began.wait()
    with pytest.raises(errors.Overloaded):
        await files.whole(tenant, small)
    goes_on.set()
    assert len((await first)[1]) == 10
    for named, size in ((large, 20), (small, 10)):
        assert len((await files.whole(tenant, named))[1]) == size, "none is counted any more"


async def test_s14_5_what_expired_is_gone_at_once_and_deleted_by_the_upkeep(
    make: Make, contents: ContentStore, clock: DayClock, tenant: str
) -> None:
    """And so is a content that a process left behind which was killed."""
    files = make(expires_after=3600)
    before = len(await all_names(contents))
    made = await files.add(RequestCaller(tenant, None, {}), of(b"short"), said)
    left, running = f"{'c' * 16}/obj_{next(NAMES):012x}", f"{'c' * 16}/obj_{'f' * 12}"
    await contents.put(left, of(b"left behind"))
    await contents.put(running, of(b"of an upload that runs"))
    clock.at += timedelta(seconds=3601)
    with pytest.raises(errors.FileNotFound):
        await files.find(tenant, made.id)
    assert (await files.page(tenant, FileQuery(10))).found == ()
    assert await files.upkeep() >= 1
    names = await all_names(contents)
    assert left not in names
    assert running in names
    assert len(names) == before + 1
    await contents.delete(running)


async def test_s14_5_contents_are_sealed_under_the_storages_key(
    make: Make, contents: ContentStore, tenant: str
) -> None:
    vault = KeyVault(b"k" * 32)
    files = make(vault)
    made = await files.add(RequestCaller(tenant, None, {}), of(b"secret words " * 200_000), said)
    assert await whole((await files.content(tenant, made.id))[1]) == b"secret words " * 200_000
    for start in (1, 2**20 - 1, 2**20, 2**21 + 5, len(b"secret words " * 200_000) - 1):
        assert await whole((await files.content(tenant, made.id, start))[1]) == (b"secret words " * 200_000)[start:]
    for name in [each for each in await all_names(contents) if each.endswith(".s")]:
        assert b"secret words" not in await whole(contents.open(name))
    with pytest.raises(errors.ContentUnreadable):
        await whole((await make().content(tenant, made.id))[1])
    await files.delete(tenant, made.id, None)


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**20 + 1, 3 * 2**20])
async def test_s14_5_a_sealed_content_cannot_be_cut_or_moved(size: int) -> None:
    vault, content = KeyVault(b"k" * 32), b"z" * size
    raw = await whole(sealed(of(content), "a", vault))
    assert await whole(opened(of(raw[:7], raw[7:]), "a", vault)) == content
    for other, name in (
        (raw[:-1], "a"),
        (raw, "b"),
        (b"", "a"),
        (raw + raw, "a"),
        (raw[:-1] + bytes([raw[-1] ^ 1]), "a"),
    ):
        with pytest.raises(errors.ContentUnreadable):
            await whole(opened(of(other), name, vault))


FIRST, SECOND = b"1" * 32, b"2" * 32


async def resealed(
    contents: ContentStore, transactions: DatabaseTransactions, vault: KeyVault, tenant: str
) -> list[str | None]:
    stores = {"it": contents}
    return [why async for each, why in seal_contents(transactions, stores, vault) if each.tenant == tenant]


async def test_s14_5_contents_come_under_the_current_key(
    make: Make, contents: ContentStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """Plain ones, and those of a key of before; the old ones are gone, and the key of before is needed no more."""
    caller, both = RequestCaller(tenant, None, {}), KeyVault(SECOND, [FIRST])
    plain = await make().add(caller, of(BIG), said)
    first = await make(KeyVault(FIRST)).add(caller, of(b"of the first key"), said)
    second = await make(both).add(caller, of(b""), said)
    folder = object_name(tenant, None).partition("/")[0]
    before = await all_names(contents, folder)
    found = await transactions.run(lambda connection: kinds_elsewhere(connection, both.current))
    assert found["plain"] >= 1
    assert found[str(KeyVault(FIRST).current)] == 1
    assert await resealed(contents, transactions, both, tenant) == [None, None]
    assert await resealed(contents, transactions, both, tenant) == []
    after = await all_names(contents, folder)
    assert len(set(before) - set(after)) == len(set(after) - set(before)) == 2
    assert all(name.endswith(f".{both.current}.s") for name in after)
    alone = make(KeyVault(SECOND))
    for made, content in ((plain, BIG), (first, b"of the first key"), (second, b"")):
        assert (await alone.whole(tenant, made.id))[1] == content
        await alone.delete(tenant, made.id, None)
    assert await all_names(contents, folder) == []


async def test_s14_5_a_content_that_cannot_be_read_is_left_as_it_is(
    make: Make, contents: ContentStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """Its key stays in use; the others are sealed."""
    caller = RequestCaller(tenant, None, {})
    lost = await make(KeyVault(FIRST)).add(caller, of(b"under a key that is not here"), said)
    changed = await make().add(caller, of(b"what was uploaded"), said)
    good = await make().add(caller, of(b"good"), said)
    folder = object_name(tenant, None).partition("/")[0]
    names = {name for name in await all_names(contents, folder) if not name.endswith(".s")}
    for name in names:
        if await whole(contents.open(name)) == b"what was uploaded":
            await contents.delete(name)
            await contents.put(name, of(b"what was not"))
    reasons = await resealed(contents, transactions, KeyVault(SECOND), tenant)
    assert sorted(each is None for each in reasons) == [False, False, True]
    found = await transactions.run(lambda connection: kinds_elsewhere(connection, KeyVault(SECOND).current))
    assert found[str(KeyVault(FIRST).current)] == 1
    reader = make(KeyVault(SECOND, [FIRST]))
    assert (await reader.whole(tenant, lost.id))[1] == b"under a key that is not here"
    assert (await reader.whole(tenant, good.id))[1] == b"good"
    for made in (lost, changed, good):
        await reader.delete(tenant, made.id, None)


async def test_s14_5_a_file_that_is_deleted_while_it_is_sealed_anew_stays_deleted(
    make: Make, contents: ContentStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    made = await make().add(RequestCaller(tenant, None, {}), of(b"going"), said)
    folder = object_name(tenant, None).partition("/")[0]

    class Deleting:
        """Deletes the file as soon as its new content stands."""

        async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
            await contents.put(name, pieces)
            if name.startswith(folder):  # and not what another test has left
                await make().delete(tenant, made.id, None)

        def __getattr__(self, name: str) -> Any:
            return getattr(contents, name)

    stores: Any = {"it": Deleting()}
    async for _ in seal_contents(transactions, stores, KeyVault(FIRST)):
        pass
    assert await all_names(contents, folder) == []


async def test_s14_5_who_is_killed_while_sealing_anew_goes_on(
    make: Make, contents: ContentStore, transactions: DatabaseTransactions, clock: DayClock, tenant: str
) -> None:
    """Between the new content and the row that names it: the old one is read, and the next run seals it."""
    made = await make().add(RequestCaller(tenant, None, {}), of(b"words"), said)

    class Killed:
        async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
            await contents.put(name, pieces)
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(contents, name)

    stores: Any = {"it": Killed()}
    with pytest.raises(KeyboardInterrupt):
        async for _ in seal_contents(transactions, stores, KeyVault(FIRST)):
            pass
    assert (await make().whole(tenant, made.id))[1] == b"words"
    assert await resealed(contents, transactions, KeyVault(FIRST), tenant) == [None]
    reader = make(KeyVault(FIRST))
    assert (await reader.whole(tenant, made.id))[1] == b"words"
    await reader.delete(tenant, made.id, None)


async def test_a_check_says_why_a_bucket_keeps_nothing(bucket: str) -> None:
    from gateway.upstream.s3 import reach_bucket

    def named(name: str, endpoint: str = bucket) -> S3Settings:
        return S3Settings(bucket=name, endpoint=endpoint, access_key=SecretStr("k"), secret_key=SecretStr("s"))

    assert await reach_bucket(named("files")) is None
    assert "404: no such bucket" in str(await reach_bucket(named("missing")))
    assert "cannot be reached" in str(await reach_bucket(named("files", "http://127.0.0.1:9")))
    for endpoint in ("nothing", "http://[::1", "http://h:99999", "http://user:hush/word@h"):
        told = await reach_bucket(named("files", endpoint))
        assert told == "files.s3.endpoint is no address such as https://HOST."


class Noting:
    """A store of contents in memory that notes whose piece it keeps or reads, each for a step of the loop."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.at_once = self.most = 0
        self.goes = asyncio.Event()
        self._kept: dict[str, tuple[str, list[bytes]]] = {}

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        kept = []
        async for piece in pieces:
            kept.append(piece)
            await self._work(piece.decode())
        self._kept[name] = kept[0].decode(), kept

    async def open(self, name: str, start: int = 0) -> AsyncIterator[bytes]:
        whose, pieces = self._kept[name]
        for piece in pieces:
            await self._work(whose)
            yield piece

    async def delete(self, *names: str) -> None:
        """Of what was there already."""
        self._kept.pop(names[0])

    async def _work(self, whose: str) -> None:
        self.order.append(whose)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await self.goes.wait()
        self.at_once -= 1


async def test_s12_16_pieces_of_files_take_turns(transactions: DatabaseTransactions, clock: DayClock) -> None:
    """However many files a tenant uploads or fetches, another one's are not behind all of them."""
    contents = Noting()
    rows = FileRows(transactions, clock, open_cache(CacheSettings(), SystemClock()))
    files = FileService(rows, {"it": contents}, "it", FileSettings(), None)  # type: ignore[dict-item]
    tenants = [*["busy"] * 20, "other"]

    come = 0

    def comes() -> None:
        """The work goes on once all are there."""
        nonlocal come
        come += 1
        if come == len(tenants):
            asyncio.get_running_loop().call_soon(contents.goes.set)

    async def sent(tenant: str) -> AsyncIterator[bytes]:
        comes()
        for _ in range(3):
            yield tenant.encode()

    async def upload(tenant: str) -> tuple[str, str]:
        return tenant, (await files.add(RequestCaller(tenant, None, {}), sent(tenant), said)).id

    async def fetch(tenant: str, file_id: str) -> None:
        _, pieces = await files.content(tenant, file_id)
        comes()
        await whole(pieces)

    def in_turns() -> None:
        assert (contents.most, len(contents.order)) == (PIECES_AT_ONCE, 63)
        assert contents.order.index("other") <= PIECES_AT_ONCE + 1

    ids = await asyncio.gather(*map(upload, tenants))
    in_turns()
    come = contents.most = 0
    contents.order.clear()
    contents.goes.clear()
    await asyncio.gather(*(fetch(*each) for each in ids))
    in_turns()


async def test_s12_16_an_upload_that_breaks_off_takes_nobodys_turn(
    transactions: DatabaseTransactions, clock: DayClock
) -> None:
    rows = FileRows(transactions, clock, open_cache(CacheSettings(), SystemClock()))
    contents = Noting()
    contents.goes.set()
    files = FileService(rows, {"it": contents}, "it", FileSettings(max_bytes=4), None)  # type: ignore[dict-item]
    for _ in range(2 * PIECES_AT_ONCE):
        with pytest.raises(errors.RequestTooLarge):
            await files.add(RequestCaller("busy", None, {}), of(b"12345"), said)
    async with asyncio.timeout(5):
        assert (await files.add(RequestCaller("busy", None, {}), of(b"1234"), said)).size == 4


async def test_s14_5_an_upload_that_is_cancelled_while_it_is_completed_is_unknown(
    make: Make, contents: ContentStore, transactions: DatabaseTransactions, clock: DayClock, monkeypatch: Any
) -> None:
    """Its parts cannot be read any more: that was a 503, which clients ask for again."""
    service, caller, before = make(), RequestCaller("t", None), await all_names(contents)
    uploads = PartUploads(service, FileRows(transactions, clock, open_cache(CacheSettings(), SystemClock())))
    upload = (await uploads.create(caller, 3, said())).record.id
    part = (await uploads.add_part(caller, upload, of(b"abc"), lambda: None)).id
    read = service.pieces_at
    places: list[str] = []

    async def cancelled_before_the_part(tenant: str, place: ContentPlace) -> AsyncIterator[bytes]:
        places.append(place.object)
        if len(places) == 2:  # after the upload itself
            await uploads.cancel(tenant, upload)
        async for piece in read(tenant, place):
            yield piece

    monkeypatch.setattr(service, "pieces_at", cancelled_before_the_part)
    with pytest.raises(errors.FileNotFound, match=upload):
        await uploads.complete(caller, upload, [part], None)
    assert await all_names(contents) == before
