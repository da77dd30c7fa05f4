"""Reads LiteLLM's settings into a draft of our sections, which is then merged beneath what the file itself sets in
them, and records what became of each (guarantee §9, §12.14): first budgets and limits, then fallbacks, retries,
cooldowns, timeouts and the choice among deployments."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, Literal

from gateway.core.config import setting_sections
from gateway.core.config.config_file import ENVIRONMENT_REFERENCE, ConfigurationError
from gateway.core.frozen_records import record

NO_NUMBER = "is no number that could be taken over"


Group = Literal["kept", "replaced", "not supported"]
"""The setting means the same here; something else replaces it; it is ignored."""
FATE_GROUPS: tuple[Group, ...] = ("kept", "replaced", "not supported")


@record
class SettingFate:
    """What becomes of a foreign setting, in one line. `path`: its place, `section.name`; `origin`: whose setting it
    is."""

    path: str
    group: Group
    text: str
    origin: str = "LiteLLM"


class UnreadableValue(ValueError):
    """A setting's value has none of the allowed forms. The message never repeats the value. `path`: of the setting,
    where it is not the one being read."""

    path = ""


@dataclass(slots=True)
class LitellmDraft:
    """A draft of our sections, and where they differ from LiteLLM's settings.

    `spent` holds LiteLLM's budget settings by name, until all of them are read. `models` are the entries of
    `model_list`.
    """

    models: list[dict[str, Any]]
    routing: dict[str, Any] = field(default_factory=dict)
    upstream: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    spent: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of models that clients request, each once."""
        return list(dict.fromkeys(str(each.get("model_name")) for each in self.models))

    def differs(self, path: str, text: str) -> None:
        """Records how a setting differs here."""
        self.warnings.append(f"{path}: {text}")

    def put_in(self, raw: dict[str, Any], origin: str) -> None:
        """Merges the draft beneath the file's own sections, which take precedence.
        Raises ConfigurationError: a section of the file is no mapping."""
        for name, values in (("routing", self.routing), ("limits", self.limits), ("upstream", self.upstream)):
            own = raw.get(name) or {}
            if not isinstance(own, Mapping):
                raise ConfigurationError(f"{origin}: {name}: must be a mapping")
            if values:
                raw[name] = _beneath(dict(own), values, name, self.warnings)


def _beneath(own: dict[str, Any], values: Mapping[str, Any], path: str, warnings: list[str]) -> dict[str, Any]:
    merged = dict(own)
    for name, value in values.items():
        if name not in own:
            merged[name] = value
        elif isinstance(own[name], dict) and isinstance(value, dict):
            merged[name] = _beneath(own[name], value, f"{path}.{name}", warnings)
        elif own[name] != value:
            warnings.append(f"{path}.{name} is set in this file: it counts, not what LiteLLM's sections say of it")
    return merged


SettingReader = Callable[[LitellmDraft, str, Any], None]
"""Puts the value of a setting at a path into a draft; raises `UnreadableValue`."""


def whole(value: Any, least: int = 0) -> Any:
    """Parses a whole number; returns an unresolved reference as it is.
    Raises UnreadableValue: the value is neither, or less than `least`."""
    found = number(value)
    if is_reference(found):
        return found
    if found != int(found) or found < least:
        raise UnreadableValue(NO_NUMBER)
    return int(found)


def number(value: Any) -> Any:
    """Parses a number of 0 or more; returns an unresolved reference as it is. Raises UnreadableValue: it is neither."""
    if is_reference(value):
        return value
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        raise UnreadableValue(NO_NUMBER) from None
    if isinstance(value, bool) or not found.is_finite() or not 0 <= found < setting_sections.MAX_LIMIT:
        raise UnreadableValue(NO_NUMBER)
    return int(found) if found == found.to_integral_value() else float(found)


def is_reference(value: Any) -> bool:
    """Returns whether a value is an unresolved reference to the environment or to a file."""
    return isinstance(value, str) and value.startswith((ENVIRONMENT_REFERENCE, "file:///"))


def looked_up(value: Any) -> Any:
    """Returns a value that must be resolved to be imported. Raises UnreadableValue: it is a reference."""
    if is_reference(value):
        raise UnreadableValue("stands in the environment: set what it stands for here by hand")
    return value


