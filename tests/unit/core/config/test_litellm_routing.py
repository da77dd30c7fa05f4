"""LiteLLM's fallbacks, tries, rests, strategies and budgets, as ours (guarantee §12.14)."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.core.config.litellm_draft import NEVER_RESTING_FAILS
from gateway.core.config.setting_sections import HolderAllowance
from gateway.core.config.settings import Settings, UpstreamSettings
from gateway.core.types.chat import RequestCaller
from gateway.upstream.routing.catalogue import ModelCatalogue
from gateway.upstream.routing.router import ConfiguredRouter
from tests.support.answers import Json
from tests.support.litellm_examples import ENVIRONMENT, EXAMPLES, example
from tests.unit.core.config.configured import MODEL, load

PAIR = [{**MODEL, "model_name": name} for name in ("small", "large")]


def read(tmp_path: Path, name: str) -> Settings:
    return load(tmp_path, example(name), ENVIRONMENT)


def routing(settings: Settings) -> Json:
    """What is not as by default."""
    return settings.routing.model_dump(exclude_defaults=True)


def limits(settings: Settings) -> Json:
    return settings.limits.model_dump(exclude_defaults=True, mode="json")


def money(usd: Any, period: str) -> Json:
    """A budget as dumped; a month is the default."""
    return {"usd": str(Decimal(str(usd))), **({} if period == "month" else {"period": period})}


ROUTING: dict[str, Json] = {
    "load balancing": {"retries": 2},
    "weights": {},
    "order": {},
    "least busy": {"strategy": "least_busy"},
    "latency": {"strategy": "latency"},
    "usage": {},
    "lowest cost": {},
    "reliability": {
        "retries": 3,
        "fallbacks": {"small": ("large",)},
        "context_window_fallbacks": {"small": ("large",)},
        "allowed_fails": 4,
        "cooldown": 30.0,
    },
    "fallbacks": {"fallbacks": {"small": ("large",)}, "retries": 0},
    "default fallbacks": {"default_fallbacks": ("large",)},
    "fallbacks of all": {"default_fallbacks": ("large",), "max_fallbacks": 1},
    "content policy": {"content_policy_fallbacks": {"small": ("large",)}},
    "context window": {"context_window_fallbacks": {"small": ("large",)}},
    "retries": {"retries": 2},
    "retry policy": {
        "retries": 4,
        "retry_statuses": (408, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529),
        "allowed_fails": 21,
    },
    "no cooldowns": {"allowed_fails": NEVER_RESTING_FAILS},
    "prompt caching": {},
    "affinity": {"sticky": "always"},
}
LIMITS: dict[str, Json] = {
    "parallel requests": {"all": {"limits": {"concurrent": 50}}},
    "providers' budgets": {
        "models": {"small": {"budgets": [money("10.5", "day")]}, "claude": {"budgets": [money(100, "week")]}}
    },
    "deployments' budgets": {"models": {"small": {"budgets": [money("10.5", "day")]}}},
    "the proxy's budget": {"all": {"budgets": [money("10.5", "month")]}},
    "users' budgets": {"keys": {"budgets": [money(10, "month")]}},
    "end users": {"each_user": {"budgets": [money("10.5", "total")]}},
    "new keys": {"keys": {"budgets": [money("1.5", "total")], "limits": {"rpm": 60}}},
    "new users": {"keys": {"budgets": [money(100, "month")]}},
    "closed when down": {"when_down": "closed"},
}
DIFFERS: dict[str, list[str]] = {
    "usage": ["routing_strategy: usage-based-routing-v2 becomes weighted"],
    "lowest cost": ["routing_strategy: cost-based-routing becomes weighted"],
    "retry policy": [
        "AuthenticationErrorRetries, ContentPolicyViolationErrorRetries of it",
        "4 tries for each kind of error that has any",
        "ContentPolicyViolationErrorAllowedFails of it",
    ],
    "providers' budgets": ["azure serves no model"],
    "new keys": ["duration, models of it", "says more of the budgets", "10d becomes a month, with the same sum"],
    "new users": ["models, user_role of it"],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_s12_14_what_litellms_documents_teach_becomes_ours(tmp_path: Path, name: str) -> None:
    """Each example loads; what it sets is set here, and each difference is told."""
    settings = read(tmp_path, name)
    assert routing(settings) == ROUTING.get(name, {})
    found = limits(settings)
    for part in ("models",) if "models" in found else ():
        found[part] = {model: _short(each) for model, each in found[part].items()}
    assert {part: _short(each) if part != "models" else each for part, each in found.items()} == LIMITS.get(name, {})
    told = [warning for warning in settings.warnings if "REDIS" not in warning]
    for expected in DIFFERS.get(name, []):
        assert any(expected in warning for warning in told), expected
    assert name in DIFFERS or not told


def _short(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    short = {k: v for k, v in value.items() if v not in ([], {})}
    if "budgets" in short:
        short["budgets"] = [
            {"usd": each["usd"], **({} if each.get("period", "month") == "month" else {"period": each["period"]})}
            for each in short["budgets"]
        ]
    return short


def test_every_example_is_checked_for_what_it_sets() -> None:
    assert {*ROUTING, *LIMITS, *DIFFERS} <= EXAMPLES.keys()
    assert len(EXAMPLES) >= 25


def test_an_alias_stands_for_all_entries_of_its_model(tmp_path: Path) -> None:
    settings = read(tmp_path, "load balancing")
    bases = [entry.litellm_params.api_base for entry in settings.model_list if entry.model_name == "gpt-4"]
    assert bases == [ENVIRONMENT[name] for name in ("UP_A", "UP_B", "UP_C")]
    best = read(tmp_path, "wildcards").model("best")
    assert best is not None
    assert (best.litellm_params.model, best.litellm_params.api_base) == ("openai/best", ENVIRONMENT["UP_A"])


def test_an_alias_is_no_way_past_a_budget(tmp_path: Path) -> None:
    params = {"model": "openai/m", "max_budget": 2, "budget_duration": "1d"}
    config = {"model_list": [{**MODEL, "litellm_params": params}]}
    settings = load(tmp_path, {**config, "router_settings": {"model_group_alias": {"other": "m"}}})
    assert limits(settings)["models"] == {name: {"budgets": [money("2", "day")]} for name in ("m", "other")}
    assert any("other has limits of its own, the same as m" in warning for warning in settings.warnings)


def test_what_the_router_keeps_to_itself_is_not_sent(tmp_path: Path) -> None:
    params: Json = {"itpm": 1, "timeout_by_service_tier": {"flex": 1}, "keepalive_seconds": 3, "weight": 2, "rpm": 1}
    model = {**MODEL, "litellm_params": {"model": "openai/m", **params, "temperature": 0}}
    deployment = ConfiguredRouter(load(tmp_path, {"model_list": [model]}), ModelCatalogue()).deployment(
        "m", RequestCaller("a")
    )
    assert deployment.parameters == {"temperature": 0}


@pytest.mark.parametrize(
    ("duration", "usd", "expected", "told"),
    [
        ("1d", 10, ("10", "day"), ""),
        ("24h", 10, ("10", "day"), ""),
        ("daily", 10, ("10", "day"), ""),
        ("7d", 10, ("10", "week"), ""),
        ("1w", 10, ("10", "week"), ""),
        ("30d", 10, ("10", "month"), ""),
        ("1mo", 10, ("10", "month"), ""),
        ("monthly", "10", ("10", "month"), ""),
        (None, 10, ("10", "total"), ""),
        ("30s", 10, ("10", "day"), "30s becomes a day, with the same sum"),
        ("12h", 10, ("10", "day"), "12h becomes a day, with the same sum"),
        ("2d", 10, ("10", "week"), "2d becomes a week, with the same sum"),
        ("14d", 10, ("10", "month"), "14d becomes a month, with the same sum"),
        ("60d", 10, ("5", "month"), "60d becomes a month with its share of the sum, 5 USD"),
        ("3mo", 9, ("3", "month"), "3mo becomes a month with its share of the sum, 3 USD"),
    ],
)
def test_a_duration_is_a_period_that_never_allows_more(
    tmp_path: Path, duration: str | None, usd: Any, expected: tuple[str, str], told: str
) -> None:
    said = {"max_budget": usd, **({"budget_duration": duration} if duration else {})}
    settings = load(tmp_path, {"litellm_settings": said})
    (found,) = settings.limits.all.budgets
    assert (found.usd, found.period, found.hard) == (Decimal(expected[0]), expected[1], True)
    assert [w for w in settings.warnings if "becomes" in w] == (
        [f"litellm_settings.max_budget: {told}"] if told else []
    )


def test_of_several_sections_the_routers_counts(tmp_path: Path) -> None:
    config = {
        "router_settings": {"timeout": 30, "num_retries": 1, "fallbacks": [{"small": ["large"]}]},
        "litellm_settings": {
            "request_timeout": 10,
            "stream_timeout": "7",
            "num_retries": 5,
            "fallbacks": [{"large": ["small"]}],
            "max_fallbacks": 2,
        },
    }
    settings = load(tmp_path, {"model_list": PAIR, **config})
    assert routing(settings) == {"retries": 1, "fallbacks": {"small": ("large",)}, "max_fallbacks": 2}
    assert (settings.upstream.first_byte, settings.upstream.idle) == (30, 7)


def test_our_own_sections_outrank_litellms(tmp_path: Path) -> None:
    """Setting by setting; what they leave open is LiteLLM's."""
    theirs = {
        "num_retries": 3,
        "allowed_fails": 2,
        "fallbacks": [{"small": ["large"]}, {"large": ["small"]}],
        "max_budget": 5,
        "budget_duration": "1d",
        "default_key_generate_params": {"rpm_limit": 10, "max_budget": 7},
    }
    own: Json = {
        "routing": {"retries": 1, "fallbacks": {"small": ["other"]}},
        "limits": {"all": {"limits": {"rpm": 9}}, "keys": {"limits": {"tpm": 100}, "budgets": []}},
    }
    settings = load(tmp_path, {"model_list": PAIR, "litellm_settings": theirs, **own})
    assert (settings.routing.retries, settings.routing.allowed_fails) == (1, 3)
    assert settings.routing.fallbacks == {"small": ("other",), "large": ("small",)}
    assert settings.limits.all.limits.rpm == 9
    assert [each.usd for each in settings.limits.all.budgets] == [5]
    assert settings.limits.keys == HolderAllowance.model_validate({"limits": {"rpm": 10, "tpm": 100}})
    for path in ("routing.retries", "routing.fallbacks.small", "limits.keys.budgets"):
        assert any(warning.startswith(f"{path} is set in this file: it counts") for warning in settings.warnings)


