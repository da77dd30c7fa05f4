"""The latest requests that were refused before a model was called, without content: they have no bill."""

import re
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import datetime

from gateway.core.bounded_cache import BoundedCache
from gateway.core.frozen_records import record

MAX_TENANTS, KEPT_EACH = 200, 50
"""Tenants, and latest requests of each: a tenant that floods the gateway evicts nothing of others."""
MAX_KINDS = 100
"""Pairs of status and code that are counted separately."""
MAX_REFUSAL_CODE_CHARS = 64
REFUSED_FIELD_NAME = re.compile(r"[a-z_][a-z0-9_.\[\]]{0,63}", re.ASCII)
NO_TENANT = ""
"""The tenant of a request without a valid key."""
Kind = tuple[int, str]


@record
class RefusedRequest:
    """A request that was refused. `endpoint`: the path without ids; `field`: the one that its error names; `key_id`:
    that of the sender's key, if known."""

    request_id: str
    at: datetime
    tenant: str
    endpoint: str
    status: int
    code: str
    field: str | None = None
    key_id: str | None = None


@dataclass(slots=True)
class _OfOneTenant:
    latest: deque[RefusedRequest] = field(default_factory=lambda: deque(maxlen=KEPT_EACH))
    counts: Counter[Kind] = field(default_factory=Counter)

    def count(self, kind: Kind) -> None:
        if kind in self.counts or len(self.counts) < MAX_KINDS:
            self.counts[kind] += 1


class RefusedRequests:
    """The refused requests of one process since its start, in bounded memory."""

    def __init__(self) -> None:
        self._tenants: BoundedCache[str, _OfOneTenant] = BoundedCache(MAX_TENANTS)
        self._all = _OfOneTenant()

    def note(self, refused: RefusedRequest) -> None:
        """Records a refused request; beyond the limit, it replaces its tenant's oldest."""
        kind = (refused.status, refused.code[:MAX_REFUSAL_CODE_CHARS])
        tenant = self._tenants.get(refused.tenant) or self._tenants.put(refused.tenant, _OfOneTenant())
        tenant.latest.append(refused)
        for each in (tenant, self._all):
            each.count(kind)

    def latest(self, tenant: str | None) -> list[RefusedRequest]:
        """Returns the requests of one tenant, newest first (None: of all, and those without a tenant)."""
        if tenant is None:
            every = [each for of_one in self._tenants.values() for each in of_one.latest]
            return sorted(every, key=lambda each: each.at, reverse=True)
        found = self._tenants.peek(tenant)
        return [*reversed(found.latest)] if found is not None else []

    def counts(self, tenant: str | None) -> list[tuple[Kind, int]]:
        """Returns the number of refusals since the start for each status and code, highest first."""
        found = self._all if tenant is None else self._tenants.peek(tenant)
        return found.counts.most_common() if found is not None else []


def field_of(param: str | None) -> str | None:
    """Returns the field that an error names; None if it cannot be a field of ours."""
    return param if param is not None and REFUSED_FIELD_NAME.fullmatch(param) else None
