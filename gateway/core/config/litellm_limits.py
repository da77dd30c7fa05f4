"""LiteLLM's budgets and limits, as `limits` (guarantee §12.14)."""

import re
from decimal import Decimal
from typing import Any

from gateway.core.config.litellm_draft import (
    LitellmDraft,
    UnreadableValue,
    is_reference,
    looked_up,
    mapping,
    number,
    unused,
    whole,
)
from gateway.core.config.setting_sections import Period

EXACT: dict[str, Period] = {
    **dict.fromkeys(("1d", "24h", "daily"), "day"),
    **dict.fromkeys(("7d", "1w", "weekly"), "week"),
    **dict.fromkeys(("30d", "1mo", "monthly"), "month"),
}
"""LiteLLM begins 7d on Mondays and 30d on the first of a month, as our weeks and months are."""
DURATION = re.compile(r"(\d+)(mo|[smhdw])")
DAYS = {"s": 1 / 86400, "m": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0, "mo": 30.0}
LONGEST: tuple[tuple[float, Period], ...] = ((1, "day"), (7, "week"), (31, "month"))
MONTH = 30
LIMITS = {"rpm_limit": "rpm", "tpm_limit": "tpm", "max_parallel_requests": "concurrent"}
BUDGET = ("max_budget", "budget_duration")
SPOKEN_FOR = {"budget_limit": "max_budget", "time_period": "budget_duration"}
"""Older names of a provider's budget."""
KEYS = (
    *("default_key_generate_params", "upperbound_key_generate_params", "default_internal_user_params"),
    *("max_internal_user_budget", "default_max_internal_user_budget"),
)
"""What may be said of each key, the nearest first."""


def budget(draft: LitellmDraft, path: str, usd: Any, duration: Any) -> dict[str, Any] | None:
    """A budget of ours; None where the sum is 0, which to LiteLLM is none.

    A duration that is none of our periods becomes the next longer one with the same sum, or a month with its share of
    the sum: never more than was meant.
    Raises UnreadableValue: the sum is no number, or the duration none."""
    amount = number(usd)
    if not amount:
        return None
    if duration is None:
        return {"usd": amount, "period": "total"}
    text = str(looked_up(duration)).strip().lower()
    if text in EXACT:
        return {"usd": amount, "period": EXACT[text]}
    fits = DURATION.fullmatch({"hourly": "1h"}.get(text, text))
    if fits is None or not int(fits[1]):
        raise UnreadableValue("its duration is none: 30d, 1mo and the like are")
    days = int(fits[1]) * DAYS[fits[2]]
    period: Period = next((name for most, name in LONGEST if days <= most), "month")
    if days > LONGEST[-1][0]:
        if is_reference(amount):
            raise UnreadableValue("stands in the environment, and its duration is none of ours")
        amount = float(Decimal(str(amount)) * MONTH / Decimal(str(days)))
        draft.differs(path, f"{text} becomes a month with its share of the sum, {amount:g} USD")
    else:
        draft.differs(path, f"{text} becomes a {period}, with the same sum")
    return {"usd": amount, "period": period}


def note_spending(draft: LitellmDraft, path: str, value: Any) -> None:
    """Note a budget or its duration: `finish_limits` reads it when all the others are there."""
    draft.spent[path.rpartition(".")[2]] = (path, value)


