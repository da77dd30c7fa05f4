"""§14.13: pages of PDFs that go up as those pages alone."""

from gateway.context.tokens.counter import CounterRegistry
from gateway.context.whole_files import NativeFiles
from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.chat import ModelFacts, RequestCaller
from gateway.documents.document import DocumentFile, PageFacts, Reading
from gateway.documents.file_reader import FileReader
from gateway.pipeline.features import pdf_pages
from gateway.storage.cache.memory_cache import open_cache

MOST = 4
"""Pages of one question."""


class Counting(CounterRegistry):
    """Notes which readings are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[Reading] = []

    def of_pdf(self, facts: ModelFacts, reading: Reading) -> int:
        self.counted.append(reading)
        return super().of_pdf(facts, reading)


def test_s14_13_of_a_long_scan_few_pages_are_weighed() -> None:
    """All are wanted alike: thousands are not counted, whether there is room for the first ones or for none."""
    pages = 2000
    text = "".join(f"[page {number}]\n\n" for number in range(1, pages + 1))
    reading = Reading(text, (), tuple(range(1, pages + 1)), tuple([PageFacts(595.0, 842.0, has_picture=True)] * pages))
    artifact = Artifact("art_1", ArtifactType.DOCUMENT, text, len(text), "file:art_1")
    counters = Counting()
    files = FileReader(open_cache(CacheSettings(), SystemClock()), 100.0)
    natives = NativeFiles(files, counters, ModelFacts("gpt-4o"), None, RequestCaller("t"))
    for room, taken in ((1_000_000.0, list(range(1, MOST + 1))), (10.0, [])):
        counters.counted.clear()
        choice = pdf_pages._ChosenPages(artifact, DocumentFile(b"%PDF", "pdf", "scan.pdf"), reading, [])
        wanted = [(0.0, number, choice) for number in range(1, pages + 1)]
        pdf_pages._taken(wanted, room, natives, MOST)
        assert choice.numbers == taken
        assert len(counters.counted) <= pdf_pages.WEIGHED * MOST
