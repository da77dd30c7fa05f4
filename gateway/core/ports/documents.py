"""Ports of files and large documents."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from gateway.core.types.chat import RequestCaller, StoredFile
from gateway.core.types.large import LargeIndex
from gateway.core.types.regions import RegionPlace, TextRegion


class FileStore(Protocol):
    """Files that a client has uploaded, here or to its upstream. A port since `artifacts` is beside `upstream`, and
    below `files`."""

    def keeps(self, caller: RequestCaller) -> bool:
        """Whether this caller's files are kept here, so that no upstream knows their ids."""
        ...

    async def check(self, file_id: str, caller: RequestCaller) -> None:
        """
        Raises:
            NotFound: no such file, or not for this caller.
        """
        ...

    async def fetch(self, file_id: str, caller: RequestCaller) -> StoredFile:
        """A file with its name and content.

        Raises:
            NotFound: no such file, or not for this caller.
            UpstreamError: as drawn in `errors`.
        """
        ...


class LargeTexts(Protocol):
    """Large documents in the storage (guarantee §14.7).

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """

    async def indexes(self, tenant: str, digests: Sequence[str], buckets: Sequence[int] = ()) -> list[LargeIndex]:
        """What is known of these documents, as far as they are there, with these buckets of their indexes."""
        ...

    async def regions(self, tenant: str, wanted: Mapping[str, Sequence[int]]) -> dict[str, list[TextRegion]]:
        """These regions of documents, in order, as far as they are there."""
        ...

    async def places(self, tenant: str, digests: Sequence[str]) -> dict[str, list[RegionPlace]]:
        """Where each region of these documents stands, in order."""
        ...


class ContentStore(Protocol):
    """Where contents of files are kept, by names that are given once. A port since `files` is above `upstream`, which
    speaks to buckets."""

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Keeps all pieces, for good, or nothing if they end with an error.

        Raises:
            StorageUnavailable: it cannot be kept now.
        """
        ...

    def open(self, name: str, start: int = 0) -> AsyncIterator[bytes]:
        """The content from byte `start` on, in pieces of whichever size. What is before that is not read.

        Raises:
            StorageUnavailable: it cannot be read, or is not there.
        """
        ...

    async def delete(self, *names: str) -> None:
        """Deletes contents for good; one that is not there is no fault."""
        ...

    def names(self) -> AsyncIterator[list[str]]:
        """What is kept, in batches."""
        ...
