"""Wires documents once: the uploads of callers, here and upstream, and what reads them."""

from gateway.core import ports
from gateway.core.config.settings import Settings
from gateway.documents import file_reader
from gateway.documents.files.background_reading import ReadingFiles
from gateway.documents.files.factory import open_files
from gateway.documents.files.file_service import CallersFiles, FilesHere
from gateway.documents.files.uploads import PartUploads
from gateway.storage import WiredStorage
from gateway.upstream import WiredUpstreams, resources


class WiredDocuments:
    """Holds the files of callers, and what reads them. `Gateway` creates it; the lifespan calls `start`."""

    def __init__(
        self,
        settings: Settings,
        clock: ports.Clock,
        storage: WiredStorage,
        upstreams: WiredUpstreams,
        *,
        are_masked: bool,
    ) -> None:
        """`are_masked`: PDFs are sent upstream as their text, so that it can be masked."""
        self.storage, self.upstreams = storage, upstreams
        documents, ttl = settings.documents, settings.cache.document_ttl
        if are_masked:
            documents = documents.model_copy(update={"native_pages": 0})
        self.native_pages = documents.native_pages
        self.reading = ReadingFiles(storage.file_rows)
        self.service = open_files(
            settings=settings,
            transactions=storage.transactions,
            rows=storage.file_rows,
            client=upstreams.client,
            added=self.reading.add,
        )
        self.uploads = PartUploads(self.service, storage.file_rows)
        self.served_here = FilesHere(settings, upstreams.router, clock)
        self.callers = CallersFiles(
            self.service, resources.UpstreamFiles(upstreams.client, upstreams.router), self.served_here
        )
        self.reader = file_reader.FileReader(storage.cache, ttl, documents, store=self.callers)
        self.attachments = file_reader.AttachmentReader(self.callers, self.reader)

    def start(self) -> None:
        """Starts reading uploads in the background."""
        self.reading.start(self.service, self.reader)
