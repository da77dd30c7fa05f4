"""§14.1, §14.6: PDFs that a model reads itself, of files kept here."""

import hashlib

from gateway.artifacts.files import FileReader
from gateway.base.clock import SystemClock
from gateway.config.settings import CacheSettings
from gateway.context.native_files import NativeFiles, Stays
from gateway.models.conversation import ConversationMessage, History
from gateway.models.exchange import Caller, ModelFacts, StoredFile
from gateway.storage.cache.memory import open_cache
from gateway.tokens.counter import CounterRegistry


class Kept:
    """Files that are kept here; notes which are fetched."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.fetched: list[str] = []

    def keeps(self, caller: Caller) -> bool:
        return True

    async def check(self, file_id: str, caller: Caller) -> None:
        """It is there."""

    async def fetch(self, file_id: str, caller: Caller) -> StoredFile:
        self.fetched.append(file_id)
        digest = hashlib.sha256(self.content).hexdigest()
        return StoredFile("a.csv", "text/csv", self.content, own=True, digest=digest)


async def test_s14_6_a_file_that_is_no_pdf_is_fetched_once_to_see_that() -> None:
    """A request is drafted several times."""
    kept = Kept(b"name,lamp\nAda,7\n")
    files = FileReader(open_cache(CacheSettings(), SystemClock()), 100.0, store=kept)
    facts = ModelFacts("gpt-4o", supports_pdf_input=True)
    natives = NativeFiles(files, CounterRegistry(), facts, None, Caller("t"))
    body = {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}
    history = History(None, True, (), (ConversationMessage("user", body),))
    for stays in (Stays.ALL, Stays.CURRENT, Stays.ALL):
        assert not await natives.of(history, stays, counted=True)
    assert kept.fetched == ["file-1"]
