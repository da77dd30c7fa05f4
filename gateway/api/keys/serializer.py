"""The object of a key in the API, and the fields that a request may give one (guarantee §12.1)."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, WithJsonSchema
from typing_extensions import TypedDict

from gateway.api.fields import read
from gateway.api.shapes import IsoTime, shape, shown
from gateway.core import errors
from gateway.core.config import setting_sections
from gateway.core.types import keys
from gateway.core.types.keys import KeyPolicy, StoredKey
from gateway.storage import stored_keys

FIELDS = TypeAdapter(setting_sections.KeyFields)
OBJECT = "gateway.key"
PERIODS: tuple[setting_sections.Period, ...] = get_args(setting_sections.Period)
TOTAL: setting_sections.Period = "total"
UNUSED_KEY = stored_keys.KeyUse({})
OF_THE_STORAGE = ("hint", "created_at", "created_by", "updated_at", "rotated_at", "revoked_at")
KnownKey = tuple[KeyPolicy, StoredKey | None]
"""A key, and what is stored of it; None for one of the configuration, and for a signed token."""


GRACE = Annotated[float, Field(ge=0, le=stored_keys.MAX_GRACE.total_seconds(), json_schema_extra={"default": 0})]
Rotation = shape("Rotation", "For how long the key before counts.", {"grace_seconds?": GRACE})


class SpentByPeriod(TypedDict):
    """By period, in days of UTC."""

    day: float
    week: float
    month: float
    total: float


class KeyObject(TypedDict):
    """What is known of a key."""

    id: str
    object: Literal["gateway.key"]
    source: Literal["runtime", "configuration", "token"]
    state: Literal["active", "expired", "revoked"]
    name: str | None
    owner: str | None
    tenant: str
    project: str | None
    roles: list[setting_sections.Role]
    models: list[str]
    expires_at: IsoTime | None
    budgets: list[setting_sections.SpendBudget]
    limits: setting_sections.RateLimits
    context: setting_sections.ContextDefaults
    retention_days: float | None
    file_bytes: int | None
    hint: str | None
    created_at: IsoTime | None
    created_by: str | None
    updated_at: IsoTime | None
    rotated_at: IsoTime | None
    revoked_at: IsoTime | None
    spent_usd: SpentByPeriod
    last_used_on: Annotated[str, WithJsonSchema({"type": "string", "format": "date"})] | None


class NewKeyObject(KeyObject):
    """A key with what its holder sends; nobody can read that again."""

    key: str


async def as_keys(
    store: stored_keys.KeyStore, known: Sequence[KnownKey], now: datetime, *, is_brief: bool = False
) -> list[KeyObject]:
    """Returns the objects of keys without their secrets, each with its state and its use.
    `is_brief`: includes the total spending, which takes all days of a key to add up, only where a budget limits it.
    Raises StorageUnavailable: the storage cannot be reached."""
    starts: dict[str, date] = {period: keys.period_of(period, now)[0] for period in PERIODS if period != TOTAL}
    ids: dict[bool, list[str]] = {True: [], False: []}
    for policy, _ in known:
        if policy.key_id is not None:
            ids[is_brief and all(each.period != TOTAL for each in policy.budgets)].append(policy.key_id)
    uses: dict[str, stored_keys.KeyUse] = {}
    for is_bounded, some in ids.items():
        uses |= await store.use(some, starts, in_all=not is_bounded) if some else {}
    return [_as_key(policy, stored, uses.get(policy.key_id or "", UNUSED_KEY), now) for policy, stored in known]


def _as_key(policy: KeyPolicy, stored: StoredKey | None, use: stored_keys.KeyUse, now: datetime) -> KeyObject:
    is_revoked = stored is not None and stored.revoked_at is not None
    return shown(
        KeyObject,
        policy,
        _time,
        id=policy.key_id,
        object=OBJECT,
        source="token" if policy.is_signed else "runtime" if stored is not None else "configuration",
        state="revoked" if is_revoked else "expired" if policy.ended(now) else "active",
        roles=sorted(policy.roles),
        budgets=[{"usd": float(each.usd), "period": each.period, "hard": each.hard} for each in policy.budgets],
        limits={name: getattr(policy.limits, name) for name in ("rpm", "tpm", "concurrent")},
        context=policy.context.model_dump(exclude_none=True),
        spent_usd={period: float(use.spent.get(period, 0)) for period in use.spent or PERIODS},
        last_used_on=use.last_day.isoformat() if use.last_day is not None else None,
        **{name: getattr(stored, name, None) for name in OF_THE_STORAGE},
    )


def new_fields(body: dict[str, Any], tenant: str) -> setting_sections.KeyFields:
    """Validates the fields of a new key; null is the same as no field.
    `tenant`: the key's tenant where the body names none.
    Raises InvalidRequest: a field breaks a rule, or no key has it; `param` names it."""
    given = {name: value for name, value in body.items() if value is not None}
    return read(FIELDS, {"tenant": tenant, **given})


def changed_fields(before: setting_sections.KeyFields, body: dict[str, Any]) -> setting_sections.KeyFields:
    """Returns the fields of a key after the change `body`; null resets a field to its default.
    Raises InvalidRequest: as `new_fields` does, and where `tenant` is null."""
    if "tenant" in body and body["tenant"] is None:
        raise errors.InvalidRequest("tenant is required.", param="tenant", code=errors.REQUIRED)
    kept = {name: getattr(before, name) for name in before.model_fields_set - body.keys()}
    unknown = {name: value for name, value in body.items() if name not in setting_sections.KeyFields.model_fields}
    given = {name: value for name, value in body.items() if value is not None}
    return read(FIELDS, {**kept, **unknown, **given})


def grace_of(body: dict[str, Any]) -> timedelta:
    """Parses `grace_seconds`: for how long the previous secret stays valid.
    Raises InvalidRequest: it is no number of seconds up to a week, or the body has another field."""
    for name in body:
        if name != "grace_seconds":
            raise errors.invalid(name, "is not known; known are grace_seconds")
    seconds, most = body.get("grace_seconds", 0), stored_keys.MAX_GRACE.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= most:
        raise errors.invalid("grace_seconds", f"must be a number of seconds from 0 to {most:.0f}")
    return timedelta(seconds=seconds)


def _time(value: datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")
