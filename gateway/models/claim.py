"""Requests that are to be answered once: which one it is, who answers it, and what is known of it elsewhere."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

ClaimState = Literal["running", "done", "contested"]


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """Which request it is, by keyed digests: what was said in it cannot be had from them.

    `named`: its client gave it an `Idempotency-Key`, of which `key` is the digest; else `key` is that of the request
    itself, and `repeated` says that an SDK sends it once more.
    """

    tenant: str
    key: bytes
    body: bytes
    named: bool
    repeated: bool = False

    @property
    def place(self) -> tuple[str, bytes]:
        """Where it is looked for."""
        return self.tenant, self.key


@dataclass(slots=True, eq=False)
class Claim:
    """The right to answer a request. It becomes the answer's record in the transaction that commits its turn.

    `kept` is how long the record counts from then on. `shared`: the claim itself stands in the storage, where other
    processes see it. `contested`: the same request came once more while this one ran, so that nobody can tell any
    more whose the answer is.
    """

    identity: RequestIdentity
    request_id: str
    process: str
    created_at: datetime
    kept: timedelta
    shared: bool = False
    contested: bool = False
    settling: asyncio.Future[None] | None = field(default=None, repr=False)

    async def settle(self, commit: Coroutine[Any, Any, None]) -> None:
        """Awaits the commit that settles it, and knows how that ended even if the caller is cancelled meanwhile."""
        task = self.settling = asyncio.ensure_future(commit)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(task)

    @property
    def settled(self) -> bool:
        """Whether a commit has made it a record, or has let it go."""
        task = self.settling
        return task is not None and task.done() and not task.cancelled() and task.exception() is None


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """What the storage knows of a request. `valid`: it has not expired, and who holds it is alive."""

    state: ClaimState
    request_id: str
    body: bytes
    created_at: datetime
    valid: bool
