"""Large documents as the steps see them (guarantee §14.7)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LargeIndex:
    """What the storage knows of a large document: its size, how many of its regions are indexed, and the buckets that
    were asked for, by segment and bucket (`retrieval.stored.postings`). `status`: `building`, `ready` or `failed`."""

    digest: str
    chars: int
    regions: int
    indexed: int
    status: str
    data: Mapping[tuple[int, int], bytes]

    @property
    def progress(self) -> float:
        """How much of it is indexed, as a fraction of 1."""
        return round(self.indexed / self.regions, 4) if self.regions else 1.0


@dataclass(frozen=True, slots=True)
class IndexClaim:
    """A document whose index a process makes: it goes on behind the regions that are indexed."""

    tenant: str
    digest: str
    regions: int
    indexed: int
    holder: str
