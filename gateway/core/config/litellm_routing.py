"""LiteLLM's settings of fallbacks, tries, rests, timeouts and the choice among deployments (guarantee §12.14)."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from gateway.core.config.litellm_draft import (
    LitellmDraft,
    SettingReader,
    UnreadableValue,
    looked_up,
    mapping,
    number,
    unused,
    whole,
)
from gateway.core.config.setting_sections import RoutingSettings

MAX_RETRIES = 10
NEVER = 1_000_000
"""Failures within a minute that nothing reaches."""
ANY = "*"
STRATEGIES = {
    "simple-shuffle": "weighted",
    "least-busy": "least_busy",
    "latency-based-routing": "latency",
    "usage-based-routing": "weighted",
    "usage-based-routing-v2": "weighted",
    "cost-based-routing": "weighted",
    "provider-budget-routing": "weighted",
}
SAME = ("simple-shuffle", "least-busy", "latency-based-routing")
"""Strategies that mean the same here."""
STICKY = {"prompt_caching": "auto", "session_affinity": "always", "deployment_affinity": "always"}
ALWAYS_ON = (
    *("router_budget_limiting", "responses_api_deployment_check", "enforce_model_rate_limits"),
    "encrypted_content_affinity",
)
STATUSES = {
    "TimeoutErrorRetries": (408, 504),
    "RateLimitErrorRetries": (429,),
    "InternalServerErrorRetries": (500, 502, 529),
    "ServiceUnavailableErrorRetries": (503,),
}
"""LiteLLM's kinds of errors after which a try may help, as statuses of upstreams."""
FAILS = ("Timeout", "InternalServer", "ServiceUnavailable", "BadGateway", "RateLimit")
"""Kinds of errors that count against a deployment here."""


