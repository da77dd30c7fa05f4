"""`gateway keys`: what the API says, by whoever reaches the storage (guarantee §12.1)."""

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TextIO

from gateway.api.keys.serializer import as_keys, changed_fields, grace_of, new_fields
from gateway.core.config.setting_sections import KeyFields
from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest, KeyNotFound, StorageUnavailable
from gateway.core.ports import Clock
from gateway.core.types.keys import StoredKey
from gateway.operations.actor import command_actor
from gateway.operations.keys.options import said, seconds_of
from gateway.operations.listed import FAINT, ID_STYLE, WHO_STYLE, when_text
from gateway.operations.screen import CommandScreen, Piece, TableColumn
from gateway.operations.storage_reader import why_not
from gateway.storage.audit_events import recorder
from gateway.storage.database.migrate import open_current
from gateway.storage.stored_keys import KeyQuery, KeyStore, Record, StoredSecret

COLUMNS = (
    TableColumn("key", ID_STYLE),
    TableColumn("hint", drop=6),
    TableColumn("tenant", drop=1),
    TableColumn("owner", WHO_STYLE, drop=2),
    TableColumn("project", drop=5),
    TableColumn("roles", drop=3),
    TableColumn("made (UTC)", drop=9),
    TableColumn("ends (UTC)", drop=4),
    TableColumn("USD this month", drop=7, is_right=True),
    TableColumn("last used", drop=8),
    TableColumn("name", is_flexible=True),
)
CSV = (
    *("id", "hint", "state", "tenant", "name", "owner", "project", "roles", "models", "created_at", "created_by"),
    *("updated_at", "rotated_at", "expires_at", "revoked_at", "budgets", "limits", "context", "retention_days"),
    *("file_bytes", "spent_usd", "last_used_on"),
)
PAGE = 100
ONCE = "this key is shown once: store it now"


@dataclass(frozen=True, slots=True)
class _KeyCommand:
    """One command, with what it works on. `record`: who is told of a change, in its transaction."""

    store: KeyStore
    options: argparse.Namespace
    now: datetime
    screen: CommandScreen
    err: TextIO
    record: Record | None = None

    async def create(self) -> None:
        fields = new_fields(said(self.options, self.now), self.options.tenant)
        made, key = await self.store.create(fields, None, self.record)
        await self._show_once(made, key)

    async def list(self) -> None:
        """All that there are, page by page."""
        options = self.options
        query = KeyQuery(options.tenant, options.owner, options.revoked, limit=PAGE)
        found: list[StoredKey] = []
        while (page := await self.store.page(query)) is not None and page.found:
            found += page.found
            if not page.has_more:
                break
            query = KeyQuery(options.tenant, options.owner, options.revoked, page.found[-1].key_id, PAGE)
        is_brief = not (options.csv or options.json)
        told = await as_keys(self.store, [(each.policy, each) for each in found], self.now, is_brief=is_brief)
        if options.csv:
            self.screen.csv(CSV, told)
        elif options.json:
            self.screen.json({"object": "list", "data": told})
        elif found:
            self.screen.table(COLUMNS, list(map(_row, found, told)))
        else:
            self.err.write("no keys\n")

    async def show(self) -> None:
        await self._show(await self.store.get(self.options.id))

    async def update(self) -> None:
        """Changes what the arguments name."""

        def change(was: KeyFields) -> KeyFields:
            before = was.model_dump(include={"limits", "context"}, exclude_none=True)
            return changed_fields(was, said(self.options, self.now, before))

        await self._show(_lasting(await self.store.update(self.options.id, change, self.record)))

    async def rotate(self) -> None:
        """Gives it another secret part."""
        grace = grace_of({"grace_seconds": seconds_of("--grace", self.options.grace)})
        done = await self.store.rotate(self.options.id, grace, self.record)
        rotated = _lasting(done[0] if done is not None else None)
        await self._show_once(rotated, str(done[1]) if done is not None else "")

    async def revoke(self) -> None:
        """Ends it."""
        await self._show(await self.store.revoke(self.options.id, self.record))

    async def _show(self, key: StoredKey | None, secret: str | None = None) -> None:
        """Raises KeyNotFound: there is none."""
        if key is None:
            raise KeyNotFound("No such key was made at runtime.")
        (told,) = await as_keys(self.store, [(key.policy, key)], self.now)
        shown = {**told, **({"key": secret} if secret is not None else {})}
        if self.options.json:
            self.screen.json(shown)
            return
        for name, value in shown.items():
            if name not in ("object", "source") and (text := _said(value)):
                self.screen.line((f"{name:<15}", FAINT), text)

    async def _show_once(self, key: StoredKey, secret: str) -> None:
        if self.options.quiet:
            self.screen.line(secret)
            return
        await self._show(key, secret)
        self.err.write(f"{ONCE}\n")


def keys(
    settings: Settings, options: argparse.Namespace, clock: Clock, environ: Mapping[str, str], out: TextIO, err: TextIO
) -> int:
    """Runs one command; returns 1 if there is no such key or the storage cannot be used, 2 if the arguments cannot be.
    Raises ValueError: an argument cannot be read."""
    try:
        asyncio.run(_with_store(settings, options, clock, CommandScreen(out, environ), err))
    except StorageUnavailable as error:
        err.write(f"{why_not(settings, error)}\n")
        return 1
    except KeyNotFound as error:
        err.write(f"{options.id}: {error.message}\n")
        return 1
    except InvalidRequest as error:
        err.write(f"{error.message}\n")
        return 2
    return 0


async def _with_store(
    settings: Settings, options: argparse.Namespace, clock: Clock, screen: CommandScreen, err: TextIO
) -> None:
    transactions = await open_current(settings.storage)
    try:
        store = KeyStore(transactions, clock, StoredSecret(transactions))
        command = _KeyCommand(store, options, clock.now(), screen, err, recorder(command_actor(), clock))
        await getattr(command, options.action)()
    finally:
        await transactions.close()


def _lasting(key: StoredKey | None) -> StoredKey:
    """Raises KeyNotFound: there is none, or it was revoked."""
    if key is None or key.revoked_at is not None:
        raise KeyNotFound("No such key was made at runtime." if key is None else "This key was revoked, and stays so.")
    return key


def _row(key: StoredKey, told: Mapping[str, Any]) -> list[Piece]:
    policy = key.policy
    ends = when_text(policy.expires_at) if policy.expires_at is not None else ""
    if told["state"] == "expired":
        ends = f"expired {ends}"
    if key.revoked_at is not None:
        ends = f"revoked {when_text(key.revoked_at)}"
    use = (f"{told['spent_usd']['month']:.2f}", told["last_used_on"] or "never")
    who = (policy.tenant, policy.owner or "", policy.project or "", ",".join(sorted(policy.roles)))
    return [key.key_id, f"…{key.hint}", *who, when_text(key.created_at), ends, *use, policy.name or ""]


def _said(value: object) -> str:
    """A value in words; a budget as `--budget` takes it."""
    if isinstance(value, dict) and "usd" in value:
        return f"{value['usd']:g}/{value['period']}{'' if value['hard'] else ':soft'}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items() if each is not None)
    if isinstance(value, list):
        return ", ".join(_said(each) for each in value)
    return "" if value is None else str(value)
