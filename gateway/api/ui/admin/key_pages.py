"""`/ui/admin/keys`: keys as the API has them, made, changed, rotated and revoked by the same functions."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from gateway.api.keys.endpoint import KeyRequest
from gateway.api.ui.dependencies import PATH, PageParts
from gateway.api.ui.page import PageAnswer, PageRequest, PageRoute, PageViewer, redirect
from gateway.core import errors, jsons
from gateway.core.config import setting_sections
from gateway.storage import audit_events

# What is entered of a key, as the body of the API's requests. The API's own checks say what is wrong with it.

Json = dict[str, Any]
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
"""Budgets that are read of a form; empty rows in it for further ones."""
SECONDS = "%Y-%m-%dT%H:%M:%S"
"""As browsers have a time without a zone, here in UTC."""


def form_of(key: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a form that says of a key what the API says of it."""
    found = {name: str(key[name]) for name in KEY_TEXT_FIELDS if key[name] is not None}
    if key["expires_at"] is not None:
        found["expires_at"] = datetime.fromisoformat(key["expires_at"]).strftime(SECONDS)
    found |= {f"role_{role}": "on" for role in key["roles"]}
    found["models"] = "\n".join(key["models"])
    for place, budget in enumerate(key["budgets"]):
        found[f"budget_usd_{place}"] = f"{budget['usd']:.12f}".rstrip("0").rstrip(".")
        found[f"budget_period_{place}"] = budget["period"]
        found[f"budget_kind_{place}"] = "hard" if budget["hard"] else "soft"
    found |= {name: str(key["limits"][name]) for name in RATES if key["limits"][name] is not None}
    return found | {f"context_{name}": _entered(value) for name, value in key["context"].items()}


def body_of(form: Mapping[str, str]) -> Json:
    """All that a form says of a key; what is empty is null, or an empty list or object."""
    body: Json = {name: _text(form, name) for name in KEY_TEXT_FIELDS}
    body["roles"] = [role for role in ROLES if form.get(f"role_{role}")]
    body["models"] = [line for each in form.get("models", "").splitlines() if (line := each.strip())]
    body["budgets"] = [
        {"usd": usd, "period": form.get(f"budget_period_{place}"), "hard": form.get(f"budget_kind_{place}") != "soft"}
        for place in range(MAX_BUDGETS)
        if (usd := _text(form, f"budget_usd_{place}"))
    ]
    body["limits"] = {name: value for name in RATES if (value := _text(form, name))}
    body["context"] = {name: value for name in KEY_CONTEXT_FIELDS if (value := _text(form, f"context_{name}"))}
    return body


def seal_of(body: Json) -> str:
    """What a form holds of the key that it was made of: a digest of each field."""
    return " ".join(f"{name}:{_digest(value)}" for name, value in body.items())