def read_retries(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `routing.retries`."""
    found = whole(value)
    if isinstance(found, int) and found > MAX_RETRIES:
        draft.differs(path, f"{MAX_RETRIES} tries are the most")
        found = MAX_RETRIES
    draft.routing["retries"] = found


def read_retry_policy(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `routing.retry_statuses`, and note how many tries there are."""
    counts = {name: whole(looked_up(each)) for name, each in mapping(value).items() if each is not None}
    unused(draft, path, [name for name in counts if name not in STATUSES])
    counts = {name: each for name, each in counts.items() if name in STATUSES}
    if not counts:
        return
    statuses = set(RoutingSettings().retry_statuses)
    for name, count in counts.items():
        statuses = statuses.union(STATUSES[name]) if count else statuses.difference(STATUSES[name])
    most = min(max(counts.values()), MAX_RETRIES)
    if len({count for count in counts.values() if count}) > 1 or max(counts.values()) > most:
        draft.differs(path, f"{most} tries for each kind of error that has any")
    draft.routing["retry_statuses"] = sorted(statuses)
    draft.spent["retries"] = most


def read_backoff(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `routing.backoff`, and `routing.backoff_max` where it is longer."""
    if found := number(value):
        draft.routing["backoff"] = found
        most = RoutingSettings().backoff_max
        if not isinstance(found, str) and found > most:
            draft.routing["backoff_max"] = found
            draft.differs(path, f"a `Retry-After` of as long is waited for, too, in place of {most:g} seconds")


def read_allowed_fails(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `routing.allowed_fails`: LiteLLM counts those that do no harm yet."""
    del path
    draft.routing["allowed_fails"] = whole(looked_up(value)) + 1


def read_allowed_fails_policy(draft: LitellmDraft, path: str, value: Any) -> None:
    """Note the least of the counts, for all kinds alike."""
    given = {name.removesuffix("ErrorAllowedFails"): each for name, each in mapping(value).items() if each is not None}
    unused(draft, path, [f"{name}ErrorAllowedFails" for name in given if name not in FAILS])
    counts = [whole(looked_up(each)) for name, each in given.items() if name in FAILS]
    if counts:
        draft.spent["allowed_fails"] = min(counts) + 1


def read_cooldown(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `routing.cooldown`, and `routing.cooldown_max` where it is longer; 0: nothing rests."""
    del path
    if found := number(value):
        draft.routing["cooldown"] = found
        if not isinstance(found, str) and found > RoutingSettings().cooldown_max:
            draft.routing["cooldown_max"] = found
    else:
        draft.routing["allowed_fails"] = NEVER


def read_no_cooldowns(draft: LitellmDraft, path: str, value: Any) -> None:
    """Note that nothing rests."""
    del path
    if looked_up(value):
        draft.spent["never"] = NEVER


def read_strategy(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `routing.strategy`."""
    name = str(looked_up(value)).strip().lower()
    if name not in STRATEGIES:
        raise UnreadableValue(f"known: {', '.join(STRATEGIES)}")
    draft.routing["strategy"] = STRATEGIES[name]
    if name not in SAME:
        draft.differs(path, f"{name} becomes weighted: by weight, else by rpm or tpm of the entries, else evenly")


def read_checks(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `routing.sticky`."""
    if not isinstance(looked_up(value), list):
        raise UnreadableValue("is no list")
    names = [str(each) for each in value]
    found = [STICKY[name] for name in names if name in STICKY]
    if found:
        draft.routing["sticky"] = "always" if "always" in found else "auto"
    unused(draft, path, [name for name in names if name not in STICKY and name not in ALWAYS_ON])


def timeout_reader(setting: str) -> SettingReader:
    """Make what sets a time of `upstream`."""

    def read(draft: LitellmDraft, path: str, value: Any) -> None:
        del path
        if found := number(value):
            draft.upstream[setting] = found

    return read


def read_max_fallbacks(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `routing.max_fallbacks`."""
    del path
    draft.routing["max_fallbacks"] = whole(value)


def read_default_fallbacks(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `routing.default_fallbacks`."""
    draft.routing["default_fallbacks"] = _targets(draft, path, value)


def read_fallbacks(draft: LitellmDraft, path: str, value: Any) -> None:
    """Set `routing.fallbacks`, and `routing.default_fallbacks` of `*` and plain names."""
    table, rest = _table(draft, path, value)
    draft.routing["fallbacks"] = table
    if rest:
        draft.routing.setdefault("default_fallbacks", rest)


def fallback_reader(setting: str) -> SettingReader:
    """Make what sets fallbacks for one kind of failure. Ours have no `*`: it is each name without its own."""

    def read(draft: LitellmDraft, path: str, value: Any) -> None:
        table, rest = _table(draft, path, value)
        for name in draft.names if rest else ():
            if name not in table and (others := [each for each in rest if each != name]):
                table[name] = others
        draft.routing[setting] = table

    return read


def _table(draft: LitellmDraft, path: str, value: Any) -> tuple[dict[str, list[str]], list[str]]:
    """Models by the one that they stand in for, and those that stand in for all: LiteLLM writes
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
    """Raises UnreadableValue: it is neither a name nor a list of names."""
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
    if lost := _unserved(draft, found):
        draft.differs(path, f"model_list does not have {', '.join(lost)}")
    return found


def _unserved(draft: LitellmDraft, names: Iterable[str]) -> list[str]:
    known = draft.names
    return [name for name in names if known and not any(_serves(each, name) for each in known)]


def _serves(pattern: str, name: str) -> bool:
    return pattern == name or (ANY in pattern and fnmatchcase(name, pattern.replace("[", "[[]")))


def finish_routing(draft: LitellmDraft) -> None:
    """What can only be said once all settings were read: policies by kind of error, and that nothing rests."""
    if (most := draft.spent.pop("retries", None)) is not None:
        said = draft.routing.get("retries")
        draft.routing["retries"] = max(most, said) if isinstance(said, int) else most
    if (least := draft.spent.pop("allowed_fails", None)) is not None:
        draft.routing.setdefault("allowed_fails", least)
    if (never := draft.spent.pop("never", None)) is not None:
        draft.routing["allowed_fails"] = never
