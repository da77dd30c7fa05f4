"""What is entered of a key, as the body of the API's requests, and what is wrong with it, field by field."""

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from gateway.api.fields import broken_rules
from gateway.api.keys.serializer import FIELDS
from gateway.core import errors, jsons
from gateway.core.config import setting_sections

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
EXPIRY = TypeAdapter(setting_sections.Expiry)
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
        {"usd": usd, "period": form.get(f"budget_period_{row}"), "hard": form.get(f"budget_kind_{row}") != "soft"}
        for row in range(MAX_BUDGETS)
        if (usd := _text(form, f"budget_usd_{row}"))
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
    """The rows for budgets that a form shows: as far as the last that is filled, and some spare ones."""
    return range(max((row + 1 for row in range(MAX_BUDGETS) if _text(form, f"budget_usd_{row}")), default=0) + SPARE)


def _text(form: Mapping[str, str], name: str) -> str | None:
    return form.get(name, "").strip() or None


def _entered(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# What is wrong with it. Each fault stands at its field, under the name of that in the form.

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
"""What fields are called, in their order on the page; roles by the first of their boxes."""
PLAIN_RULES = {
    f"must match {setting_sections.NAME_PATTERN}": "may have only letters, digits, dots, hyphens, underscores, : and @",
    f"must match {setting_sections.LABEL}": "must not have control characters",
    "must be a time as ISO 8601 writes it": "must be a date and a time",
}
"""Rules of the API that a person would not read at once."""


def faults_of(
    form: Mapping[str, str], now: datetime, serves: Callable[[str], bool], key: Mapping[str, Any] | None
) -> dict[str, str]:
    """The first fault of each field, in the order of the page. `serves`: whether any model that is served matches
    a pattern; `key`: the key that the form changes, whose own values may stay as they are; None: it is a new one.
    Beyond the API's rules a key must not be over before it begins, and must name no model that nobody serves: who
    enters that on a page has made a slip."""
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
    """The field of the form that holds what stands at that place of the body."""
    name = str(place[0])
    if name == "budgets":
        filled = [row for row in budget_rows(form) if _text(form, f"budget_usd_{row}")]
        return f"budget_{'period' if 'period' in place else 'usd'}_{filled[int(place[1])]}"
    if name == "context":
        return f"context_{place[1]}"
    return {"limits": str(place[-1]), "roles": f"role_{ROLES[0]}"}.get(name, name)


def _member(field: str) -> str:
    """The field of the body that a field of the form is part of."""
    if field in RATES:
        return "limits"
    kind = field.partition("_")[0]
    return {"budget": "budgets", "role": "roles", "context": "context"}.get(kind, field)