def changes_of(form: Mapping[str, str], key: Mapping[str, Any]) -> Json:
    """What a form says otherwise than the key that it was made of, which its `seal` tells: what nobody touched stays as
    it is, whatever else has changed it meanwhile.
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
    """The rows for budgets that a form shows."""
    return range(sum(name.startswith("budget_usd_") and bool(text) for name, text in form.items()) + SPARE)


def _text(form: Mapping[str, str], name: str) -> str | None:
    return form.get(name, "").strip() or None


def _entered(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# The pages.

KEYS = f"{PATH}/admin/keys"
KEYS_PER_PAGE = "50"
KEY_FILTERS = ("tenant", "owner")
GRACES = {"0": "at once", "3600": "after an hour", "86400": "after a day", "604800": "after a week"}
KEY_NOTICES = {"changed": "The changes are saved.", "same": "Nothing was changed.", "revoked": "The key is revoked."}
NOT_SAVED = "Nothing was saved. The form shows the key as it is now: make your changes again."
NEAR = Decimal("0.8")
"""Share of a budget from which on it is near its end."""


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """A budget of a key, and what of it is spent."""

    usd: Decimal
    period: str
    hard: bool
    spent: Decimal

    @property
    def share(self) -> Decimal:
        """Of the budget that is spent."""
        return self.spent / self.usd if self.usd else Decimal(1)

    @property
    def kind(self) -> str:
        """How the page shows it."""
        return "bad" if self.share >= 1 else "warn" if self.share >= NEAR else "good"


class KeyPages:
    """The pages. Where nobody is logged in they show what there is, and change nothing, as the API does."""

    def __init__(self, parts: PageParts) -> None:
        self._keys = parts.keys
        self._clock = parts.clock

    def routes(self) -> tuple[PageRoute, ...]:
        one = "/admin/keys/{key_id}"
        return (
            PageRoute("GET", "/admin/keys", self.list, seen="keys.seen", is_admin=True),
            PageRoute("GET", "/admin/keys/new", self.new, is_admin=True),
            PageRoute("POST", "/admin/keys/new", self.create, is_admin=True),
            PageRoute("GET", one, self.show, seen="key.seen", is_admin=True),
            PageRoute("POST", one, self.update, is_admin=True),
            PageRoute("POST", f"{one}/rotate", self.rotate, is_admin=True),
            PageRoute("POST", f"{one}/revoke", self.revoke, is_admin=True),
        )

    async def list(self, page: PageRequest) -> PageAnswer:
        """`GET /ui/admin/keys`"""
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
        """`GET /ui/admin/keys/new`"""
        return await self._form(
            page, None, {"tenant": _maker(page).caller().tenant, f"role_{setting_sections.USER}": "on"}
        )

    async def create(self, page: PageRequest) -> PageAnswer:
        """`POST /ui/admin/keys/new`"""
        _maker(page)
        body = body_of(page.form)
        try:
            if body["tenant"] is None:
                raise errors.missing("tenant")  # to the API that is the maker's own; a form has it, and says so
            made = await self._keys.create(self._asked(page, body=body))
        except errors.InvalidRequest as error:
            return await self._form(page, None, page.form, error)
        return await page.render("admin_secret.html", key=_view(made), secret=made["key"], is_new=True)

    async def show(self, page: PageRequest) -> PageAnswer:
        """`GET /ui/admin/keys/{key_id}`"""
        found = await self._keys.read(self._asked(page))
        return await self._form(page, found, form_of(found), done=KEY_NOTICES.get(page.query.get("done", "")))

    async def update(self, page: PageRequest) -> PageAnswer:
        """`POST /ui/admin/keys/{key_id}`"""
        _maker(page)
        found = await self._keys.read(self._asked(page))
        try:
            if not (changes := changes_of(page.form, found)):
                return _to(page, "same")
            await self._keys.update(self._asked(page, body=changes, seen=found["updated_at"]))
        except errors.KeyChanged as error:
            found = await self._keys.read(self._asked(page))
            return await self._form(page, found, form_of(found), errors.KeyChanged(f"{error.message} {NOT_SAVED}"))
        except errors.InvalidRequest as error:
            return await self._form(page, found, page.form, error)
        return _to(page, "changed")

    async def rotate(self, page: PageRequest) -> PageAnswer:
        """`POST /ui/admin/keys/{key_id}/rotate`"""
        _maker(page)
        grace = page.form.get("grace_seconds", "0")
        if grace not in GRACES:
            raise errors.invalid("grace_seconds", f"must be one of {', '.join(GRACES)}")
        made = await self._keys.rotate(self._asked(page, body={"grace_seconds": int(grace)}))
        return await page.render("admin_secret.html", key=_view(made), secret=made["key"], is_new=False)

    async def revoke(self, page: PageRequest) -> PageAnswer:
        """`POST /ui/admin/keys/{key_id}/revoke`"""
        _maker(page)
        if not page.form.get("confirm"):
            raise errors.invalid("confirm", "must be checked: revoking a key cannot be undone")
        await self._keys.revoke(self._asked(page))
        return _to(page, "revoked")

    async def _form(
        self,
        page: PageRequest,
        key: Mapping[str, Any] | None,
        fields: Mapping[str, str],
        problem: errors.InvalidRequest | None = None,
        done: str | None = None,
    ) -> PageAnswer:
        return await page.render(
            "admin_key.html",
            problem.status if problem is not None else 200,
            key=_view(key) if key is not None else None,
            fields=fields,
            seal=None if key is None else fields.get("seal", seal_of(body_of(form_of(key)))),
            problem=problem,
            done=done,
            roles=ROLES,
            limits=RATES,
            choices=CHOICES,
            budgets=budget_rows(fields),
            graces=GRACES,
            may_change=_may_change(page) and (key is None or (key["source"] == "runtime" and not key["revoked_at"])),
        )

    def _asked(
        self,
        page: PageRequest,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        seen: str | None = None,
    ) -> KeyRequest:
        """The page's request, as the API has those of administrators."""
        record, at = (
            audit_events.recorder(page.someone.actor, self._clock),
            datetime.fromisoformat(seen) if seen else None,
        )
        return KeyRequest(page.someone.caller(), record, body or {}, query or {}, page.params.get("key_id", ""), at)


def _may_change(page: PageRequest) -> bool:
    return page.viewer is not None and page.viewer.key is not None


def _maker(page: PageRequest) -> PageViewer:
    """Raises Forbidden: there are no keys to log in with, so nobody is known to be an administrator."""
    if page.viewer is None or page.viewer.key is None:
        raise errors.Forbidden(
            "Keys are made and changed by who has logged in with a key of role 'admin' (auth.mode: keys)."
        )
    return page.viewer


def _to(page: PageRequest, done: str) -> PageAnswer:
    return redirect(f"{KEYS}/{quote(page.params['key_id'], safe='')}?done={done}")


def _view(told: Mapping[str, Any]) -> Json:
    """What the API says of a key, as templates take it: times as such, and each budget with what is spent of it."""
    spent = {period: Decimal(str(usd)) for period, usd in told["spent_usd"].items()}
    times = {name: datetime.fromisoformat(told[name]) for name in told if name.endswith("_at") and told[name]}
    budgets = [
        BudgetUse(Decimal(str(each["usd"])), each["period"], each["hard"], spent[each["period"]])
        for each in told["budgets"]
    ]
    return {**told, **times, "budgets": budgets, "spent_usd": spent}
