"""`/ui/admin/keys`: keys as the API has them, made, changed, rotated and revoked by the same functions. What is entered
in a key's form becomes the body of the API's requests; an error in it is shown at its field."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter

from gateway.api.fields import broken_rules
from gateway.api.keys.endpoint import KeyRequest
from gateway.api.keys.serializer import FIELDS
from gateway.api.ui.dependencies import PATH, PageParts
from gateway.api.ui.page import PageAnswer, PageRequest, PageRoute, PageViewer, redirect
from gateway.core import errors, ids, jsons, printing
from gateway.core.config import setting_sections
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types import keys
from gateway.storage import audit_events

KEYS = f"{PATH}/admin/keys"
KEYS_PER_PAGE = "50"
KEY_FILTERS = ("tenant", "owner")
GRACES = {"0": "at once", "3600": "after an hour", "86400": "after a day", "604800": "after a week"}
KEY_NOTICES = {
    "changed": "The changes are saved.",
    "same": "Nothing was changed.",
    "revoked": "The key is revoked.",
    "made": "The form was sent twice, and this key was made once. Rotate it if you have not copied its secret.",
    "stale": "Nothing was rotated: the key has changed since the form was shown, perhaps by the same form.",
}
NEW_KEY_ID = re.compile(r"key_[0-9a-f]{32}\Z")
NOT_SAVED = "Nothing was saved. The form shows the key as it is now: make your changes again."
NO_FAULTS: Mapping[str, str] = MappingProxyType({})
NEAR = Decimal("0.8")
"""Share of a budget from which on it is near its end."""
ROLES = (setting_sections.USER, setting_sections.VIEWER, setting_sections.ADMIN)
KEY_TEXT_FIELDS = ("tenant", "name", "owner", "project", "retention_days", "file_bytes", "expires_at")
RATES = ("rpm", "tpm", "concurrent")
FLAGS = ("true", "false")
CHOICES = {
    **{
        name: found
        for name, field in setting_sections.ContextDefaults.model_fields.items()
        if (found := setting_sections.words(field.annotation))
    },
    "recall": ("auto", *FLAGS),
    "cite": FLAGS,
}
"""Fields of `context` with a few values."""
KEY_CONTEXT_FIELDS = tuple(setting_sections.ContextDefaults.model_fields)
MAX_BUDGETS, SPARE = 50, 2
"""Budgets that are read from a form; its empty rows for further ones."""
EXPIRY = TypeAdapter(setting_sections.Expiry)
SECONDS = "%Y-%m-%dT%H:%M:%S"
"""The format in which browsers send a time without a zone, here in UTC."""
FIELD_LABELS = {
    "tenant": "Tenant",
    "name": "Name",
    "owner": "Owner",
    "project": "Project",
    "role_user": "Roles",
    "expires_at": "Expires (UTC)",
    "models": "Models",
    **{f"budget_{what}_{row}": f"Budget {row + 1}" for row in range(MAX_BUDGETS) for what in ("usd", "period")},
    "rpm": "Requests per minute",
    "tpm": "Tokens per minute",
    "concurrent": "Concurrent requests",
    "file_bytes": "File storage (bytes)",
    "retention_days": "Days that conversations are kept",
    **{f"context_{name}": name for name in KEY_CONTEXT_FIELDS},
}
"""Names of fields, in their order on the page; roles by the first of their boxes."""
PLAIN_RULES = {
    f"must match {setting_sections.NAME_PATTERN}": "may have only letters, digits, dots, hyphens, underscores, : and @",
    f"must match {setting_sections.LABEL}": "must not have control characters",
    "must be a time as ISO 8601 writes it": "must be a date and a time",
}
"""Plain texts for rules of the API that are hard to read."""


@record
class BudgetUse:
    """A budget of a key, and its spent part."""

    usd: Decimal
    period: str
    hard: bool
    spent: Decimal

    @property
    def share(self) -> Decimal:
        """The share of the budget that is spent."""
        return self.spent / self.usd if self.usd else Decimal(1)

    @property
    def kind(self) -> str:
        """The class in which the page shows it."""
        return "bad" if self.share >= 1 else "warn" if self.share >= NEAR else "good"


class KeyPages:
    """The pages. Where nobody is logged in they show what there is, and change nothing, as the API does."""

    def __init__(self, parts: PageParts) -> None:
        self._keys = parts.keys
        self._clock = parts.clock
        self._settings = parts.settings
        self._router = parts.router

    def routes(self) -> tuple[PageRoute, ...]:
        one = "/admin/keys/{key_id}"
        return (
            PageRoute("GET", "/admin/keys", self.list, seen="keys.seen", is_admin=True),
            PageRoute("GET", "/admin/keys/new", self.new, is_admin=True),
            PageRoute("POST", "/admin/keys/new", self.create, is_admin=True),
            PageRoute("GET", one, self.show, seen="key.seen", is_admin=True),
            PageRoute("POST", one, self.update, is_admin=True),
            PageRoute("POST", f"{one}/rotate", self.rotate, is_admin=True),
            PageRoute("GET", f"{one}/revoke", self.confirm, seen="key.seen", is_admin=True),
            PageRoute("POST", f"{one}/revoke", self.revoke, is_admin=True),
        )

    async def list(self, page: PageRequest) -> PageAnswer:
        """Shows the keys (`GET /ui/admin/keys`)."""
        query = {name: page.query[name] for name in (*KEY_FILTERS, "after") if page.query.get(name)}
        if page.query.get("revoked"):
            query["include_revoked"] = "true"
        asked = self._asked(page, query={**query, "limit": KEYS_PER_PAGE})
        found = await self._keys.list(replace(asked, is_brief=True))
        return await page.render(
            "admin_keys.html",
            keys=[_view(each) for each in found["data"]],
            wanted={name: page.query.get(name, "") for name in (*KEY_FILTERS, "revoked")},
            is_search=any(page.query.get(name) for name in KEY_FILTERS),
            first=page.link(after=None) if page.query.get("after") else None,
            more=page.link(after=found["last_id"]) if found["has_more"] else None,
            may_change=_may_change(page),
        )

    async def new(self, page: PageRequest) -> PageAnswer:
        """Shows the form of a new key (`GET /ui/admin/keys/new`)."""
        tenant, role = _maker(page).caller().tenant, f"role_{setting_sections.USER}"
        return await self._form(page, None, {"id": ids.new_id("key_"), "tenant": tenant, role: "on"})

    async def create(self, page: PageRequest) -> PageAnswer:
        """Creates a key (`POST /ui/admin/keys/new`)."""
        _maker(page)
        if faults := self._faults(page, None):
            return await self._form(page, None, page.form, faults=faults)
        key_id = page.form.get("id", "")
        asked = self._asked(page, body=body_of(page.form))
        try:
            made = await self._keys.create(replace(asked, key_id=key_id if NEW_KEY_ID.match(key_id) else ""))
        except errors.KeyChanged:  # by this form: a page that is loaded again makes no second key
            return redirect(f"{KEYS}/{key_id}?done=made")
        except errors.InvalidRequest as error:
            return await self._form(page, None, page.form, error)
        return await page.render("admin_secret.html", key=_view(made), secret=made["key"], old_ends=None)

    async def show(self, page: PageRequest) -> PageAnswer:
        """Shows a key in its form (`GET /ui/admin/keys/{key_id}`)."""
        found = await self._keys.read(self._asked(page))
        return await self._form(page, found, form_of(found), done=KEY_NOTICES.get(page.query.get("done", "")))

    async def update(self, page: PageRequest) -> PageAnswer:
        """Changes a key (`POST /ui/admin/keys/{key_id}`)."""
        _maker(page)
        found = await self._keys.read(self._asked(page))
        try:
            if not (changes := changes_of(page.form, found)):
                return _to(page, "same")
            if _is_open(found) and (faults := self._faults(page, found)):
                return await self._form(page, found, page.form, faults=faults)
            await self._keys.update(self._asked(page, body=changes, seen=found["updated_at"]))
        except errors.KeyChanged as error:
            found = await self._keys.read(self._asked(page))
            return await self._form(page, found, form_of(found), errors.KeyChanged(f"{error.message} {NOT_SAVED}"))
        except errors.InvalidRequest as error:
            return await self._form(page, found, page.form, error)
        return _to(page, "changed")

    async def rotate(self, page: PageRequest) -> PageAnswer:
        """Replaces the secret of a key (`POST /ui/admin/keys/{key_id}/rotate`)."""
        _maker(page)
        grace = page.form.get("grace_seconds", "0")
        if grace not in GRACES:
            raise errors.invalid("grace_seconds", f"must be one of {', '.join(GRACES)}")
        try:
            seen = page.form.get("seen")
            made = await self._keys.rotate(self._asked(page, body={"grace_seconds": int(grace)}, seen=seen))
        except errors.KeyChanged:
            return _to(page, "stale")
        return await page.render("admin_secret.html", key=_view(made), secret=made["key"], old_ends=GRACES[grace])

    async def confirm(self, page: PageRequest) -> PageAnswer:
        """Shows which key is to be revoked, and the button for it (`GET /ui/admin/keys/{key_id}/revoke`)."""
        _maker(page)
        found = await self._keys.read(self._asked(page))
        if not _is_open(found):
            return redirect(_address(page))
        return await page.render("admin_revoke.html", key=_view(found))

    async def revoke(self, page: PageRequest) -> PageAnswer:
        """Revokes a key (`POST /ui/admin/keys/{key_id}/revoke`)."""
        _maker(page)
        if not page.form.get("confirm"):
            raise errors.invalid("confirm", "must be set: revoking a key cannot be undone")
        await self._keys.revoke(self._asked(page))
        return _to(page, "revoked")

    def _faults(self, page: PageRequest, key: Mapping[str, Any] | None) -> dict[str, str]:
        return faults_of(page.form, self._clock.now(), self._serves, key)

    def _serves(self, pattern: str) -> bool:
        if self._router.serves_unlisted or self._router.lists(pattern):
            return True
        return any(keys.names_model(pattern, entry.model_name) for entry in self._settings.model_list)

    async def _form(
        self,
        page: PageRequest,
        key: Mapping[str, Any] | None,
        fields: Mapping[str, str],
        problem: errors.InvalidRequest | None = None,
        done: str | None = None,
        faults: Mapping[str, str] = NO_FAULTS,
    ) -> PageAnswer:
        return await page.render(
            "admin_key.html",
            problem.status if problem is not None else errors.InvalidRequest.status if faults else 200,
            key=_view(key) if key is not None else None,
            fields=fields,
            seal=None if key is None else fields.get("seal", seal_of(body_of(form_of(key)))),
            problem=problem,
            faults=faults,
            first_fault=next(iter(faults), None),
            labels=FIELD_LABELS,
            done=done,
            roles=ROLES,
            limits=RATES,
            choices=CHOICES,
            budgets=budget_rows(fields),
            graces=GRACES,
            may_change=_may_change(page) and (key is None or _is_open(key)),
        )

    def _asked(
        self,
        page: PageRequest,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        seen: str | None = None,
    ) -> KeyRequest:
        """Converts the page's request to an administrator's request of the API."""
        record = audit_events.recorder(page.someone.actor, self._clock)
        try:
            at = datetime.fromisoformat(seen) if seen else None
        except ValueError:
            raise errors.invalid("seen", "must be a time") from None
        return KeyRequest(page.someone.caller(), record, body or {}, query or {}, page.params.get("key_id", ""), at)


def _is_open(key: Mapping[str, Any]) -> bool:
    """Returns whether a key can be changed at all."""
    return key["source"] == "runtime" and not key["revoked_at"]


def _may_change(page: PageRequest) -> bool:
    return page.viewer is not None and page.viewer.key is not None


def _maker(page: PageRequest) -> PageViewer:
    """Returns the viewer. Raises Forbidden: without keys to log in with, nobody is known to be an administrator."""
    if page.viewer is None or page.viewer.key is None:
        raise errors.Forbidden(
            "Keys are made and changed by who has logged in with a key of role 'admin' (auth.mode: keys)."
        )
    return page.viewer


def _address(page: PageRequest) -> str:
    return f"{KEYS}/{quote(page.params['key_id'], safe='')}"


def _to(page: PageRequest, done: str) -> PageAnswer:
    return redirect(f"{_address(page)}?done={done}")


def _view(told: Mapping[str, Any]) -> Json:
    """Converts the API's object of a key for templates: times as such, and each budget with its spent part."""
    spent = {period: Decimal(str(usd)) for period, usd in told["spent_usd"].items()}
    times = {name: datetime.fromisoformat(told[name]) for name in told if name.endswith("_at") and told[name]}
    budgets = [
        BudgetUse(Decimal(str(each["usd"])), each["period"], each["hard"], spent[each["period"]])
        for each in told["budgets"]
    ]
    return {**told, **times, "budgets": budgets, "spent_usd": spent, "is_open": _is_open(told)}


