"""Keys made at runtime, as requests bring them: asked of the storage, and kept for moments (guarantee §12.2)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gateway.core.errors import Unauthorized
from gateway.core.ports import Clock
from gateway.core.types.keys import KeyPolicy, StoredKey
from gateway.storage.stored_keys import KeyStore, is_well_formed

KNOWN_SECONDS, UNKNOWN_SECONDS = 3.0, 1.0
"""For which an answer of the storage holds: that a key counts, and that there is none."""
MAX_KNOWN, MAX_UNKNOWN = 10_000, 1_000
UNKNOWN = "This API key is not known here. Send one as 'Authorization: Bearer KEY'."
"""Also of a key that was revoked: whoever finds one is not told that it ever counted."""
EXPIRED = "This API key has expired."


@dataclass(frozen=True, slots=True)
class _KeptKey:
    key: StoredKey | None
    until: float


class RuntimeKeys:
    """Looks keys up by the keyed digest of all of them. What was asked holds from when it was asked, not from when the
    storage answered, so that the sum of both cannot exceed `KNOWN_SECONDS`."""

    def __init__(self, store: KeyStore, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._known: dict[bytes, _KeptKey] = {}
        self._unknown: dict[bytes, _KeptKey] = {}
        self._asking: dict[bytes, asyncio.Task[StoredKey | None]] = {}
        self._changes = 0

    def now(self) -> datetime:
        """By the clock by which keys expire."""
        return self._clock.now()

    async def policy(self, token: str) -> KeyPolicy:
        """What is known of the key that is this token.
        Raises Unauthorized: it is no key, or none that counts; StorageUnavailable: nobody can tell."""
        if not is_well_formed(token):
            raise Unauthorized(UNKNOWN)
        digest = await self.store.digest(token)
        kept = self._known.get(digest) or self._unknown.get(digest)
        found = kept.key if kept is not None and self._clock.monotonic() < kept.until else await self._ask(digest)
        now = self._clock.now()
        if found is None or not found.counts(now):
            raise Unauthorized(UNKNOWN)
        if found.policy.ended(now):
            raise Unauthorized(EXPIRED)
        return found.policy

    async def by_id(self, key_id: str) -> KeyPolicy | None:
        """What is known of a key by its id; None if it does not count any more.
        Raises StorageUnavailable: nobody can tell."""
        found = await self.store.get(key_id)
        now = self._clock.now()
        return found.policy if found is not None and found.counts(now) and not found.policy.ended(now) else None

    async def by_ids(self, key_ids: Sequence[str]) -> dict[str, KeyPolicy]:
        """The same of several, asked for at once. Raises StorageUnavailable: nobody can tell."""
        found, now = await self.store.by_ids(key_ids), self._clock.now()
        return {key_id: key.policy for key_id, key in found.items() if key.counts(now) and not key.policy.ended(now)}

    def changed(self) -> None:
        """Something was changed in this process: what is known is asked anew, also what is being asked now."""
        self._changes += 1
        self._known.clear()
        self._unknown.clear()
        self._asking.clear()

    async def _ask(self, digest: bytes) -> StoredKey | None:
        """Requests at once with one key ask once."""
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = asyncio.ensure_future(self._asked(digest))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits for it
        return await asyncio.shield(task)

    async def _asked(self, digest: bytes) -> StoredKey | None:
        at, changes = self._clock.monotonic(), self._changes
        own = asyncio.current_task()
        try:
            found = await self.store.find(digest)
        finally:
            if self._asking.get(digest) is own:
                del self._asking[digest]
        if changes == self._changes:
            counts = found is not None and found.counts(self._clock.now())
            kept, most = (self._known, MAX_KNOWN) if counts else (self._unknown, MAX_UNKNOWN)
            self._known.pop(digest, None)
            self._unknown.pop(digest, None)
            if len(kept) >= most:
                del kept[next(iter(kept))]  # the oldest
            kept[digest] = _KeptKey(found, at + (KNOWN_SECONDS if counts else UNKNOWN_SECONDS))
        return found
