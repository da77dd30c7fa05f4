"""Indexes of contents, kept in the process for later questions on the same texts."""

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING

from gateway.models.artifacts import cache_group
from gateway.ports import Clock

if TYPE_CHECKING:
    from gateway.relevance.index import ContentIndex

MOST_FORGOTTEN = 10_000
"""Groups that are remembered as forgotten, so that a request which runs meanwhile does not bring them back."""


class ContentIndexes:
    """By tenant and digest of the content; the least recently used go first. Contexts are built in threads: every step
    is locked, and short."""

    def __init__(self, max_bytes: int, ttl: float, clock: Clock) -> None:
        self._max_bytes, self._ttl, self._clock = max_bytes, ttl, clock
        self._indexes: OrderedDict[str, tuple[float, ContentIndex]] = OrderedDict()
        self._forgotten: OrderedDict[str, int] = OrderedDict()
        self._size = 0
        self._moment = 0
        self._lock = Lock()

    @property
    def moment(self) -> int:
        """How often something was forgotten so far: what is built from here on may be kept if it is not forgotten."""
        return self._moment

    def get(self, tenant: str, digest: str) -> "ContentIndex | None":
        """The index of that content, None if it is not kept."""
        group = cache_group(tenant, digest)
        with self._lock:
            found = self._indexes.get(group)
            if found is None or found[0] <= self._clock.monotonic():
                return None
            self._indexes.move_to_end(group)
            return found[1]

    def keep(self, tenant: str, built: "Mapping[str, ContentIndex]", since: int) -> None:
        """Keeps indexes by the digests of their contents, but for contents that were forgotten after `since`."""
        until = self._clock.monotonic() + self._ttl
        with self._lock:
            for digest, index in built.items():
                group = cache_group(tenant, digest)
                if self._forgotten.get(group, 0) > since:
                    continue
                self._drop(group)
                self._indexes[group] = until, index
                self._size += index.size
            while self._size > self._max_bytes and self._indexes:
                self._drop(next(iter(self._indexes)))

    def forget(self, *groups: str) -> None:
        """Drops the indexes of these groups (`cache_group`), and those that are being built."""
        with self._lock:
            self._moment += 1
            for group in groups:
                self._drop(group)
                self._forgotten[group] = self._moment
                self._forgotten.move_to_end(group)
            while len(self._forgotten) > MOST_FORGOTTEN:
                self._forgotten.popitem(last=False)

    def _drop(self, group: str) -> None:
        found = self._indexes.pop(group, None)
        if found is not None:
            self._size -= found[1].size
