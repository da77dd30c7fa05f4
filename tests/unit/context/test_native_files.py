"""§14.1, §14.6: PDFs that a model reads itself, of files kept here."""

import hashlib

from gateway.context.tokens.counter import CounterRegistry
from gateway.context.whole_files import NativeFiles, NativePdfs
from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings
from gateway.core.types.chat import ModelFacts, RequestCaller, StoredFile
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from gateway.documents.file_reader import FileReader
from gateway.storage.cache.memory_cache import open_cache


class Kept:
    """Files that are kept here; notes which are fetched."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.fetched: list[str] = []

    def keeps(self, caller: RequestCaller) -> bool:
        return True

    async def check(self, file_id: str, caller: RequestCaller) -> None:
        """It is there."""

    async def fetch(self, file_id: str, caller: RequestCaller) -> StoredFile:
        self.fetched.append(file_id)
        digest = hashlib.sha256(self.content).hexdigest()
        return StoredFile("a.csv", "text/csv", self.content, own=True, digest=digest)


async def test_s14_6_a_file_that_is_no_pdf_is_fetched_once_to_see_that() -> None:
    """A request is drafted several times."""
    kept = Kept(b"name,lamp\nAda,7\n")
    files = FileReader(open_cache(CacheSettings(), SystemClock()), 100.0, store=kept)
    facts = ModelFacts("gpt-4o", supports_pdf_input=True)
    natives = NativeFiles(files, CounterRegistry(), facts, None, RequestCaller("t"))
    body = {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}
    history = ConversationHistory(None, True, (), (ConversationMessage("user", body),))
    for stays in (NativePdfs.ALL, NativePdfs.CURRENT, NativePdfs.ALL):
        assert not await natives.of(history, stays, counted=True)
    assert kept.fetched == ["file-1"]
