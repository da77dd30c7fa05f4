"""Where files are kept and who is served them here, as the settings say."""

from pathlib import Path
from typing import Any

from gateway.config.settings import Settings
from gateway.errors import ModelNotFound
from gateway.files.disk import DiskContents
from gateway.files.store import Files, Serves
from gateway.models.exchange import Caller
from gateway.ports import Clock
from gateway.ports.documents import ContentStore
from gateway.storage.database.engine import Transactions, parse_url
from gateway.storage.encryption.vault import open_vault
from gateway.storage.files.chunks import DatabaseContents
from gateway.storage.files.rows import FileRows
from gateway.upstream.routing.router import ConfiguredRouter

FOLDER = "files"


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


def open_files(settings: Settings, transactions: Transactions, rows: FileRows, clock: Clock, client: Any) -> Files:
    """The store of files; `client` speaks HTTP to a bucket. What other stores than the current
    one hold can still be read, where they are known."""
    kept, stores = settings.files, open_stores(settings, transactions, client)
    return Files(rows, stores, store_of(settings), kept, clock, open_vault(settings.storage))


def store_of(settings: Settings) -> str:
    """The store of new contents: `disk`, `database` or `s3`."""
    if settings.files.store != "auto":
        return settings.files.store
    return "disk" if folder_of(settings) is not None else "database"


def folder_of(settings: Settings) -> Path | None:
    """The folder of `disk`; None: nobody named one, and there is no file that it could be beside."""
    if settings.files.path:
        return Path(settings.files.path)
    url = parse_url(settings.storage.url)
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    if is_file:
        return Path(str(url.database)).absolute().parent / FOLDER
    return Path(FOLDER).absolute() if settings.files.store == "disk" else None


def serving(settings: Settings, router: ConfiguredRouter) -> Serves:
    """Whose files are kept here: with `auto` those of clients with a key of ours, and of all where no upstream could
    keep any; not where `server.relay` names files."""
    mode, relayed = settings.files.serve, are_relayed(settings)

    def serves(caller: Caller) -> bool:
        if mode != "auto":
            return mode == "on"
        if relayed:
            return False
        if caller.key is not None:
            return True
        try:
            router.default("", caller)
        except ModelNotFound:
            return True
        return False

    return serves


def are_relayed(settings: Settings) -> bool:
    """Whether `server.relay` names files."""
    paths = (each.rpartition(" ")[2].strip("/").removeprefix("v1/") for each in settings.server.relay)
    return any(each.partition("/")[0] == "files" for each in paths)
