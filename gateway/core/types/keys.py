"""A key of ours as the steps know it: whose it is, and what it may do (guarantee §12.1)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from gateway.core.config.allowances import NO_DEFAULTS, NO_LIMITS, ContextDefaults, RateLimits, SpendBudget
from gateway.core.config.auth_settings import KeyFields

KEY_PREFIX = "sk-gw-"
"""With which keys begin that are made at runtime. None of them ever goes to an upstream."""


def is_ours(text: str) -> bool:
    """Whether a token, a header or a parameter may hold such a key, be it cut, padded or in other letters: then it goes
    to no upstream."""
    return KEY_PREFIX in text.lower()


OTHER_MODELS = ("models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks")
"""Fields in which some upstreams (OpenRouter, LiteLLM) take models that may answer instead."""


def named_besides(fields: Mapping[str, Any]) -> Iterator[str]:
    """The models that a body names beside its `model`, for upstreams that go by it; whatever is a text there counts."""
    left = [fields[name] for name in OTHER_MODELS if name in fields]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """What is known of a key but the key itself. `key_id` is None while it cannot be told. `models` are patterns; none
    means any model. `is_signed`: it is a token that somebody else signed, of which nobody can say that it was revoked;
    `user`: whom it names as the user of each of its requests."""

    key_id: str | None
    tenant: str
    name: str | None = None
    owner: str | None = None
    project: str | None = None
    roles: frozenset[str] = frozenset({"user"})
    models: tuple[str, ...] = ()
    expires_at: datetime | None = None
    budgets: tuple[SpendBudget, ...] = ()
    limits: RateLimits = NO_LIMITS
    context: ContextDefaults = field(default=NO_DEFAULTS)
    retention_days: float | None = None
    file_bytes: int | None = None
    is_signed: bool = False
    user: str | None = None

    def ended(self, now: datetime) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and self.expires_at <= now

    def may_ask(self, model: str) -> bool:
        """Whether requests with it may name that model."""
        return not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key made at runtime. `hint`: its last characters. `created_by`: the id of the key that made it; None: a command
    did. `replaced_until`, of a key that was found by what it was before its rotation: until when that counts."""

    policy: KeyPolicy
    hint: str
    created_at: datetime
    updated_at: datetime
    created_by: str | None = None
    rotated_at: datetime | None = None
    revoked_at: datetime | None = None
    replaced_until: datetime | None = None

    @property
    def key_id(self) -> str:
        """Its id, which a rotation leaves."""
        return str(self.policy.key_id)

    def counts(self, now: datetime) -> bool:
        """Whether it is neither revoked nor replaced; it may have expired."""
        return self.revoked_at is None and (self.replaced_until is None or now < self.replaced_until)


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Keys of a list, the latest in front."""

    keys: tuple[StoredKey, ...]
    has_more: bool


def policy_of(key_id: str | None, fields: KeyFields) -> KeyPolicy:
    """The policy of a key of which this was said."""
    return KeyPolicy(
        key_id=key_id,
        tenant=fields.tenant,
        name=fields.name,
        owner=fields.owner,
        project=fields.project,
        roles=frozenset(fields.roles),
        models=fields.models,
        expires_at=fields.expires_at,
        budgets=fields.budgets,
        limits=fields.limits,
        context=fields.context,
        retention_days=fields.retention_days,
        file_bytes=fields.file_bytes,
    )
