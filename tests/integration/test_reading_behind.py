"""§14.5: what is read behind an upload: where its text stands then, how far it is, and what becomes of what ends."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from gateway.core.clock import SystemClock
from gateway.core.config.setting_sections import FileSettings
from gateway.core.config.settings import CacheSettings
from gateway.core.errors import FileNotFound
from gateway.core.types.chat import RequestCaller
from gateway.core.types.files import FileRecord
from gateway.documents.document import DocumentFile, Reading, ReadOptions, UnreadableDocument
from gateway.documents.file_reader import FileReader
from gateway.documents.files.background_reading import ReadingFiles
from gateway.documents.files.file_service import CallersFiles, FileService, UploadFields
from gateway.documents.process import DocumentReader, Progress
from gateway.storage.cache.memory_cache import open_cache
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.stored_files import DatabaseContents, FileRows
from tests.support.documents import docx


class Slow(DocumentReader):
    """Reads when it is let, and tells how far it is."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.at_once = self.most = 0
        self.lets = asyncio.Event()

    async def read(
        self, file: DocumentFile, tenant: str, options: ReadOptions | None = None, progress: Progress | None = None
    ) -> Reading:
        self.begun.append(file.name)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            if progress is not None:
                progress(0.5)
                progress(0.25)
            await self.lets.wait()
            if b"spoilt" in file.raw:
                raise UnreadableDocument("it is\x00 spoilt")
            return Reading(f"text of {file.name}")
        finally:
            self.at_once -= 1


class World:
    def __init__(self, transactions: DatabaseTransactions, tenant: str) -> None:
        cache = open_cache(CacheSettings(), SystemClock())
        self.cache = cache
        self.rows = FileRows(transactions, SystemClock(), cache)
        stores = {"database": DatabaseContents(transactions)}
        self.readers: list[ReadingFiles] = []
        added = self._added
        self.files = FileService(self.rows, stores, "database", FileSettings(), None, added)
        callers = CallersFiles(self.files, self.files, lambda _: True)  # type: ignore[arg-type]
        self.reader = FileReader(cache, 100.0, store=callers)
        self.slow = self.reader.documents = Slow()
        self.caller = RequestCaller(tenant, None, {})
        self.reading = self.started()

    def _added(self, tenant: str, file_id: str) -> None:
        self.readers[-1].add(tenant, file_id)

    def started(self) -> ReadingFiles:
        """Another process of the same gateway, that begins."""
        reading = ReadingFiles(self.rows, noted_seconds=0.01)
        self.readers.append(reading)
        reading.start(self.files, self.reader)
        return reading

    async def upload(self, name: str, content: bytes, purpose: str = "user_data") -> FileRecord:
        async def pieces() -> AsyncIterator[bytes]:
            yield content

        return await self.files.add(self.caller, pieces(), lambda: UploadFields(name, purpose, ""))

    async def until(self, made: FileRecord, is_so: Callable[[FileRecord], bool]) -> FileRecord:
        """The file, once that is so."""
        for _ in range(1000):
            found = await self.files.find(self.caller.tenant, made.id)
            if is_so(found):
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(found)


@pytest.fixture
async def world(transactions: DatabaseTransactions, tenant: str) -> AsyncIterator[World]:
    made = World(transactions, tenant)
    yield made
    await made.reading.close()


def is_done(record: FileRecord) -> bool:
    return record.status != "uploaded"


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(2000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError


async def asked(world: World, made: FileRecord) -> str:
    """What a question on the file finds."""
    return (await world.reader._own_text(made.id, world.caller, keep=True, known=None))[0]


async def test_s14_5_it_tells_how_far_it_is_and_a_question_waits_for_it(world: World) -> None:
    made = await world.upload("a.docx", docx(["x"]))
    found = await world.until(made, lambda record: record.progress is not None)
    assert (found.status, found.progress) == ("uploaded", 0.5)
    question = asyncio.ensure_future(asked(world, made))
    await asyncio.sleep(0.05)
    world.slow.lets.set()
    assert await question == "text of a.docx"
    found = await world.until(made, is_done)
    assert (found.status, found.progress, found.status_details) == ("processed", 1.0, None)
    assert await asked(world, made) == "text of a.docx"
    assert world.slow.begun == ["a.docx"], "read once"


async def test_s14_5_one_is_read_at_a_time_and_each_says_what_became_of_it(world: World) -> None:
    world.slow.lets.set()
    made = [await world.upload(f"{n}.txt", b"spoilt" if n == 1 else b"words%d" % n) for n in range(4)]
    none = await world.upload("a.bin", bytes(range(256)))
    batch = await world.upload("a.txt", b"{}", "batch")
    found = [await world.until(each, is_done) for each in made]
    assert [each.status for each in found] == ["processed", "error", "processed", "processed"]
    assert found[1].status_details == "The file cannot be read: it is spoilt."
    assert world.slow.most == 1
    assert (none.status, batch.status) == ("processed", "processed")
    assert len(world.slow.begun) == 4


async def test_s14_5_a_file_that_is_deleted_while_it_is_read_leaves_nothing(world: World) -> None:
    made = await world.upload("a.docx", docx(["secret"]))
    await until(lambda: bool(world.slow.begun))
    await world.files.delete(world.caller.tenant, made.id, None)
    world.slow.lets.set()
    after = await world.upload("b.txt", b"words")
    await world.until(after, is_done)  # it has gone on
    digest = f"docx:{made.digest.hex()}"
    assert await world.reader._kept_text(digest, world.caller.tenant) is None
    assert await world.cache.get(f"file:{world.caller.tenant}:{made.id}") is None
    with pytest.raises(FileNotFound):
        await world.files.find(world.caller.tenant, made.id)


async def test_s14_5_what_an_end_left_unread_is_read_by_the_next(world: World) -> None:
    made = [await world.upload(f"{n}.docx", docx([str(n)])) for n in range(2)]
    await until(lambda: bool(world.slow.begun))
    await world.reading.close()
    assert world.slow.at_once == 0, "nothing goes on"
    assert [(await world.files.find(world.caller.tenant, each.id)).status for each in made] == ["uploaded"] * 2
    world.slow.lets.set()
    assert await asked(world, made[0]) == "text of 0.docx", "also before it is read behind"
    world.reading = world.started()
    for each in made:
        assert (await world.until(each, is_done)).status == "processed"
