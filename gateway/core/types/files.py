"""Files that clients upload, as steps know them (guarantee §14.5)."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
"""What OpenAI lets a file be for."""
READ_PURPOSES = ("assistants", "user_data")
"""Those of files that questions are asked about: they are read behind the upload."""


UPLOADED, PROCESSED, FAILED = "uploaded", "processed", "error"
"""OpenAI's words for a file that is to be read, that was read or needs no reading, and that cannot be read."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One upload, of so many bytes. `digest`: SHA-256 of its content. `status`: `uploaded` while it is to be
    read, then `processed` or `error`; `progress`: how much of it is read, as a fraction of 1. `expires_at` None: it is
    kept until it is deleted."""

    id: str
    name: str
    purpose: str
    media_type: str
    size: int
    digest: bytes
    created_at: datetime
    expires_at: datetime | None = None
    key_id: str | None = None
    status: str = UPLOADED
    status_details: str | None = None
    progress: float | None = None


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file as operators see it: whose it is; of one alone also which store has its content, the ids of its tenant's
    other files with that, and the conversations that hold what was read of it."""

    tenant: str
    file: FileRecord
    store: str = ""
    same_content: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()


SEALED = ".s"
"""With which the names of contents end that are sealed; before it stands the id of the key."""


class ContentPlace(NamedTuple):
    """Where a content is: which store has it, and what it is called there."""

    store: str
    object: str

    @property
    def sealed_under(self) -> str | None:
        """The id of the key that the content is sealed under; None: it is plain."""
        return self.object.removesuffix(SEALED).rpartition(".")[2] if self.object.endswith(SEALED) else None


@dataclass(frozen=True, slots=True)
class FileQuery:
    """Which files of a tenant are asked for. `after`: the id of the last one of the page before."""

    limit: int
    after: str | None = None
    newest_first: bool = True
    purpose: str | None = None


@dataclass(frozen=True, slots=True)
class FilePage:
    """Files of a list, in the order that was asked for."""

    files: tuple[FileRecord, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class KeptBytes:
    """Bytes of files that a tenant keeps, and those among them that came with one key."""

    tenant: int
    key: int