def form_of(key: Mapping[str, Any]) -> dict[str, str]:
    """Returns the fields of a form from the API's object of a key."""
    found = {name: str(key[name]) for name in KEY_TEXT_FIELDS if key[name] is not None}
    if key["expires_at"] is not None:
        found["expires_at"] = datetime.fromisoformat(key["expires_at"]).strftime(SECONDS)
    found |= {f"role_{role}": "on" for role in key["roles"]}
    found["models"] = "\n".join(key["models"])
    for place, budget in enumerate(key["budgets"]):
        found[f"budget_usd_{place}"] = printing.digits_of(budget["usd"])
        found[f"budget_period_{place}"] = budget["period"]
        found[f"budget_kind_{place}"] = "hard" if budget["hard"] else "soft"
    found |= {name: str(key["limits"][name]) for name in RATES if key["limits"][name] is not None}
    return found | {f"context_{name}": _entered(value) for name, value in key["context"].items()}


def body_of(form: Mapping[str, str]) -> Json:
    """Returns the API's body for a form; an empty field is null, or an empty list or object."""
    body: Json = {name: _text(form, name) for name in KEY_TEXT_FIELDS}
    body["roles"] = [role for role in ROLES if form.get(f"role_{role}")]
    body["models"] = [line for each in form.get("models", "").splitlines() if (line := each.strip())]
    body["budgets"] = [
        {"usd": usd, "period": form.get(f"budget_period_{row}"), "hard": form.get(f"budget_kind_{row}") != "soft"}
        for row in range(MAX_BUDGETS)
        if (usd := _text(form, f"budget_usd_{row}"))
    ]
    body["limits"] = {name: value for name in RATES if (value := _text(form, name))}
    body["context"] = {name: value for name in KEY_CONTEXT_FIELDS if (value := _text(form, f"context_{name}"))}
    return body


