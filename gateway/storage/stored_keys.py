"""Keys made at runtime (ADR 28): rows of keyed digests, never a key; and what was spent with them (guarantee §12.1)."""

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError

from gateway.core import errors, ids, names, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.config import setting_sections
from gateway.core.frozen_records import record
from gateway.core.types import bill, keys, report_lists
from gateway.core.types.keys import StoredKey
from gateway.storage.database import schema
from gateway.storage.database.schema import api_keys, ui_sessions
from gateway.storage.database.sqlite import DatabaseTransactions, insert_if_new
from gateway.storage.rows import alike, behind, utc, utc_or_none

KEY_RANDOM_BYTES = 32
WELL_FORMED = re.compile(keys.KEY_PREFIX + r"[A-Za-z0-9_-]{43}", re.ASCII)
HINT_CHARS = 4
KEY_DIGEST_PURPOSE = b"api-key\0"
KEYS_AT_ONCE = 100
"""Keys whose use one transaction reads."""
KEPT_SECONDS, MAX_KEPT = 3600.0, 10_000
"""For how long, and for how many keys, the sum of earlier days is cached: its bills change only where one is
amended."""
MAX_GRACE = timedelta(days=7)
"""How long a key may stay valid after its rotation."""
DAYS = schema.usage_days.c
TOTAL = "total"
Record = Callable[[sa.Connection, str, str, str, dict[str, Any]], None]
"""Called in the transaction of a change with `key.created`, `key.updated`, `key.rotated` or `key.revoked`; the key's
id; its tenant before the change; what changed, without secrets."""


@record
class KeyQuery:
    """Filters and pages a list of keys; `after`: only keys behind the key of that id."""

    tenant: str | None = None
    owner: str | None = None
    include_revoked: bool = False
    after: str | None = None
    limit: int = 20


@record
class KeyUse:
    """`spent`: USD by period, over calls with a known price; `last_day`: the last day (UTC) with a request that called
    a model."""

    spent: Mapping[str, Decimal]
    last_day: date | None = None


def is_well_formed(token: str) -> bool:
    """Returns whether `token` has the form of a key made by this gateway."""
    return WELL_FORMED.fullmatch(token) is not None