def mapping(value: Any) -> dict[str, Any]:
    """Returns a mapping, its names as strings. Raises UnreadableValue: the value is no mapping."""
    if not isinstance(looked_up(value), dict):
        raise UnreadableValue("is no mapping")
    return {str(name): each for name, each in value.items()}


def unused(draft: LitellmDraft, path: str, names: Iterable[str]) -> None:
    """Records the parts of a setting that have no equivalent here."""
    if found := ", ".join(names):
        draft.differs(path, f"{found} of it: nothing here stands for that")


EXACT_PERIODS: dict[str, setting_sections.Period] = {
    **dict.fromkeys(("1d", "24h", "daily"), "day"),
    **dict.fromkeys(("7d", "1w", "weekly"), "week"),
    **dict.fromkeys(("30d", "1mo", "monthly"), "month"),
}
"""LiteLLM begins 7d on Mondays and 30d on the first of a month, like our weeks and months."""
DURATION_PATTERN = re.compile(r"(\d+)(mo|[smhdw])")
UNIT_DAYS = {"s": 1 / 86400, "m": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0, "mo": 30.0}
LONGEST_PERIODS: tuple[tuple[float, setting_sections.Period], ...] = ((1, "day"), (7, "week"), (31, "month"))
MONTH = 30
KEY_LIMITS = {"rpm_limit": "rpm", "tpm_limit": "tpm", "max_parallel_requests": "concurrent"}
BUDGET_FIELDS = ("max_budget", "budget_duration")
SPOKEN_FOR = {"budget_limit": "max_budget", "time_period": "budget_duration"}
"""Older names of a provider's budget."""
KEY_SETTINGS = (
    *("default_key_generate_params", "upperbound_key_generate_params", "default_internal_user_params"),
    *("max_internal_user_budget", "default_max_internal_user_budget"),
)
"""Settings that may hold for each key, the most specific first."""


def budget(draft: LitellmDraft, path: str, usd: Any, duration: Any) -> dict[str, Any] | None:
    """Builds a budget; returns None if the sum is 0, which to LiteLLM is no budget.

    A duration without an equal period becomes the next longer period with the same sum, or a month with its share of
    the sum: never more than was meant.
    Raises UnreadableValue: the sum is no number, or the duration is invalid."""
    amount = number(usd)
    if not amount:
        return None
    if duration is None:
        return {"usd": amount, "period": "total"}
    text = str(looked_up(duration)).strip().lower()
    if text in EXACT_PERIODS:
        return {"usd": amount, "period": EXACT_PERIODS[text]}
    fits = DURATION_PATTERN.fullmatch({"hourly": "1h"}.get(text, text))
    if fits is None or not int(fits[1]):
        raise UnreadableValue("its duration is none: 30d, 1mo and the like are")
    days = int(fits[1]) * UNIT_DAYS[fits[2]]
    period: setting_sections.Period = next((name for most, name in LONGEST_PERIODS if days <= most), "month")
    if days > LONGEST_PERIODS[-1][0]:
        if is_reference(amount):
            raise UnreadableValue("stands in the environment, and its duration is none of ours")
        amount = float(Decimal(str(amount)) * MONTH / Decimal(str(days)))
        draft.differs(path, f"{text} becomes a month with its share of the sum, {amount:g} USD")
    else:
        draft.differs(path, f"{text} becomes a {period}, with the same sum")
    return {"usd": amount, "period": period}


def note_spending(draft: LitellmDraft, path: str, value: Any) -> None:
    """Stores a budget or its duration: `finish_limits` reads it after all the others."""
    draft.spent[path.rpartition(".")[2]] = (path, value)


