"""`file` parts that name a file which is kept here: read from our own store, again and again (guarantee §14.6)."""

import pytest

from gateway.core.clock import SystemClock
from gateway.core.errors import InvalidRequest, NotFound
from gateway.core.types.artifacts import cache_group
from gateway.core.types.chat import RequestCaller, StoredFile
from gateway.core.types.conversation import ConversationMessage
from gateway.documents.file_reader import DELETED_DOCUMENT, ArrivedMessages, FileReader
from gateway.storage.cache.memory_cache import MemoryCache

OWNER = RequestCaller("t")
NAMED = ConversationMessage("user", {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-a"}}]})
HERE = (0, 0)


class Kept:
    """Files that are kept here (a `FileStore`)."""

    def __init__(self, keeps: bool = True) -> None:
        self.files = {"file-a": StoredFile("a.txt", "text/plain", b"Ines keeps lamp 3.", own=True)}
        self.fetched = 0
        self._keeps = keeps

    def keeps(self, _caller: RequestCaller) -> bool:
        return self._keeps

    async def name(self, file_id: str, caller: RequestCaller) -> str:
        if caller != OWNER or file_id not in self.files:
            raise NotFound("No such file.", code="file_not_found")
        return self.files[file_id].name

    async def fetch(self, file_id: str, caller: RequestCaller) -> StoredFile:
        self.fetched += 1
        await self.name(file_id, caller)
        return self.files[file_id]


def reading(kept: Kept) -> tuple[FileReader, MemoryCache]:
    cache = MemoryCache(100_000, SystemClock())
    return FileReader(cache, 60, store=kept), cache


@pytest.mark.parametrize("group", ["{}", "file-a"], ids=["the content's", "the file's"])
async def test_s14_6_a_file_that_is_kept_here_is_read_and_stays_readable(group: str) -> None:
    """From the cache while that has it, else from the store; deleted, the stored message says so."""
    kept = Kept()
    reader, cache = reading(kept)
    for _ in range(2):
        texts, cached = await reader.read([NAMED], ArrivedMessages(0, [NAMED.body]), OWNER, decode_pdf=False, keep=True)
        assert texts == {HERE: "Ines keeps lamp 3."}
        assert [each.partition(":")[0] for each in cached] == ["text", "file-a"], "the content, and whose it was"
    assert kept.fetched == 1
    del kept.files["file-a"]
    await cache.evict(cache_group("t", group.format(cached[0])))
    texts, _ = await reader.read([NAMED], ArrivedMessages(1, [NAMED.body]), OWNER, decode_pdf=False, keep=True)
    assert texts == {HERE: DELETED_DOCUMENT}


async def test_s14_6_of_store_false_nothing_is_kept() -> None:
    kept = Kept()
    reader, cache = reading(kept)
    for count in (1, 2):
        texts, cached = await reader.read(
            [NAMED], ArrivedMessages(0, [NAMED.body]), OWNER, decode_pdf=False, keep=False
        )
        assert (texts, cached, kept.fetched) == ({HERE: "Ines keeps lamp 3."}, (), count)
    assert cache.size == 0


async def test_s14_6_another_tenants_file_is_one_that_is_not_there() -> None:
    reader, _ = reading(Kept())
    await reader.read([NAMED], ArrivedMessages(0, [NAMED.body]), OWNER, decode_pdf=False, keep=True)
    with pytest.raises(NotFound) as caught:
        await reader.read(
            [NAMED], ArrivedMessages(0, [NAMED.body]), RequestCaller("other"), decode_pdf=False, keep=True
        )
    assert caught.value.param == "messages[0].content[0].file.file_id"


async def test_s14_6_a_file_without_text_is_named() -> None:
    kept = Kept()
    kept.files["file-a"] = StoredFile("a.png", "image/png", b"\x89PNG\xff", own=True)
    with pytest.raises(InvalidRequest, match="no text document") as caught:
        await reading(kept)[0].read([NAMED], ArrivedMessages(0, [NAMED.body]), OWNER, decode_pdf=False, keep=True)
    assert caught.value.param == "messages[0].content[0].file"


async def test_s14_6_an_id_of_the_upstreams_is_forwarded() -> None:
    kept = Kept(keeps=False)
    assert await reading(kept)[0].read(
        [NAMED], ArrivedMessages(0, [NAMED.body]), OWNER, decode_pdf=True, keep=True
    ) == ({}, ())
    assert kept.fetched == 0