class KeyStore:
    """Stores runtime keys; each method is one short transaction. `secret`: returns the secret of keyed hashes.
    Raises StorageUnavailable: from any method: the storage cannot be reached, or a newer version wrote the row."""

    def __init__(
        self, transactions: DatabaseTransactions, clock: ports.Clock, secret: Callable[[], Awaitable[bytes]]
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._secret = secret
        self._before: BoundedCache[tuple[str, date], int] = BoundedCache(
            MAX_KEPT, now=clock.monotonic, ttl=KEPT_SECONDS
        )

    async def digest(self, key: str) -> bytes:
        """Computes the keyed digest of a whole key, which is stored in its place."""
        return hmac.digest(await self._secret(), KEY_DIGEST_PURPOSE + key.encode("utf-8", "replace"), "sha256")

    async def find(self, digest: bytes) -> StoredKey | None:
        """Finds the key that has this digest, or had it before its last rotation; also if it is revoked."""
        found = api_keys.c.digest == digest
        query = sa.select(api_keys).where(sa.or_(found, api_keys.c.previous_digest == digest))
        rows = await self._transactions.run(lambda connection: connection.execute(query).all())
        for row in rows:
            if hmac.compare_digest(bytes(row.digest), digest):
                return _key(row)
        for row in rows:
            if row.previous_digest is not None and hmac.compare_digest(bytes(row.previous_digest), digest):
                return _key(row, row.previous_until or row.updated_at)
        return None

    async def create(
        self,
        fields: setting_sections.KeyFields,
        created_by: str | None = None,
        record: Record | None = None,
        key_id: str = "",
    ) -> tuple[StoredKey, str]:
        """Creates a key. Returns it with its token, which cannot be read again.
        `key_id`: an id chosen before; empty: a new one. Raises KeyChanged: that id exists."""
        key, now = _new(), self._clock.now()
        row = {
            "id": key_id or ids.new_id("key_"),
            "digest": await self.digest(key),
            "hint": key[-HINT_CHARS:],
            **_columns(fields),
            "created_by": created_by,
            "created_at": now,
            "updated_at": now,
        }

        def work(connection: sa.Connection) -> StoredKey:
            if not connection.execute(insert_if_new(connection, api_keys).values(**row)).rowcount:
                raise errors.KeyChanged("This key was made already.")
            if record is not None:
                record(connection, "key.created", row["id"], fields.tenant, _said(fields))
            return _key(_row(connection, row["id"]))

        return await self._transactions.run(work, write=True), key

    async def get(self, key_id: str) -> StoredKey | None:
        """Returns the key of that id; None if there is none."""
        found = await self.by_ids((key_id,))
        return found.get(key_id)

    async def by_ids(self, key_ids: Sequence[str]) -> dict[str, StoredKey]:
        """Returns the stored keys among these ids."""
        wanted = [each for each in key_ids if not names.has_nul(each)]
        query = sa.select(api_keys).where(api_keys.c.id.in_(wanted))
        rows = await self._transactions.run(lambda connection: connection.execute(query).all())
        return {row.id: _key(row) for row in rows}

    async def use(self, key_ids: Sequence[str], starts: Mapping[str, date], *, in_all: bool) -> dict[str, KeyUse]:
        """Returns what was spent with each key since the days of `starts`, and if `in_all` also in total. Unused keys
        are left out. The sum of earlier days is cached for `KEPT_SECONDS`."""
        found: dict[str, KeyUse] = {}
        for at in range(0, len(key_ids), KEYS_AT_ONCE):
            found |= await self._use(key_ids[at : at + KEYS_AT_ONCE], starts, in_all=in_all)
        return found

    async def _use(self, key_ids: Sequence[str], starts: Mapping[str, date], *, in_all: bool) -> dict[str, KeyUse]:
        yesterday = self._clock.now().astimezone(UTC).date() - timedelta(days=1)  # its bills may still come
        first = min(yesterday, *starts.values())
        kept = {each: spent for each in key_ids if (spent := self._before.peek((each, first))) is not None}
        unknown = [each for each in key_ids if in_all and each not in kept]

        def work(connection: sa.Connection) -> tuple[dict[str, int], dict[str, KeyUse]]:
            read = read_spent_before(connection, unknown, first) if unknown else {}
            return read, read_key_use(connection, key_ids, starts, first, kept | read if in_all else None)

        read, found = await self._transactions.run(work)
        for key_id, spent in read.items():
            self._before.put((key_id, first), spent)
        return found

    async def page(self, query: KeyQuery) -> report_lists.QueryPage[StoredKey] | None:
        """Returns a page of keys, latest first; None if `query.after` is no key."""
        if names.has_nul(query.tenant, query.owner, query.after):
            return report_lists.QueryPage(()) if query.after is None else None
        return await self._transactions.run(lambda connection: _page(connection, query))

    async def update(
        self,
        key_id: str,
        change: Callable[[setting_sections.KeyFields], setting_sections.KeyFields],
        record: Record | None = None,
        seen: datetime | None = None,
    ) -> StoredKey | None:
        """Changes a key's fields; None if there is no such key. A revoked key stays unchanged, and so does one whose
        fields stay the same.
        `change`: builds the new fields from the stored ones; it may raise. `seen`: `updated_at` of the key that the
        change was made for; None: any version.
        Raises KeyChanged: the key was changed after `seen`."""
        now = self._clock.now()

        def work(connection: sa.Connection, row: Any) -> None:
            before = _fields(row)
            fields = change(before)
            if fields == before:
                return
            where = api_keys.update().where(api_keys.c.id == key_id)
            connection.execute(where.values(**_columns(fields), updated_at=now))
            if record is not None:
                old, new = _said(before), _said(fields)
                changed = {name: new.get(name) for name in {**old, **new} if old.get(name) != new.get(name)}
                record(connection, "key.updated", key_id, row.tenant, changed)

        return await self._change(key_id, work, seen)

    async def rotate(
        self, key_id: str, grace: timedelta, record: Record | None = None, seen: datetime | None = None
    ) -> tuple[StoredKey, str | None] | None:
        """Replaces a key's secret part. Returns the key and its new token; None if there is no such key, (key, None) if
        it is revoked. The previous token stays valid for `grace`, earlier ones end; so do sessions of the web UI.
        `seen`: as in `update`. Raises KeyChanged: as there."""
        key, now = _new(), self._clock.now()
        digest = await self.digest(key)
        keeps = grace > timedelta(0)

        def work(connection: sa.Connection, row: Any) -> None:
            values = {
                "previous_digest": row.digest if keeps else None,
                "previous_until": now + grace if keeps else None,
                "digest": digest,
                "hint": key[-HINT_CHARS:],
                "rotated_at": now,
                "updated_at": now,
            }
            connection.execute(api_keys.update().where(api_keys.c.id == key_id).values(**values))
            _end_sessions(connection, key_id, now)
            if record is not None:
                record(connection, "key.rotated", key_id, row.tenant, {"grace_seconds": grace.total_seconds()})

        done = await self._change(key_id, work, seen)
        return None if done is None else (done, key if done.revoked_at is None else None)

    async def revoke(self, key_id: str, record: Record | None = None) -> StoredKey | None:
        """Revokes a key for good and ends its sessions in the web UI; None if there is no such key."""
        now = self._clock.now()

        def work(connection: sa.Connection, row: Any) -> None:
            values = {"revoked_at": now, "updated_at": now, "previous_digest": None, "previous_until": None}
            connection.execute(api_keys.update().where(api_keys.c.id == key_id).values(**values))
            _end_sessions(connection, key_id, now)
            if record is not None:
                record(connection, "key.revoked", key_id, row.tenant, {})

        return await self._change(key_id, work)

    async def _change(
        self, key_id: str, work: Callable[[sa.Connection, Any], None], seen: datetime | None = None
    ) -> StoredKey | None:
        """Changes a key by `work`, which gets its locked row, and returns the key; a revoked one stays unchanged."""

        def change(connection: sa.Connection) -> StoredKey | None:
            row = _row(connection, key_id, locked=True)
            if row is None or row.revoked_at is not None:
                return None if row is None else _key(row)
            if seen is not None and utc(row.updated_at) != seen:
                raise errors.KeyChanged("Somebody else changed this key meanwhile.")
            work(connection, row)
            return _key(_row(connection, key_id))

        return None if names.has_nul(key_id) else await self._transactions.run(change, write=True)


def count_keys(connection: sa.Connection, now: datetime) -> int:
    """Counts the keys that are neither revoked nor expired."""
    columns = api_keys.c
    lives = (columns.revoked_at.is_(None), sa.or_(columns.expires_at.is_(None), columns.expires_at > now))
    return int(connection.execute(sa.select(sa.func.count()).select_from(api_keys).where(*lives)).scalar_one())


def _new() -> str:
    return keys.KEY_PREFIX + secrets.token_urlsafe(KEY_RANDOM_BYTES)


def _row(connection: sa.Connection, key_id: str, *, locked: bool = False) -> Any:
    query = sa.select(api_keys).where(api_keys.c.id == key_id)
    return connection.execute(query.with_for_update() if locked else query).one_or_none()


def _page(connection: sa.Connection, query: KeyQuery) -> report_lists.QueryPage[StoredKey] | None:
    columns = api_keys.c
    wanted = []
    if query.tenant is not None:
        wanted.append(columns.tenant == query.tenant)
    if query.owner is not None:
        wanted.append(columns.owner == query.owner)
    if not query.include_revoked:
        wanted.append(columns.revoked_at.is_(None))
    if query.after is not None:
        last = _row(connection, query.after)
        if last is None:
            return None
        wanted.append(behind((columns.created_at, columns.id), (last.created_at, last.id), is_down=True))
    found = sa.select(api_keys).where(*wanted).order_by(columns.created_at.desc(), columns.id.desc())
    rows = connection.execute(found.limit(query.limit + 1)).all()
    return report_lists.QueryPage.of(map(_key, rows), query.limit)


def _columns(fields: setting_sections.KeyFields) -> dict[str, Any]:
    """Returns a key's row values: all fields as JSON, and columns for those that lists filter by."""
    named = {name: getattr(fields, name) for name in ("tenant", "name", "owner", "project", "expires_at")}
    return {**named, "policy": fields.model_dump_json(exclude_defaults=True)}


def _said(fields: setting_sections.KeyFields) -> dict[str, Any]:
    return fields.model_dump(mode="json", exclude_defaults=True)


def _fields(row: Any) -> setting_sections.KeyFields:
    try:
        return setting_sections.KeyFields.model_validate_json(row.policy)
    except ValidationError as error:  # a newer version knows more limits; without them it would not be that key
        raise errors.StorageUnavailable("What may be done with this key was written by a newer version.") from error


def _key(row: Any, replaced_until: datetime | None = None) -> StoredKey:
    policy = keys.policy_of(row.id, _fields(row))
    until = utc_or_none(replaced_until)
    return StoredKey(**alike(row, StoredKey, "policy", "replaced_until"), policy=policy, replaced_until=until)


def _end_sessions(connection: sa.Connection, key_id: str, now: datetime) -> None:
    update = ui_sessions.update().where(ui_sessions.c.key_id == key_id, ui_sessions.c.revoked_at.is_(None))
    connection.execute(update.values(revoked_at=now))


def read_key_use(
    connection: sa.Connection,
    key_ids: Sequence[str],
    starts: Mapping[str, date],
    first: date,
    before: Mapping[str, int] | None,
) -> dict[str, KeyUse]:
    """Reads the use of each key that was used at all.
    `starts`: the first day of each period to report; `first`: days before it are not read; `before`: picodollars spent
    before `first`, from `read_spent_before`; if given, the whole sum is reported as the period `total`."""
    sums = [
        sa.func.sum(sa.case((DAYS.day >= start, DAYS.cost_picousd), else_=0)).label(period)
        for period, start in {**starts, TOTAL: first}.items()
    ]
    query = sa.select(DAYS.key_id, *sums).where(DAYS.key_id.in_(key_ids), DAYS.day >= first).group_by(DAYS.key_id)
    spent = {row.key_id: row._mapping for row in connection.execute(query)}
    last = [sa.select(sa.literal(each), sa.func.max(DAYS.day)).where(DAYS.key_id == each) for each in key_ids]
    found: dict[str, KeyUse] = {}
    for key_id, day in connection.execute(sa.union_all(*last)) if last else ():
        if day is not None:
            row: Mapping[Any, Any] = spent.get(key_id, {})
            told = {period: int(row.get(period) or 0) * bill.PICO for period in starts}
            if before is not None:
                told[TOTAL] = (before.get(key_id, 0) + int(row.get(TOTAL) or 0)) * bill.PICO
            found[key_id] = KeyUse(told, day)
    return found


def read_spent_before(connection: sa.Connection, key_ids: Sequence[str], day: date) -> dict[str, int]:
    """Sums the picodollars spent with each key before `day`; reads all of the key's days."""
    query = sa.select(DAYS.key_id, sa.func.sum(DAYS.cost_picousd)).where(DAYS.key_id.in_(key_ids), DAYS.day < day)
    found = {key_id: int(spent or 0) for key_id, spent in connection.execute(query.group_by(DAYS.key_id))}
    return {each: found.get(each, 0) for each in key_ids}
