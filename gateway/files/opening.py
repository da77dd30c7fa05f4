"""Where files are kept and who is served them here, as the settings say."""

from pathlib import Path
from typing import Any

from gateway.config.settings import Settings
from gateway.errors import ModelNotFound
from gateway.files.disk import DiskContents
from gateway.files.store import Added, Files, added_unread
from gateway.models.exchange import Caller, Deployment
from gateway.ports import Clock
from gateway.ports.documents import ContentStore
from gateway.storage.database.engine import Transactions, sqlite_file
from gateway.storage.encryption.vault import open_vault
from gateway.storage.files.chunks import DatabaseContents
from gateway.storage.files.rows import FileRows
from gateway.upstream.routing.router import ConfiguredRouter

FOLDER = "files"
BELIEVED_SECONDS = 600.0
"""How long an upstream is taken to have no files before one is sent there again."""


def open_stores(settings: Settings, transactions: Transactions, client: Any) -> dict[str, ContentStore]:
    """All stores that contents of files can be in, as far as the settings name them."""
    folder = folder_of(settings)
    stores: dict[str, ContentStore] = {"database": DatabaseContents(transactions)}
    if folder is not None:
        stores["disk"] = DiskContents(folder)
    if settings.files.s3.bucket:
        from gateway.upstream.s3 import S3Contents

        stores["s3"] = S3Contents(settings.files.s3, client)
    return stores


def open_files(
    settings: Settings,
    transactions: Transactions,
    rows: FileRows,
    clock: Clock,
    client: Any,
    added: Added = added_unread,
) -> Files:
    """The store of files; `client` speaks HTTP to a bucket. What other stores than the current
    one hold can still be read, where they are known. `added` is told of each file that is to be read."""
    kept, stores = settings.files, open_stores(settings, transactions, client)
    return Files(rows, stores, store_of(settings), kept, clock, open_vault(settings.storage), added)


def store_of(settings: Settings) -> str:
    """The store of new contents: `disk`, `database` or `s3`."""
    if settings.files.store != "auto":
        return settings.files.store
    return "disk" if folder_of(settings) is not None else "database"


def folder_of(settings: Settings) -> Path | None:
    """The folder of `disk`; None: nobody named one, and there is no file that it could be beside."""
    if settings.files.path:
        return Path(settings.files.path)
    if (database := sqlite_file(settings.storage.url)) is not None:
        return database.parent / FOLDER
    return Path(FOLDER).absolute() if settings.files.store == "disk" else None


class FilesHere:
    """Whose files are kept here (`Serves`). With `files.serve: auto` those of clients with a key of ours, and of all
    whose default upstream keeps none or does not exist; not where `server.relay` names files. Files of an operator's
    account at the upstream are nobody's to read, so they stay out of reach (guarantee §1)."""

    def __init__(self, settings: Settings, router: ConfiguredRouter, clock: Clock) -> None:
        self._mode = "off" if settings.files.serve == "auto" and are_relayed(settings) else settings.files.serve
        self._router = router
        self._clock = clock
        self._without: dict[str, float] = {}
        """Addresses of upstreams that have no files, and until when this is believed."""

    def __call__(self, caller: Caller) -> bool:
        if self._mode != "auto":
            return self._mode == "on"
        upstream = self._upstream(caller)
        return upstream is None or self._clock.monotonic() < self._without.get(upstream.api_base, 0.0)

    def may(self, caller: Caller) -> bool:
        upstream = self._upstream(caller) if self._mode == "auto" else None
        return upstream is not None and not upstream.operator_key

    def keeps_none(self, caller: Caller) -> None:
        upstream = self._upstream(caller)
        if upstream is not None:
            self._without[upstream.api_base] = self._clock.monotonic() + BELIEVED_SECONDS

    def _upstream(self, caller: Caller) -> Deployment | None:
        """The default upstream, where the caller's files might be kept."""
        if caller.key is not None:
            return None
        try:
            return self._router.default("", caller)
        except ModelNotFound:
            return None


def are_relayed(settings: Settings) -> bool:
    """Whether `server.relay` names files."""
    paths = (each.rpartition(" ")[2].strip("/").removeprefix("v1/") for each in settings.server.relay)
    return any(each.partition("/")[0] == "files" for each in paths)