def test_of_what_is_said_of_keys_the_nearest_counts(tmp_path: Path) -> None:
    said = {
        "max_internal_user_budget": 1,
        "default_internal_user_params": {"max_budget": 2, "tpm_limit": 3},
        "upperbound_key_generate_params": {"max_budget": 4},
    }
    settings = load(tmp_path, {"litellm_settings": said})
    assert [each.usd for each in settings.limits.keys.budgets] == [4]
    assert settings.limits.keys.limits.tpm == 3


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("router_settings.num_retries", "many"),
        ("router_settings.num_retries", -1),
        ("router_settings.num_retries", 1.5),
        ("router_settings.timeout", "1e400"),
        ("router_settings.num_retries", True),
        ("router_settings.fallbacks", "large"),
        ("router_settings.fallbacks", [{"small": [{"messages": []}]}]),
        ("router_settings.fallbacks", [7]),
        ("router_settings.retry_policy", ["x"]),
        ("router_settings.retry_policy", {"TimeoutErrorRetries": "x"}),
        ("router_settings.routing_strategy", "one-of-next-year"),
        ("router_settings.cooldown_time", "nan"),
        ("litellm_settings.max_budget", "much"),
        ("litellm_settings.max_end_user_budget", float("inf")),
        ("litellm_settings.default_key_generate_params", {"rpm_limit": "x"}),
        ("router_settings.provider_budget_config", {"openai": 3}),
        ("general_settings.global_max_parallel_requests", 0.5),
        ("router_settings.my.timeout", 5),
        ("litellm_settings.my.max_budget", 3),
    ],
)
def test_a_value_without_sense_is_ignored_and_told(tmp_path: Path, path: str, value: Any) -> None:
    section, name = path.split(".", 1)
    settings = load(tmp_path, {"model_list": [MODEL], section: {name: value}})
    assert (routing(settings), limits(settings)) == ({}, {})
    assert settings.upstream.first_byte == UpstreamSettings().first_byte
    (fate,) = [each for each in settings.moved if each.path == path]
    assert fate.group == "not supported"
    assert str(value) not in fate.text


