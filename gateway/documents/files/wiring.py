"""Wires documents once: what callers have uploaded, here and upstream, and what reads it."""

from gateway.core import ports
from gateway.core.config.settings import Settings
from gateway.documents import file_reader
from gateway.documents.files.background_reading import ReadingFiles
from gateway.documents.files.factory import open_files
from gateway.documents.files.file_service import CallersFiles, FilesHere
from gateway.storage import WiredStorage
from gateway.upstream import WiredUpstreams, resources


class WiredDocuments:
    """Files and their readings."""

    def __init__(
        self,
        settings: Settings,
        clock: ports.Clock,
        storage: WiredStorage,
        upstreams: WiredUpstreams,
        *,
        are_masked: bool,
    ) -> None:
        """`are_masked`: what is read of a PDF goes up as text, which can be masked."""
        self.storage, self.upstreams = storage, upstreams
        documents, ttl = settings.documents, settings.cache.document_ttl
        if are_masked:
            documents = documents.model_copy(update={"native_pages": 0})
        self.native_pages = documents.native_pages
        self.reading = ReadingFiles(storage.file_rows)
        self.kept = open_files(
            settings=settings,
            transactions=storage.transactions,
            rows=storage.file_rows,
            client=upstreams.client,
            added=self.reading.add,
        )
        self.here = FilesHere(settings, upstreams.router, clock)
        self.callers = CallersFiles(self.kept, resources.UpstreamFiles(upstreams.client, upstreams.router), self.here)
        self.reader = file_reader.FileReader(storage.cache, ttl, documents, store=self.callers)
        self.attachments = file_reader.AttachmentReader(self.callers, self.reader)

    def start(self) -> None:
        """Reads from now on what was uploaded."""
        self.reading.start(self.kept, self.reader)