def seal_of(body: Json) -> str:
    """Returns the seal of a key's body, which its form holds: a digest of each field."""
    return " ".join(f"{name}:{_digest(value)}" for name, value in body.items())


def changes_of(form: Mapping[str, str], key: Mapping[str, Any]) -> Json:
    """Returns the fields that a form changes in the key that it was made of, known by its `seal`: an untouched field
    stays as it is, even if somebody has changed it meanwhile.
    Raises KeyChanged: somebody else has changed one of these fields, too."""
    now = body_of(form_of(key))
    pairs = (each.partition(":") for each in form.get("seal", seal_of(now)).split())
    seal = {name: digest for name, _, digest in pairs}
    said = {name: value for name, value in body_of(form).items() if value != now[name]}
    changes = {name: value for name, value in said.items() if _digest(value) != seal.get(name)}
    if lost := [name for name in changes if _digest(now[name]) != seal.get(name)]:
        raise errors.KeyChanged(f"Somebody else changed this key meanwhile: {', '.join(lost)}.")
    return changes


def _digest(value: Any) -> str:
    return hashlib.sha256(jsons.dumps(value)).hexdigest()[:16]


def budget_rows(form: Mapping[str, str]) -> range:
    """Returns the rows for budgets that a form shows: up to the last that is filled, and some spare ones."""
    return range(max((row + 1 for row in range(MAX_BUDGETS) if _text(form, f"budget_usd_{row}")), default=0) + SPARE)


