"""`gateway keys`: manages keys as the API does, for anyone with access to the storage (guarantee §12.1)."""

import argparse
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from gateway.api import serializer
from gateway.core import clock, errors
from gateway.core.config import setting_sections
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types.keys import KeyPolicy, StoredKey, policy_of
from gateway.operations.actor import command_actor
from gateway.operations.command_arguments import KEY_NAMES, LIMIT_OPTIONS
from gateway.operations.screen import ID_STYLE, WHO_STYLE, CommandCall, Piece, TableColumn, when_text
from gateway.operations.storage_reader import run_changing
from gateway.storage import audit_events, keyed_hashes, stored_keys
from gateway.storage.database import DatabaseTransactions

KEY_COLUMNS = (
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
KEY_CSV = (
    *("id", "hint", "state", "tenant", "name", "owner", "project", "roles", "models", "created_at", "created_by"),
    *("updated_at", "rotated_at", "expires_at", "revoked_at", "budgets", "limits", "context", "retention_days"),
    *("file_bytes", "spent_usd", "last_used_on", "source"),
)
KEYS_PER_PAGE = 100
OPTIONS = {"budgets": "budget", "roles": "role", "models": "model", "expires_at": "expires"}
"""Arguments with another name than their field."""
ONCE = "this key is shown once: store it now"


@record
class _KeyCommand:
    """One command and what it works on. `record`: writes a change to the audit log, in the same transaction; `secret`:
    reads that of keyed hashes."""

    call: CommandCall
    store: stored_keys.KeyStore
    now: datetime
    record: stored_keys.Record
    secret: Callable[[], Awaitable[bytes]]

    @property
    def options(self) -> argparse.Namespace:
        return self.call.options

    async def create(self) -> None:
        fields = serializer.new_fields(said(self.options, self.now), self.options.tenant)
        made, key = await self.store.create(fields, None, self.record)
        await self._show_once(made, key)
        if fields.expires_at is not None and fields.expires_at <= self.now:
            self.call.err.write("it has expired already: nobody is served with it\n")

    async def list(self) -> None:
        """Lists all keys that match, read page by page, then those of the configuration."""
        options = self.options
        query = stored_keys.KeyQuery(options.tenant, options.owner, options.revoked, limit=KEYS_PER_PAGE)
        found: list[StoredKey] = []
        while (page := await self.store.page(query)) is not None and page.found:
            found += page.found
            if not page.has_more:
                break
            query = replace(query, after=page.found[-1].key_id)
        known: list[serializer.KnownKey] = [(each.policy, each) for each in found]
        known += [
            (policy, None)
            for policy in (await self._configured()).values()
            if options.tenant in (None, policy.tenant) and options.owner in (None, policy.owner)
        ]
        is_brief = not (options.csv or options.json)
        told = await serializer.as_keys(self.store, known, self.now, is_brief=is_brief)
        rows = (_row(*each, shown) for each, shown in zip(known, told, strict=True))
        self.call.write_list(KEY_CSV, told, KEY_COLUMNS, rows, empty="there are no keys")

    async def _configured(self) -> dict[str, KeyPolicy]:
        """Returns the keys of `auth.keys`, by their ids."""
        secret = await self.secret()
        keys = (
            (keyed_hashes.key_id(secret, each.key.get_secret_value()), each) for each in self.call.settings.auth.keys
        )
        return {key_id: policy_of(key_id, each) for key_id, each in keys}

    async def show(self) -> None:
        await self._show(await self.store.get(self.options.id))

    async def check_made_here(self) -> None:
        """Raises KeyNotFound: the key of the argument stands in the configuration."""
        name = getattr(self.options, "id", None)
        if name is not None and name in await self._configured():
            text = "This key stands in auth.keys of the configuration, and is shown and changed there alone."
            raise errors.KeyNotFound(text)

    async def update(self) -> None:
        """Changes the fields that the arguments name."""

        def change(was: setting_sections.KeyFields) -> setting_sections.KeyFields:
            before = was.model_dump(include={"limits", "context"}, exclude_none=True)
            return serializer.changed_fields(was, said(self.options, self.now, before))

        await self._show(_lasting(await self.store.update(self.options.id, change, self.record)))

    async def rotate(self) -> None:
        """Replaces the secret part of a key, and shows the new key once."""
        grace = timedelta(seconds=seconds_of("--grace", self.options.grace))
        if grace > stored_keys.MAX_GRACE:
            raise ValueError(f"--grace: at most {stored_keys.MAX_GRACE.days}d")
        done = await self.store.rotate(self.options.id, grace, self.record)
        rotated = _lasting(done[0] if done is not None else None)
        await self._show_once(rotated, str(done[1]) if done is not None else "")

    async def revoke(self) -> None:
        """Revokes a key permanently."""
        await self._show(await self.store.revoke(self.options.id, self.record))

    async def _show(self, key: StoredKey | None, secret: str | None = None) -> None:
        """Shows a key. Raises KeyNotFound: there is no such key."""
        if key is None:
            raise errors.KeyNotFound("No such key was made at runtime.")
        (told,) = await serializer.as_keys(self.store, [(key.policy, key)], self.now)
        shown = {**told, **({"key": secret} if secret is not None else {})}
        self.call.write_one(shown, {}, hidden=("object", "source"))

    async def _show_once(self, key: StoredKey, secret: str) -> None:
        if self.options.quiet:
            self.call.screen.line(secret)
            return
        await self._show(key, secret)
        self.call.err.write(f"{ONCE}\n")


def keys(call: CommandCall) -> int:
    """Runs one command; returns 1 if there is no such key or the storage fails, 2 if the arguments are invalid.
    Raises ValueError: an argument cannot be read."""

    async def work(transactions: DatabaseTransactions) -> int:
        secret = partial(keyed_hashes.stored_secret, transactions)
        store = stored_keys.KeyStore(transactions, call.clock, secret)
        record = audit_events.recorder(command_actor(), call.clock)
        command = _KeyCommand(call, store, call.clock.now(), record, secret)
        await command.check_made_here()
        await getattr(command, call.options.action)()
        return 0

    try:
        return run_changing(call, work)
    except errors.KeyNotFound as error:
        call.err.write(f"{call.options.id}: {error.message}\n")
        return 1
    except errors.InvalidRequest as error:
        field = error.param or ""
        call.err.write(f"{_option(field) if field else ''}{error.message.removeprefix(field)}\n")
        return 2


def _option(field: str) -> str:
    """Returns the argument that a field of a key comes from, and its part, as in `--budget usd` for
    `budgets[0].usd`."""
    whole, _, part = field.partition(".")
    name = whole.partition("[")[0]
    return f"--{part}" if name == "limits" else f"--{OPTIONS.get(name, name).replace('_', '-')} {part}".rstrip()


def _lasting(key: StoredKey | None) -> StoredKey:
    """Returns a key that is in force. Raises KeyNotFound: there is no such key, or it was revoked."""
    if key is None or key.revoked_at is not None:
        raise errors.KeyNotFound(
            "No such key was made at runtime." if key is None else "This key was revoked, and stays so."
        )
    return key


def _row(policy: KeyPolicy, key: StoredKey | None, told: Mapping[str, Any]) -> list[Piece]:
    """`key`: None for one of the configuration."""
    ends = when_text(policy.expires_at) if policy.expires_at is not None else ""
    if told["state"] == "expired":
        ends = f"expired {ends}"
    if key is not None and key.revoked_at is not None:
        ends = f"revoked {when_text(key.revoked_at)}"
    use = (f"{told['spent_usd']['month']:.2f}", told["last_used_on"] or "never")
    who = (policy.tenant, policy.owner or "", policy.project or "", ",".join(sorted(policy.roles)))
    if key is None:
        return [str(policy.key_id), "", *who, "", ends, *use, f"{policy.name or ''} (configuration)".lstrip()]
    return [key.key_id, f"…{key.hint}", *who, when_text(key.created_at), ends, *use, policy.name or ""]


def said(options: argparse.Namespace, now: datetime, before: Json | None = None) -> Json:
    """Returns the fields of a key that the arguments set or clear, in the form of an API request; what is both, is set.
    `before`: the key's `limits` and `context`; those that the arguments do not name, nor clear, stay.
    Raises ValueError: an argument cannot be read."""
    found: Json = {name: value for name in KEY_NAMES if (value := getattr(options, name)) is not None}
    lists = {"roles": options.role, "models": options.model}
    found |= {name: value for name, value in lists.items() if value}
    if options.expires is not None:
        found["expires_at"] = _expiry(options.expires, now)
    if options.budget:
        found["budgets"] = [_budget(text) for text in options.budget]
    cleared = dict.fromkeys(getattr(options, "clear", None) or ())
    kept = {name: value for name, value in (before or {}).items() if name not in cleared}
    limits = {name: value for name in LIMIT_OPTIONS if (value := getattr(options, name)) is not None}
    if limits:
        found["limits"] = {**kept.get("limits", {}), **limits}
    if options.context:
        found["context"] = {**kept.get("context", {}), **dict(map(_pair, options.context))}
    for name in ("retention_days", "file_bytes"):
        if (value := getattr(options, name)) is not None:
            found[name] = value
    return cleared | found


def seconds_of(option: str, text: str) -> float:
    """Parses a duration such as `90s`, `1h` or `7d` into seconds. Raises ValueError: it is no duration."""
    span = clock.AGO.fullmatch(text.strip())
    with contextlib.suppress(OverflowError):
        if span is not None:
            return timedelta(**{clock.AGO_UNITS[span.group(2)]: int(span.group(1))}).total_seconds()
    raise ValueError(f"{option}: {text!r} is no time as in 30m, 12h, 7d")


def _expiry(text: str, now: datetime) -> str:
    if clock.AGO.fullmatch(text.strip()):
        try:
            return (now + timedelta(seconds=seconds_of("--expires", text))).isoformat()
        except OverflowError:
            raise ValueError(f"--expires: {text!r} is after the year 9999") from None
    at = clock.parse_when("--expires", text, now)
    return (at or now).astimezone(UTC).isoformat()


def _budget(text: str) -> Json:
    amount, _, rest = text.partition("/")
    period, _, kind = rest.partition(":")
    if not amount or not period or kind not in ("", "soft", "hard"):
        raise ValueError(f"--budget: {text!r} does not read USD/PERIOD, as in 5/day, 100/month:soft")
    return {"usd": amount, "period": period, "hard": kind != "soft"}


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--context: {text!r} does not read NAME=VALUE, as in mode=simple")
    return name, value
