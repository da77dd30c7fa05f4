"""`gateway check --from-litellm` writes what means the same, and no secret (guarantee §12.14)."""

import io
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.config.config_file import ENVIRONMENT_REFERENCE
from gateway.core.config.litellm import move_in
from gateway.core.config.loading import ConfigurationError, load_settings
from gateway.core.config.setting_sections import ApiKey
from gateway.core.config.settings import Settings
from gateway.operations.from_litellm import ConvertedConfig, convert, write_from_litellm
from tests.support.litellm_examples import ENVIRONMENT, EXAMPLES

FILES = sorted((Path(__file__).parents[1] / "config" / "litellm").glob("*.yaml"))
LITERAL = {
    "model_list": [
        {
            "model_name": "openai",
            "litellm_params": {
                "model": "openai/m",
                "api_key": "literal-key-1",
                "api_base": "https://me:literal-pass-2@up.invalid/v1",
                "extra_headers": {"x-api-token": "literal-3", "x-team": "blue"},
                "azure_ad_token": 987654321,
                "input_cost_per_token": "9e-08",
            },
        },
        {
            "model_name": "openai",
            "litellm_params": {
                "model": "vertex_ai/gemini",
                "vertex_credentials": {"private_key": "literal-4", "type": "service_account"},
                "note": "Bearer literal-5-and-more",
                "default_api_key_rpm_limit": 7,
                "configurable_clientside_auth_params": ["api_base"],
                "litellm_credential_name": "house",
            },
        },
        {"model_name": "b", "litellm_params": {"model": "openai/b", "api_key": "literal-key-1"}},
    ],
    "credential_list": [{"credential_name": "house", "credential_values": {"aws_secret_access_key": "literal-6"}}],
    "environment_variables": {"SOME_KEY": "literal-7", "DATABASE_URL": "postgresql://u:literal-8@db/litellm"},
    "general_settings": {"master_key": "literal-9-master", "database_url": "postgresql://u:literal-10@db/litellm"},
    "router_settings": {"redis_password": "literal-11", "redis_url": "redis://:literal-12@r"},
    "litellm_settings": {"cache_params": {"password": "literal-13"}, "langfuse_secret": "literal-14"},
    "storage": {"url": "postgresql+asyncpg://u:literal-15@db/gateway"},
    "telemetry": {"otlp_endpoint": "http://127.0.0.1:4318", "headers": {"x-team": "literal-16"}},
    "auth": {"keys": [{"key": "literal-17-of-a-team", "tenant": "team"}]},
}


def converted(path: Path, **environ: str) -> ConvertedConfig:
    return convert(str(path), environ)


def filled(path: Path, names: dict[str, str]) -> dict[str, str]:
    """What an operator would set: what the file held under each name."""
    moved = move_in(yaml.safe_load(path.read_text()), {}, str(path), referring=True).raw
    values: dict[str, str] = {}
    for name, where in names.items():
        if name == "LITELLM_MASTER_KEY":
            values[name] = yaml.safe_load(path.read_text())["general_settings"]["master_key"]
            continue
        found: Any = moved
        for step in where.replace("model_list[", "model_list.").replace("]", "").split("."):
            found = found[int(step)] if isinstance(found, list | tuple) else found[step]
        values[name] = str(found)
    return values


def same(path: Path, tmp_path: Path, environ: dict[str, str]) -> tuple[Settings, Settings]:
    """The settings of a file, and of what it was converted to."""
    made = converted(path, **environ)
    ours = tmp_path / "ours.yaml"
    ours.write_text(made.text)
    return load_settings(str(path), environ), load_settings(str(ours), {**environ, **filled(path, made.names)})


@pytest.mark.parametrize("name", EXAMPLES)
def test_s12_14_what_is_written_means_what_the_file_does(tmp_path: Path, name: str) -> None:
    path = tmp_path / "litellm.yaml"
    path.write_text(EXAMPLES[name])
    theirs, ours = same(path, tmp_path, ENVIRONMENT)
    assert theirs.model_dump() == ours.model_dump()
    assert not [fate.path for fate in ours.moved if not fate.path.startswith("model_list")], "nothing of LiteLLM's left"
    assert "sk-of-the-house" not in converted(path, **ENVIRONMENT).text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_s12_14_larger_files_become_the_same(tmp_path: Path, path: Path) -> None:
    """What the file itself sets in the environment has to be set then."""
    environ = {**ENVIRONMENT, "REDIS_HOST": "redis.internal", "TEAM_BASE": "http://127.0.0.1:9/v1"}
    names = {*_referred(yaml.safe_load(path.read_text()))}
    environ |= {name: f"http://{name.lower()}.invalid" for name in names if name not in environ and "URL" not in name}
    long = path.read_text().replace("sk-1234", "sk-1234-and-more")
    copy = tmp_path / path.name
    copy.write_text(long)
    theirs, ours = same(copy, tmp_path, environ)
    assert theirs.model_dump() == ours.model_dump()