def read_concurrent(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `concurrent` of `limits.all`."""
    draft.limits.setdefault("all", {})["limits"] = {"concurrent": whole(value, 1)}


def read_each_user(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets the budget of `limits.each_user`."""
    if found := budget(draft, path, value, None):
        draft.limits["each_user"] = {"budgets": [found]}


def read_closed(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `limits.when_down`."""
    if looked_up(value):
        draft.limits["when_down"] = "closed"


def read_each_entry(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `max_parallel_requests` of the entries that have none."""
    most = whole(value, 1)
    for entry in draft.models:
        params = entry.get("litellm_params")
        if isinstance(params, dict):
            entry["litellm_params"] = {"max_parallel_requests": most, **params}


def read_provider_budgets(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets budgets in `limits.models` if a provider serves only one name."""
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
    """Sets the budget of a model, unless it has one already."""
    if found := budget(draft, path, fields.get(BUDGET_FIELDS[0]) or 0, fields.get(BUDGET_FIELDS[1])):
        draft.limits.setdefault("models", {}).setdefault(model, {"budgets": [found]})


def finish_limits(draft: LitellmDraft) -> list[tuple[str, str]]:
    """Sets what needs several settings: sums and their durations, and the most specific of those for keys.
    Returns the paths of settings that could not be read, and why."""
    problems: list[tuple[str, str]] = []
    for read in (_all, _keys, _entries):
        try:
            read(draft)
        except UnreadableValue as problem:
            problems.append((problem.path, str(problem)))
    return problems


@contextmanager
def _read_from(path: str) -> Iterator[None]:
    """Adds the path of the setting to what cannot be read of it."""
    try:
        yield
    except UnreadableValue as error:
        error.path = path
        raise


def _all(draft: LitellmDraft) -> None:
    path, usd = draft.spent.get(BUDGET_FIELDS[0], ("", 0))
    _, duration = draft.spent.get(BUDGET_FIELDS[1], ("", None))
    with _read_from(path):
        if found := budget(draft, path, usd, duration):
            draft.limits.setdefault("all", {})["budgets"] = [found]


def _keys(draft: LitellmDraft) -> None:
    """Sets `limits.keys`. Of the settings for each key, the most specific counts."""
    for name in KEY_SETTINGS:
        path, value = draft.spent.get(name, ("", None))
        if not path:
            continue
        said = value if isinstance(value, dict) else {BUDGET_FIELDS[0]: value}
        if not isinstance(value, dict) and (later := draft.spent.get("internal_user_budget_duration")):
            said[BUDGET_FIELDS[1]] = later[1]
        known = (*BUDGET_FIELDS, *KEY_LIMITS)
        found: dict[str, Any] = {}
        with _read_from(path):
            if usd := budget(draft, path, said.get(BUDGET_FIELDS[0]) or 0, said.get(BUDGET_FIELDS[1])):
                found["budgets"] = [usd]
            limits = {ours: whole(said[theirs], 1) for theirs, ours in KEY_LIMITS.items() if said.get(theirs)}
        if limits:
            found["limits"] = limits
        unused(draft, path, [str(each) for each in said if each not in known])
        for part, each in found.items():
            if part in draft.limits.get("keys", {}):
                draft.differs(path, f"another setting says more of the {part} of keys, and counts")
            else:
                draft.limits.setdefault("keys", {})[part] = each


def _entries(draft: LitellmDraft) -> None:
    """Sets budgets of entries of `model_list`, which here belong to the names that they serve."""
    for position, entry in enumerate(draft.models):
        params = entry.get("litellm_params")
        if not isinstance(params, dict) or not params.get(BUDGET_FIELDS[0]):
            continue
        path, name = f"model_list[{position}].litellm_params.{BUDGET_FIELDS[0]}", str(entry.get("model_name"))
        if sum(str(each.get("model_name")) == name for each in draft.models) > 1:
            draft.differs(path, f"{name!r} has several entries: set `limits.models` for all of them together")
            continue
        with _read_from(path):
            _add(draft, path, name, params)


MAX_RETRIES = 10
NEVER_RESTING_FAILS = 1_000_000
"""Failures within a minute that no deployment reaches."""
ANY = "*"
LITELLM_STRATEGIES = {
    "simple-shuffle": "weighted",
    "least-busy": "least_busy",
    "latency-based-routing": "latency",
    "usage-based-routing": "weighted",
    "usage-based-routing-v2": "weighted",
    "cost-based-routing": "weighted",
    "provider-budget-routing": "weighted",
}
SAME_STRATEGIES = ("simple-shuffle", "least-busy", "latency-based-routing")
"""Strategies that mean the same here."""
STICKY = {"prompt_caching": "auto", "session_affinity": "always", "deployment_affinity": "always"}
ALWAYS_ON = (
    *("router_budget_limiting", "responses_api_deployment_check", "enforce_model_rate_limits"),
    "encrypted_content_affinity",
)
RETRIED_STATUSES = {
    "TimeoutErrorRetries": (408, 504),
    "RateLimitErrorRetries": (429,),
    "InternalServerErrorRetries": (500, 502, 520, 521, 522, 523, 524, 529),
    "ServiceUnavailableErrorRetries": (503,),
}
"""LiteLLM's kinds of errors after which a retry may help, as statuses of upstreams."""
FAILS = ("Timeout", "InternalServer", "ServiceUnavailable", "BadGateway", "RateLimit")
"""Kinds of errors that count against a deployment here."""


def read_retries(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `routing.retries`."""
    found = whole(value)
    if isinstance(found, int) and found > MAX_RETRIES:
        draft.differs(path, f"{MAX_RETRIES} tries are the most")
        found = MAX_RETRIES
    draft.routing["retries"] = found


def read_retry_policy(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `routing.retry_statuses`, and stores the number of retries."""
    counts = {name: whole(looked_up(each)) for name, each in mapping(value).items() if each is not None}
    unused(draft, path, [name for name in counts if name not in RETRIED_STATUSES])
    counts = {name: each for name, each in counts.items() if name in RETRIED_STATUSES}
    if not counts:
        return
    statuses = set(setting_sections.RoutingSettings().retry_statuses)
    for name, count in counts.items():
        statuses = statuses.union(RETRIED_STATUSES[name]) if count else statuses.difference(RETRIED_STATUSES[name])
    most = min(max(counts.values()), MAX_RETRIES)
    if len({count for count in counts.values() if count}) > 1 or max(counts.values()) > most:
        draft.differs(path, f"{most} tries for each kind of error that has any")
    draft.routing["retry_statuses"] = sorted(statuses)
    draft.spent["retries"] = most


def read_backoff(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `routing.backoff`, and `routing.backoff_max` if the backoff is longer."""
    if found := number(value):
        draft.routing["backoff"] = found
        most = setting_sections.RoutingSettings().backoff_max
        if not isinstance(found, str) and found > most:
            draft.routing["backoff_max"] = found
            draft.differs(path, f"a `Retry-After` of as long is waited for, too, in place of {most:g} seconds")


def read_allowed_fails(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `routing.allowed_fails` to one more: LiteLLM counts failures that have no effect yet."""
    draft.routing["allowed_fails"] = whole(looked_up(value)) + 1


def read_allowed_fails_policy(draft: LitellmDraft, path: str, value: Any) -> None:
    """Stores the lowest of the counts, for all kinds of errors alike."""
    given = {name.removesuffix("ErrorAllowedFails"): each for name, each in mapping(value).items() if each is not None}
    unused(draft, path, [f"{name}ErrorAllowedFails" for name in given if name not in FAILS])
    counts = [whole(looked_up(each)) for name, each in given.items() if name in FAILS]
    if counts:
        draft.spent["allowed_fails"] = min(counts) + 1


def read_cooldown(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `routing.cooldown`, and `routing.cooldown_max` if the cooldown is longer; 0: nothing rests."""
    if found := number(value):
        draft.routing["cooldown"] = found
        if not isinstance(found, str) and found > setting_sections.RoutingSettings().cooldown_max:
            draft.routing["cooldown_max"] = found
    else:
        draft.routing["allowed_fails"] = NEVER_RESTING_FAILS


def read_no_cooldowns(draft: LitellmDraft, path: str, value: Any) -> None:
    """Stores that nothing rests."""
    if looked_up(value):
        draft.spent["never"] = NEVER_RESTING_FAILS


def read_strategy(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `routing.strategy`."""
    name = str(looked_up(value)).strip().lower()
    if name not in LITELLM_STRATEGIES:
        raise UnreadableValue(f"known: {', '.join(LITELLM_STRATEGIES)}")
    draft.routing["strategy"] = LITELLM_STRATEGIES[name]
    if name not in SAME_STRATEGIES:
        draft.differs(path, f"{name} becomes weighted: by weight, else by rpm or tpm of the entries, else evenly")


def read_checks(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `routing.sticky`."""
    if not isinstance(looked_up(value), list):
        raise UnreadableValue("is no list")
    names = [str(each) for each in value]
    found = [STICKY[name] for name in names if name in STICKY]
    if found:
        draft.routing["sticky"] = "always" if "always" in found else "auto"
    unused(draft, path, [name for name in names if name not in STICKY and name not in ALWAYS_ON])


def timeout_reader(setting: str) -> SettingReader:
    """Makes a reader that sets a time of `upstream`."""

    def read(draft: LitellmDraft, path: str, value: Any) -> None:
        if found := number(value):
            draft.upstream[setting] = found

    return read


def read_max_fallbacks(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `routing.max_fallbacks`."""
    draft.routing["max_fallbacks"] = whole(value)


def read_default_fallbacks(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `routing.default_fallbacks`."""
    draft.routing["default_fallbacks"] = _targets(draft, path, value)


def read_fallbacks(draft: LitellmDraft, path: str, value: Any) -> None:
    """Sets `routing.fallbacks`, and `routing.default_fallbacks` from `*` and plain names."""
    table, rest = _table(draft, path, value)
    draft.routing["fallbacks"] = table
    if rest:
        draft.routing.setdefault("default_fallbacks", rest)


def fallback_reader(setting: str) -> SettingReader:
    """Makes a reader of fallbacks for one kind of failure. Ours have no `*`: it becomes each name without its own."""

    def read(draft: LitellmDraft, path: str, value: Any) -> None:
        table, rest = _table(draft, path, value)
        for name in draft.names if rest else ():
            if name not in table and (others := [each for each in rest if each != name]):
                table[name] = others
        draft.routing[setting] = table

    return read


def _table(draft: LitellmDraft, path: str, value: Any) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the fallbacks of each model, and those of all models: LiteLLM writes
    `[{name: [other, …]}, …]`, `{"*": […]}`, or plain names."""
    listed = looked_up(value)
    listed = [listed] if isinstance(listed, dict) else listed
    if not isinstance(listed, list):
        raise UnreadableValue("is no list of mappings")
    table: dict[str, list[str]] = {}
    rest: list[str] = []
    for each in listed:
        if isinstance(each, str):
            rest += _targets(draft, path, each)
            continue
        for name, targets in mapping(each).items():
            found = _targets(draft, path, targets)
            if name == ANY:
                rest += found
            elif found:
                table[name] = found
    return table, rest


def _targets(draft: LitellmDraft, path: str, value: Any) -> list[str]:
    """Returns the models that a fallback names. Raises UnreadableValue: it is neither a name nor a list of names."""
    listed = [value] if isinstance(value, str | dict) else value
    if not isinstance(listed, list):
        raise UnreadableValue("names no models")
    found = []
    for each in listed:
        name = each.get("model") if isinstance(each, dict) else each
        if not isinstance(name, str) or not name:
            raise UnreadableValue("names no models")
        if isinstance(each, dict) and (more := [str(key) for key in each if key != "model"]):
            unused(draft, path, more)
        found.append(name)
    known = draft.names
    if lost := [name for name in found if known and not any(_serves(each, name) for each in known)]:
        draft.differs(path, f"model_list does not have {', '.join(lost)}")
    return found


def _serves(pattern: str, name: str) -> bool:
    return pattern == name or (ANY in pattern and fnmatchcase(name, pattern.replace("[", "[[]")))


def finish_routing(draft: LitellmDraft) -> None:
    """Sets what depends on all settings: policies by kind of error, and that nothing rests."""
    if (most := draft.spent.pop("retries", None)) is not None:
        said = draft.routing.get("retries")
        draft.routing["retries"] = max(most, said) if isinstance(said, int) else most
    if (least := draft.spent.pop("allowed_fails", None)) is not None:
        draft.routing.setdefault("allowed_fails", least)
    if (never := draft.spent.pop("never", None)) is not None:
        draft.routing["allowed_fails"] = never