def read_concurrent(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `concurrent` of `limits.all`."""
    del path
    draft.limits.setdefault("all", {})["limits"] = {"concurrent": whole(value, 1)}


def read_each_user(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set the budget of `limits.each_user`."""
    if found := budget(draft, path, value, None):
        draft.limits["each_user"] = {"budgets": [found]}


def read_closed(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `limits.when_down`."""
    del path
    if looked_up(value):
        draft.limits["when_down"] = "closed"


def read_each_entry(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `max_parallel_requests` of the entries that have none."""
    del path
    most = whole(value, 1)
    for entry in draft.models:
        params = entry.get("litellm_params")
        if isinstance(params, dict):
            entry["litellm_params"] = {"max_parallel_requests": most, **params}


def read_provider_budgets(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set budgets in `limits.models`, where a provider serves one name alone."""
    for provider, said in mapping(value).items():
        names = {str(each.get("model_name")) for each in draft.models if _provider(each) == provider}
        if len(names) != 1:
            served = "no model" if not names else "several models"
            draft.differs(path, f"{provider} serves {served}: set `limits.models`")
            continue
        fields = {SPOKEN_FOR.get(name, name): each for name, each in mapping(said).items()}
        _add(draft, f"{path}.{provider}", names.pop(), fields)


def _provider(entry: dict[str, Any]) -> str:
    params = entry.get("litellm_params")
    params = params if isinstance(params, dict) else {}
    named = params.get("custom_llm_provider")
    provider, stroke, _ = str(params.get("model")).partition("/")
    return str(named or (provider if stroke else "openai"))


def _add(draft: LitellmDraft, path: str, model: str, fields: dict[str, Any]) -> None:
    """A budget of a model, unless it has one already."""
    if found := budget(draft, path, fields.get(BUDGET[0]) or 0, fields.get(BUDGET[1])):
        draft.limits.setdefault("models", {}).setdefault(model, {"budgets": [found]})


def finish_limits(draft: LitellmDraft) -> list[tuple[str, str]]:
    """What needs several settings: sums and their durations, and which of those for keys is the nearest.
    Paths of settings that could not be read, and why."""
    problems: list[tuple[str, str]] = []
    for read in (_all, _keys, _entries):
        try:
            read(draft)
        except _LimitProblem as problem:
            problems.append((problem.path, str(problem)))
    return problems


class _LimitProblem(Exception):
    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.path = path


def _all(draft: LitellmDraft) -> None:
    path, usd = draft.spent.get(BUDGET[0], ("", 0))
    _, duration = draft.spent.get(BUDGET[1], ("", None))
    if found := _budget(draft, path, usd, duration):
        draft.limits.setdefault("all", {})["budgets"] = [found]


def _budget(draft: LitellmDraft, path: str, usd: Any, duration: Any) -> dict[str, Any] | None:
    try:
        return budget(draft, path, usd, duration)
    except UnreadableValue as error:
        raise _LimitProblem(path, str(error)) from None


def _keys(draft: LitellmDraft) -> None:
    """Of settings that say something of each key the nearest counts."""
    for name in KEYS:
        path, value = draft.spent.get(name, ("", None))
        if not path:
            continue
        said = value if isinstance(value, dict) else {BUDGET[0]: value}
        if not isinstance(value, dict) and (later := draft.spent.get("internal_user_budget_duration")):
            said[BUDGET[1]] = later[1]
        known = (*BUDGET, *LIMITS)
        found: dict[str, Any] = {}
        if usd := _budget(draft, path, said.get(BUDGET[0]) or 0, said.get(BUDGET[1])):
            found["budgets"] = [usd]
        try:
            limits = {ours: whole(said[theirs], 1) for theirs, ours in LIMITS.items() if said.get(theirs)}
        except UnreadableValue as error:
            raise _LimitProblem(path, str(error)) from None
        if limits:
            found["limits"] = limits
        unused(draft, path, [str(each) for each in said if each not in known])
        for part, each in found.items():
            if part in draft.limits.get("keys", {}):
                draft.differs(path, f"another setting says more of the {part} of keys, and counts")
            else:
                draft.limits.setdefault("keys", {})[part] = each


def _entries(draft: LitellmDraft) -> None:
    """Budgets of entries of `model_list`, which here are those of the names that they serve."""
    for position, entry in enumerate(draft.models):
        params = entry.get("litellm_params")
        if not isinstance(params, dict) or not params.get(BUDGET[0]):
            continue
        path, name = f"model_list[{position}].litellm_params.{BUDGET[0]}", str(entry.get("model_name"))
        if sum(str(each.get("model_name")) == name for each in draft.models) > 1:
            draft.differs(path, f"{name!r} has several entries: set `limits.models` for all of them together")
            continue
        try:
            _add(draft, path, name, params)
        except UnreadableValue as error:
            raise _LimitProblem(path, str(error)) from None