def test_figures_come_from_the_environment_too(tmp_path: Path) -> None:
    config = {"router_settings": {"num_retries": "os.environ/TRIES", "cooldown_time": "os.environ/GONE"}}
    settings = load(tmp_path, config, {"TRIES": "2"})
    assert routing(settings) == {"retries": 2}
    assert [each.text for each in settings.moved if each.path.endswith("cooldown_time")] == [
        "the environment has no GONE"
    ]


@pytest.mark.parametrize(
    ("value", "expected", "told"),
    [
        ([{"small": "large"}], {"small": ("large",)}, None),
        ({"small": ["large"]}, {"small": ("large",)}, None),
        ([{"small": [{"model": "large", "api_key": "k"}]}], {"small": ("large",)}, "api_key of it"),
        ([{"small": ["large"]}, {"small": ["small"]}], {"small": ("small",)}, None),
        ([{"small": ["nobody"]}], {"small": ("nobody",)}, "model_list does not have nobody"),
        ([{"a": ["b"], "b": ["small"]}], {"a": ("b",), "b": ("small",)}, "model_list does not have b"),
    ],
)
def test_forms_of_fallbacks(tmp_path: Path, value: Any, expected: Json, told: str | None) -> None:
    settings = load(tmp_path, {"model_list": PAIR, "litellm_settings": {"fallbacks": value}})
    assert settings.routing.fallbacks == expected
    assert any(told in each for each in settings.warnings) if told else not settings.warnings


def test_content_fallbacks_of_all_become_those_of_each(tmp_path: Path) -> None:
    config = {"model_list": PAIR, "router_settings": {"content_policy_fallbacks": [{"*": ["large"]}]}}
    assert load(tmp_path, config).routing.content_policy_fallbacks == {"small": ("large",)}


def test_a_long_rest_and_a_long_wait_fit(tmp_path: Path) -> None:
    found = routing(load(tmp_path, {"router_settings": {"cooldown_time": 600, "retry_after": 20}}))
    assert found == {"cooldown": 600.0, "cooldown_max": 600.0, "backoff": 20.0, "backoff_max": 20.0}
    assert routing(load(tmp_path, {"router_settings": {"cooldown_time": 0}})) == {"allowed_fails": NEVER_RESTING_FAILS}


def test_the_examples_are_yaml() -> None:
    for text in EXAMPLES.values():
        assert isinstance(yaml.safe_load(text), dict)
