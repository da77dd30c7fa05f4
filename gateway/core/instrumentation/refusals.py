"""The latest requests that were refused before a model was asked, without content: they leave no bill."""

import re
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import datetime

from gateway.core.bounded_cache import BoundedCache

MAX_TENANTS, KEPT_EACH = 200, 50
"""Of so many tenants the latest: whoever floods the gateway pushes out nothing of others."""
MAX_KINDS = 100
"""Statuses and codes that are counted apart."""
MAX_REFUSAL_CODE_CHARS = 64
REFUSED_FIELD_NAME = re.compile(r"[a-z_][a-z0-9_.\[\]]{0,63}", re.ASCII)
NO_TENANT = ""
"""In the place of a tenant, where a request had no key that counts."""
Kind = tuple[int, str]


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A request that was refused. `endpoint`: the path without ids; `field`: the one that its error names; `key_id`: of
    whom it came, where that is known."""

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
    """Those of one process since its start, in bounded memory."""

    def __init__(self) -> None:
        self._tenants: BoundedCache[str, _OfOneTenant] = BoundedCache(MAX_TENANTS)
        self._all = _OfOneTenant()

    def note(self, refused: RefusedRequest) -> None:
        """Keeps it in the place of its tenant's oldest."""
        kind = (refused.status, refused.code[:MAX_REFUSAL_CODE_CHARS])
        tenant = self._tenants.get(refused.tenant) or self._tenants.put(refused.tenant, _OfOneTenant())
        tenant.latest.append(refused)
        for each in (tenant, self._all):
            each.count(kind)

    def latest(self, tenant: str | None) -> list[RefusedRequest]:
        """The newest first, of one tenant (None: of all, and of nobody's)."""
        if tenant is None:
            every = [each for of_one in self._tenants.values() for each in of_one.latest]
            return sorted(every, key=lambda each: each.at, reverse=True)
        found = self._tenants.peek(tenant)
        return [*reversed(found.latest)] if found is not None else []

    def counts(self, tenant: str | None) -> list[tuple[Kind, int]]:
        """How many since the start by status and code, the most first."""
        found = self._all if tenant is None else self._tenants.peek(tenant)
        return found.counts.most_common() if found is not None else []


def field_of(param: str | None) -> str | None:
    """The name of a field as an error tells it; None of what no field of ours can be."""
    return param if param is not None and REFUSED_FIELD_NAME.fullmatch(param) else None