def _referred(value: Any) -> set[str]:
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return {name for each in parts for name in _referred(each)}
    return (
        {value.removeprefix(ENVIRONMENT_REFERENCE)}
        if isinstance(value, str) and value.startswith(ENVIRONMENT_REFERENCE)
        else set()
    )


def test_s12_14_no_secret_is_written(tmp_path: Path) -> None:
    path = tmp_path / "litellm.yaml"
    path.write_text(yaml.safe_dump(LITERAL))
    made = converted(path)
    told = io.StringIO()
    assert write_from_litellm(str(path), str(tmp_path / "out.yaml"), {}, told, told) == 0
    for text in (made.text, told.getvalue(), (tmp_path / "out.yaml").read_text(), repr(made)):
        assert "literal" not in text
        assert "987654321" not in text
    assert "OPENAI_API_KEY" not in made.names, "that name means the default upstream's key"
    entries = yaml.safe_load(made.text)["model_list"]
    assert entries[0]["litellm_params"]["api_key"] == entries[2]["litellm_params"]["api_key"], "one name for one secret"
    assert entries[0]["litellm_params"]["extra_headers"]["x-team"] == "blue"
    assert entries[0]["litellm_params"]["input_cost_per_token"] == "9e-08"
    assert entries[1]["litellm_params"]["litellm_credential_name"] == "house"
    assert entries[1]["litellm_params"]["default_api_key_rpm_limit"] == 7
    assert entries[1]["litellm_params"]["configurable_clientside_auth_params"] == ["api_base"]
    assert yaml.safe_load(made.text)["auth"]["keys"][1]["key"] == "os.environ/LITELLM_MASTER_KEY"
    assert f"# {'DATABASE_URL'} must not be set" in made.text


def test_s12_14_literal_secrets_in_the_environment_make_it_the_same(tmp_path: Path) -> None:
    path = tmp_path / "litellm.yaml"
    config = {name: LITERAL[name] for name in ("model_list", "credential_list", "general_settings", "telemetry")}
    config["model_list"][0]["litellm_params"].pop("azure_ad_token", None)  # type: ignore[index]
    path.write_text(yaml.safe_dump(config))
    theirs, ours = same(path, tmp_path, {})
    assert theirs.model_dump() == ours.model_dump()


def test_the_environment_is_not_looked_at(tmp_path: Path) -> None:
    """Whether it has LiteLLM's own name for the master key, which counts without being named, is all that matters."""
    path = tmp_path / "litellm.yaml"
    path.write_text(EXAMPLES["fallbacks"])
    assert "auth" not in yaml.safe_load(converted(path).text)
    with_key = yaml.safe_load(converted(path, LITELLM_MASTER_KEY="sk-another").text)
    assert with_key["auth"]["keys"] == [
        {"key": "os.environ/LITELLM_MASTER_KEY", "tenant": "master", "roles": ["user", "admin"]}
    ]


def test_figures_in_the_environment_stay_there_or_are_told(tmp_path: Path) -> None:
    path = tmp_path / "litellm.yaml"
    path.write_text("router_settings: {num_retries: os.environ/TRIES, allowed_fails: os.environ/FAILS}")
    made = converted(path)
    assert yaml.safe_load(made.text) == {"routing": {"retries": "os.environ/TRIES"}}
    assert "# router_settings.allowed_fails: ignored: stands in the environment" in made.text


def test_what_differs_stands_with_its_section(tmp_path: Path) -> None:
    path = tmp_path / "litellm.yaml"
    path.write_text(EXAMPLES["retry policy"] + "general_settings: {alerting: [slack]}\n")
    text = converted(path).text
    head, _, rest = text.partition("routing:\n")
    assert "# router_settings.retry_policy: " in head
    assert "# general_settings.alerting: watch" in rest


def test_a_comment_is_one_line_whatever_a_name_holds(tmp_path: Path) -> None:
    path = tmp_path / "litellm.yaml"
    path.write_text(yaml.safe_dump({"litellm_settings": {"x\nauth: {mode: open}\n#": 1}}))
    assert yaml.safe_load(converted(path).text) is None


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    path, there = tmp_path / "litellm.yaml", tmp_path / "there.yaml"
    path.write_text(EXAMPLES["fallbacks"])
    there.write_text("mine")
    with pytest.raises(ConfigurationError, match=r"there\.yaml: File exists"):
        write_from_litellm(str(path), str(there), os.environ, io.StringIO(), io.StringIO())
    assert there.read_text() == "mine"


