"""`/ui/admin/keys`: keys as the API has them, made, changed, rotated and revoked by the same functions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from gateway.api.keys.endpoint import KeyRequest
from gateway.api.ui.admin import key_form
from gateway.api.ui.dependencies import PATH, PageParts
from gateway.api.ui.page import PageAnswer, PageRequest, PageRoute, PageViewer, redirect
from gateway.core import errors
from gateway.core.config import setting_sections
from gateway.storage import audit_events

Json = dict[str, Any]
KEYS = f"{PATH}/admin/keys"
KEYS_PER_PAGE = "50"
KEY_FILTERS = ("tenant", "owner")
GRACES = {"0": "at once", "3600": "after an hour", "86400": "after a day", "604800": "after a week"}
KEY_NOTICES = {"changed": "The changes are saved.", "same": "Nothing was changed.", "revoked": "The key is revoked."}
NOT_SAVED = "Nothing was saved. The form shows the key as it is now: make your changes again."
NO_FAULTS: Mapping[str, str] = MappingProxyType({})
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
        if faults := self._faults(page, None):
            return await self._form(page, None, page.form, faults=faults)
        try:
            made = await self._keys.create(self._asked(page, body=key_form.body_of(page.form)))
        except errors.InvalidRequest as error:
            return await self._form(page, None, page.form, error)
        return await page.render("admin_secret.html", key=_view(made), secret=made["key"], old_ends=None)

    async def show(self, page: PageRequest) -> PageAnswer:
        """`GET /ui/admin/keys/{key_id}`"""
        found = await self._keys.read(self._asked(page))
        return await self._form(page, found, key_form.form_of(found), done=KEY_NOTICES.get(page.query.get("done", "")))

    async def update(self, page: PageRequest) -> PageAnswer:
        """`POST /ui/admin/keys/{key_id}`"""
        _maker(page)
        found = await self._keys.read(self._asked(page))
        try:
            if not (changes := key_form.changes_of(page.form, found)):
                return _to(page, "same")
            if _is_open(found) and (faults := self._faults(page, found)):
                return await self._form(page, found, page.form, faults=faults)
            await self._keys.update(self._asked(page, body=changes, seen=found["updated_at"]))
        except errors.KeyChanged as error:
            found = await self._keys.read(self._asked(page))
            return await self._form(
                page, found, key_form.form_of(found), errors.KeyChanged(f"{error.message} {NOT_SAVED}")
            )
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
        return await page.render("admin_secret.html", key=_view(made), secret=made["key"], old_ends=GRACES[grace])

    async def revoke(self, page: PageRequest) -> PageAnswer:
        """`POST /ui/admin/keys/{key_id}/revoke`"""
        _maker(page)
        if not page.form.get("confirm"):
            raise errors.invalid("confirm", "must be checked: revoking a key cannot be undone")
        await self._keys.revoke(self._asked(page))
        return _to(page, "revoked")

    def _faults(self, page: PageRequest, key: Mapping[str, Any] | None) -> dict[str, str]:
        return key_form.faults_of(page.form, self._clock.now(), self._serves, key)

    def _serves(self, pattern: str) -> bool:
        if self._router.serves_unlisted or self._router.lists(pattern):
            return True
        return any(fnmatchcase(entry.model_name, pattern) for entry in self._settings.model_list)

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
            seal=None if key is None else fields.get("seal", key_form.seal_of(key_form.body_of(key_form.form_of(key)))),
            problem=problem,
            faults=faults,
            first_fault=next(iter(faults), None),
            labels=key_form.FIELD_LABELS,
            done=done,
            roles=key_form.ROLES,
            limits=key_form.RATES,
            choices=key_form.CHOICES,
            budgets=key_form.budget_rows(fields),
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
        """The page's request, as the API has those of administrators."""
        record, at = (
            audit_events.recorder(page.someone.actor, self._clock),
            datetime.fromisoformat(seen) if seen else None,
        )
        return KeyRequest(page.someone.caller(), record, body or {}, query or {}, page.params.get("key_id", ""), at)


def _is_open(key: Mapping[str, Any]) -> bool:
    """Whether a key can be changed at all."""
    return key["source"] == "runtime" and not key["revoked_at"]


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