def _text(form: Mapping[str, str], name: str) -> str | None:
    return form.get(name, "").strip() or None


def _entered(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def faults_of(
    form: Mapping[str, str], now: datetime, serves: Callable[[str], bool], key: Mapping[str, Any] | None
) -> dict[str, str]:
    """Returns the first fault of each field, in the order of the page. `serves`: whether any served model matches a
    pattern;
    `key`: the key that the form changes, whose own values may stay as they are; None: it is a new one. Beyond the API's
    rules, a key must not end before it begins, nor name a model that is not served: on a page, that is a slip."""
    body, before = body_of(form), body_of(form_of(key)) if key is not None else {}
    given = {name: value for name, value in body.items() if value is not None}
    found: dict[str, str] = {}
    for broken in broken_rules(FIELDS, given):
        found.setdefault(_field(broken.place, form), PLAIN_RULES.get(broken.rule, broken.rule))
    if "expires_at" not in found and "expires_at" in given and EXPIRY.validate_python(given["expires_at"]) <= now:
        found["expires_at"] = "must be in the future"
    unserved = [each for each in body["models"] if each not in before.get("models", ()) and not serves(each)]
    if unserved:
        found.setdefault("models", f"must match a model that is served; {unserved[0]} does not")
    return {
        name: f"{label} {found[name]}."
        for name, label in FIELD_LABELS.items()
        if name in found and (key is None or body[_member(name)] != before[_member(name)])
    }


def _field(place: tuple[int | str, ...], form: Mapping[str, str]) -> str:
    """Returns the field of the form for that place of the body."""
    name = str(place[0])
    if name == "budgets":
        filled = [row for row in budget_rows(form) if _text(form, f"budget_usd_{row}")]
        return f"budget_{'period' if 'period' in place else 'usd'}_{filled[int(place[1])]}"
    if name == "context":
        return f"context_{place[1]}"
    return {"limits": str(place[-1]), "roles": f"role_{ROLES[0]}"}.get(name, name)


def _member(field: str) -> str:
    """Returns the field of the body that a field of the form is part of."""
    if field in RATES:
        return "limits"
    kind = field.partition("_")[0]
    return {"budget": "budgets", "role": "roles", "context": "context"}.get(kind, field)