def test_a_slip_in_our_sections_is_told(tmp_path: Path) -> None:
    path = tmp_path / "litellm.yaml"
    path.write_text("storge: {url: x}\nlitellm_settings: {num_retries: 1}")
    with pytest.raises(ConfigurationError, match="storge: unknown setting"):
        converted(path)


NAMES = ("small", "large", "gone")
FALLBACKS = st.lists(
    st.dictionaries(st.sampled_from((*NAMES, "*")), st.lists(st.sampled_from(NAMES), min_size=1), min_size=1),
    min_size=1,
    max_size=3,
)
DURATIONS = st.sampled_from(("1d", "24h", "7d", "30d", "1mo", "12h", "2w", "90d", "3mo", "daily", "x", "0d", ""))
FIGURES = st.one_of(st.integers(-1, 20), st.floats(0.001, 500), st.sampled_from(("3", "x", True, False, None, 0)))
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("fallbacks", "context_window_fallbacks", "content_policy_fallbacks"), FALLBACKS),
        **dict.fromkeys(
            (
                *("num_retries", "retry_after", "allowed_fails", "cooldown_time", "max_fallbacks", "max_budget"),
                *("max_internal_user_budget", "max_end_user_budget", "global_max_parallel_requests"),
                *("default_max_parallel_requests", "request_timeout", "stream_timeout"),
            ),
            FIGURES,
        ),
        "default_fallbacks": st.lists(st.sampled_from(NAMES), max_size=2),
        "budget_duration": DURATIONS,
        "internal_user_budget_duration": DURATIONS,
        "disable_cooldowns": st.booleans(),
        "routing_strategy": st.sampled_from(("simple-shuffle", "least-busy", "cost-based-routing", "new")),
        "optional_pre_call_checks": st.lists(st.sampled_from(("prompt_caching", "session_affinity", "new"))),
        "retry_policy": st.dictionaries(
            st.sampled_from(("TimeoutErrorRetries", "RateLimitErrorRetries", "BadRequestErrorRetries")), FIGURES
        ),
        "allowed_fails_policy": st.dictionaries(
            st.sampled_from(("TimeoutErrorAllowedFails", "BadRequestErrorAllowedFails")), FIGURES
        ),
        "default_key_generate_params": st.fixed_dictionaries(
            {},
            optional={"max_budget": FIGURES, "budget_duration": DURATIONS, "rpm_limit": FIGURES, "models": FALLBACKS},
        ),
        "model_group_alias": st.dictionaries(st.sampled_from(("a", "b", "small")), st.sampled_from(NAMES)),
    },
)
PARAMS = st.fixed_dictionaries(
    {"model": st.sampled_from(("openai/m", "anthropic/claude"))},
    optional={"max_budget": FIGURES, "budget_duration": DURATIONS, "weight": st.integers(1, 9), "rpm": st.integers(1)},
)
MODELS = st.lists(
    st.fixed_dictionaries({"model_name": st.sampled_from(NAMES[:2]), "litellm_params": PARAMS}), min_size=1, max_size=4
)


@given(models=MODELS, first=SETTINGS, second=SETTINGS, own=st.sampled_from(({}, {"retries": 1}, {"fallbacks": {}})))
def test_s12_14_whatever_a_file_says_is_read_and_written(
    tmp_path_factory: pytest.TempPathFactory, models: Any, first: Any, second: Any, own: Any
) -> None:
    """No value of LiteLLM's settings keeps a file from being read; what is written means the same."""
    folder = tmp_path_factory.mktemp("any")
    path = folder / "litellm.yaml"
    config = {"model_list": models, "litellm_settings": first, "router_settings": second}
    path.write_text(yaml.safe_dump({**config, **({"routing": own} if own else {})}))
    theirs, ours = same(path, folder, {})
    assert theirs.model_dump() == ours.model_dump()
    assert own.get("retries", theirs.routing.retries) == theirs.routing.retries


def test_a_key_of_the_file_is_validated_as_any(tmp_path: Path) -> None:
    """LiteLLM's `sk-1234` works from its own file; written as one of ours it is too short, as the comment says."""
    path = tmp_path / "litellm.yaml"
    path.write_text("general_settings: {master_key: sk-1234}")
    made = converted(path)
    assert "a key has 8 characters or more" in made.text
    (tmp_path / "ours.yaml").write_text(made.text)
    with pytest.raises(ConfigurationError, match=r"auth\.keys\[0\]\.key"):
        load_settings(str(tmp_path / "ours.yaml"), {"LITELLM_MASTER_KEY": "sk-1234"})
    settings = load_settings(str(tmp_path / "ours.yaml"), {"LITELLM_MASTER_KEY": "sk-1234-more"})
    assert isinstance(settings.auth.keys[0], ApiKey)
