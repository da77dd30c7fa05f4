"""The `config.yaml` of a LiteLLM proxy starts, and every setting in it is accounted for (guarantee §9)."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.core.config.loading import ConfigurationError, load_settings
from gateway.core.config.settings import Settings
from gateway.core.errors import ModelNotFound
from gateway.core.types.chat import RequestCaller
from gateway.upstream.routing.catalogue import ModelCatalogue, unsupported
from gateway.upstream.routing.router import ConfiguredRouter
from tests.unit.core.config.configured import MODEL, load, refused

FILES = sorted((Path(__file__).parent / "litellm").glob("*.yaml"))
MASTER = {"LITELLM_MASTER_KEY": "sk-1234"}


def groups(settings: Settings) -> dict[str, str]:
    assert len({fate.path for fate in settings.moved}) == len(settings.moved), "each is told once"
    return {fate.path: fate.group for fate in settings.moved}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_s9_files_as_litellms_documents_show_them_are_read(path: Path) -> None:
    """No variable of the environment is set but the key that keeps strangers out; each setting is told once, under
    one of three heads, and has a text."""
    settings = load_settings(str(path), MASTER)
    found = groups(settings)
    raw = yaml.safe_load(path.read_text())
    for section, values in raw.items():
        if section == "model_list":
            continue
        for name in values if section.endswith("_settings") and isinstance(values, dict) else ():
            assert found[section if section == "callback_settings" else f"{section}.{name}"]
        assert section.endswith("_settings") or section in found
    assert set(found.values()) <= {"kept", "replaced", "not supported"}
    assert all(fate.text for fate in settings.moved)


def test_s9_what_a_production_file_becomes() -> None:
    environ = {**MASTER, "HOUSE_KEY": "sk-house", "DATABASE_URL": "postgresql://litellm@db/litellm"}
    settings = load_settings(str(FILES[2]), environ)
    found = groups(settings)
    assert [(each.tenant, each.key.get_secret_value()) for each in settings.auth.keys] == [("master", "sk-1234")]
    assert settings.auth.keys[0].roles == ("user", "admin"), "what it may do there"
    assert settings.upstream.first_byte == 120
    assert settings.storage.url.startswith("sqlite:"), "LiteLLM's database is not the gateway's"
    assert [entry.model_name for entry in settings.model_list][-3:] == ["gpt-4", "gpt-4", "best"], "all its entries"
    told = {
        "kept": ["general_settings.master_key", "credential_list", "environment_variables",
                 "router_settings.model_group_alias", "litellm_settings.set_verbose"],
        "replaced": ["general_settings.database_url", "general_settings.store_model_in_db", "callback_settings",
                     "litellm_settings.success_callback", "litellm_settings.request_timeout",
                     "router_settings.redis_host", "router_settings.enable_pre_call_checks",
                     "router_settings.routing_strategy", "router_settings.retry_policy",
                     "router_settings.cooldown_time",
                     "model_list[].litellm_params.cache_control_injection_points"],
        "not supported": ["litellm_settings.cache", "general_settings.max_parallel_requests",
                          "litellm_settings.a_setting_of_next_year", "a_section_of_next_year", "guardrails",
                          "mcp_servers", "vector_store_registry", "search_tools", "general_settings.custom_auth",
                          "general_settings.alerting", "model_list[].litellm_params.max_retries"],
    }  # fmt: skip
    for group, paths in told.items():
        assert {path: found.get(path) for path in paths} == dict.fromkeys(paths, group)
    router = ConfiguredRouter(settings, ModelCatalogue())
    house = router.deployment("house", RequestCaller("a"))
    assert (house.api_base, house.api_key) == ("http://127.0.0.1:9/v1", "sk-house")
    assert house.headers["OpenAI-Organization"] == "org-1"
    assert not house.parameters
    assert router.deployment("team", RequestCaller("a")).api_base == "http://127.0.0.1:9/v1"
    assert not any("gpt-4o" in warning for warning in settings.warnings), "several entries are one group"


@pytest.mark.parametrize("unset", [{}, {"AZURE_API_KEY_EU": "", "AWS_KEY": "", "AWS_SECRET": ""}])
def test_s9_a_model_whose_key_is_not_set_says_so_and_the_others_serve(unset: dict[str, str]) -> None:
    """With an empty one, its clients' own keys would go to its provider."""
    settings = load_settings(str(FILES[2]), {**MASTER, **unset, "HOUSE_KEY": "sk-house"})
    problems = {entry.model_name: unsupported(entry) for entry in reversed(settings.model_list)}
    assert problems["gpt-4o"] == "the environment has no AZURE_API_KEY_EU"
    assert problems["claude"] == "the environment has no AWS_KEY and the environment has no AWS_SECRET"
    assert problems["gpt-4"] == problems["gpt-4o"]
    assert (problems["house"], problems["team"]) == (None, None)


def test_s9_an_entry_whose_credential_is_nowhere_is_warned_about(tmp_path: Path) -> None:
    """And not served, unless it has a key of its own: its clients' own would go up."""
    params: list[dict[str, str]] = [
        {"litellm_credential_name": "house"},
        {"litellm_credential_name": "huose"},
        {"litellm_credential_name": "huose", "api_key": "sk-own"},
    ]
    entries = [{"model_name": "m", "litellm_params": {"model": "openai/m", **each}} for each in params]
    house = {"credential_name": "house", "credential_values": {"api_key": "sk-house"}}
    settings = load(tmp_path, {"model_list": entries, "credential_list": [house]})
    why = "credential_list does not have huose"
    assert settings.warnings == tuple(f"model_list[{number}].litellm_params: {why}" for number in (1, 2))
    assert [unsupported(entry) for entry in settings.model_list] == [None, why, None]


def test_s9_a_short_master_key_works_and_is_warned_about_beyond_loopback(tmp_path: Path) -> None:
    config = {"general_settings": {"master_key": "sk-1234"}}
    assert load(tmp_path, config).warnings == ()
    for host in ("0.0.0.0", "10.1.2.3"):
        (warning,) = load(tmp_path, config, None, **{"server.host": host}).warnings
        assert "general_settings.master_key is shorter than 8" in warning
        assert "sk-1234" not in warning
    config["general_settings"]["master_key"] = "sk-long-enough"
    assert load(tmp_path, config, None, **{"server.host": "0.0.0.0"}).warnings == ()


def test_s9_a_master_key_that_is_named_but_not_set_is_an_error(tmp_path: Path) -> None:
    """It keeps strangers out; LiteLLM would let everybody in."""
    config = {"general_settings": {"master_key": "os.environ/NOT_SET"}}
    message = refused(tmp_path, config)
    assert "general_settings.master_key" in message
    assert "NOT_SET" in message
    settings = load(tmp_path, {"litellm_settings": {}}, MASTER)
    assert [each.tenant for each in settings.auth.keys] == ["master"], "LiteLLM's own name for it"
    assert load(tmp_path, {"model_list": []}, MASTER).auth.keys == ()


@pytest.mark.parametrize(
    "config",
    [
        {"general_settings": {"database_url": "os.environ/DATABASE_URL"}},
        {"general_settings": {"database_url": "postgresql://litellm@db/litellm"}},
        {"environment_variables": {"DATABASE_URL": "postgresql://litellm@db/litellm"}},
    ],
)
def test_s9_litellms_database_is_not_ours(tmp_path: Path, config: Any) -> None:
    """`DATABASE_URL` counts only if no section of LiteLLM's names it; our own names always count."""
    given = {"DATABASE_URL": "postgresql://litellm@db/litellm"}
    assert load(tmp_path, config, given).storage.url.startswith("sqlite:")
    assert load(tmp_path, config, {}).storage.url.startswith("sqlite:")
    own = "postgresql://gateway@db/gateway"
    assert load(tmp_path, config, {**given, "GATEWAY_STORAGE_URL": own}).storage.url == own
    assert load(tmp_path, {**config, "storage": {"url": own}}, given).storage.url == own
    assert load(tmp_path, {"litellm_settings": {"drop_params": True}}, given).storage.url == given["DATABASE_URL"]


def test_s9_of_several_entries_those_that_can_be_served_do(tmp_path: Path) -> None:
    """As LiteLLM falls back on what is there: an entry whose key is not set does not hide the next of its name."""

    def entry(name: str, base: str, key: str) -> dict[str, Any]:
        return {"model_name": name, "litellm_params": {"model": "openai/m", "api_base": base, "api_key": key}}

    models = [
        entry("m", "http://127.0.0.1:1/v1", "os.environ/NOT_SET"),
        entry("m", "http://127.0.0.1:2/v1", "sk-2"),
        entry("m", "http://127.0.0.1:3/v1", "os.environ/NOT_SET"),
        entry("m", "http://127.0.0.1:4/v1", "sk-4"),
        entry("team/*", "http://127.0.0.1:1/v1", "os.environ/NOT_SET"),
        entry("team/*", "http://127.0.0.1:2/v1", "sk-2"),
        entry("n", "http://127.0.0.1:1/v1", "os.environ/NOT_SET"),
    ]
    settings = load(tmp_path, {"model_list": models, "router_settings": {"model_group_alias": {"alias": "m"}}})
    router = ConfiguredRouter(settings, ModelCatalogue())
    for name, places in {"m": (2, 4), "alias": (2, 4), "team/a": (2,)}.items():
        served = router.all_of(name, RequestCaller("a"))
        assert [each.api_base for each in served] == [f"http://127.0.0.1:{place}/v1" for place in places]
    assert router.names == ["m", "n", "alias"]
    with pytest.raises(ModelNotFound, match="the environment has no NOT_SET"):
        router.deployment("n", RequestCaller("a"))


@pytest.mark.parametrize(
    ("path", "value", "group"),
    [
        ("litellm_settings.ssl_verify", False, "not supported"),
        ("litellm_settings.json_logs", False, "replaced"),
        ("router_settings.enable_pre_call_checks", False, "replaced"),
        ("general_settings.store_prompts_in_spend_logs", False, "replaced"),
        ("general_settings.database_url", "os.environ/NOT_SET", "replaced"),
        ("router_settings.redis_host", "os.environ/NOT_SET", "replaced"),
        ("litellm_settings.cache", False, "kept"),
        ("router_settings.num_retries", 0, "kept"),
    ],
)
def test_s9_what_is_off_there_is_said_to_be_off_here_only_where_it_is(
    tmp_path: Path, path: str, value: Any, group: str
) -> None:
    """Certificates are checked here, conversations kept, what does not fit made to fit."""
    section, name = path.split(".")
    assert groups(load(tmp_path, {section: {name: value}})) == {path: group}


def test_s9_a_version_that_yaml_reads_as_a_date_is_a_text(tmp_path: Path) -> None:
    """LiteLLM's users write `api_version: 2024-10-21` without quotes."""
    params = "{model: azure/m, api_base: 'http://127.0.0.1:1', api_key: k, api_version: 2024-10-21}"
    settings = load(tmp_path, f"model_list: [{{model_name: m, litellm_params: {params}}}]")
    assert settings.model_list[0].litellm_params.api_version == "2024-10-21"


def test_what_litellm_sets_for_all_models_stands_with_each(tmp_path: Path) -> None:
    claude = {"model_name": "claude", "litellm_params": {"model": "anthropic/claude", "drop_params": False}}
    gemini = {"model_name": "gemini", "litellm_params": {"model": "gemini/gemini-2.5-pro"}}
    settings = load(tmp_path, {"model_list": [claude, gemini], "litellm_settings": {"drop_params": True}})
    found = [(entry.litellm_params.model_extra or {})["drop_params"] for entry in settings.model_list]
    assert (found, groups(settings)) == ([False, True], {"litellm_settings.drop_params": "kept"})
    settings = load(tmp_path, {"model_list": [MODEL], "litellm_settings": {"drop_params": True}})
    assert groups(settings) == {"litellm_settings.drop_params": "not supported"}


@pytest.mark.parametrize("section", ["litellm_settings", "router_settings", "general_settings"])
@pytest.mark.parametrize("value", [None, {}])
def test_empty_sections_of_litellm_say_nothing(tmp_path: Path, section: str, value: Any) -> None:
    settings = load(tmp_path, {section: value})
    assert (settings.warnings, settings.moved) == ((), ())


@pytest.mark.parametrize("value", ["text", ["a"]])
def test_a_section_of_litellm_that_is_no_mapping_is_an_error_not_a_crash(tmp_path: Path, value: Any) -> None:
    assert "general_settings" in refused(tmp_path, {"general_settings": value})


def test_a_slip_in_our_sections_stays_an_error_beside_litellms(tmp_path: Path) -> None:
    litellms = {"general_settings": {"alerting": ["slack"]}}
    assert "did you mean 'storage'?" in refused(tmp_path, {**litellms, "stroage": {"url": "x"}})
    assert "did you mean 'url'?" in refused(tmp_path, {**litellms, "storage": {"ulr": "x"}})
    assert "guardrials: unknown setting" in refused(tmp_path, {"guardrials": []}), "not LiteLLM's file"
    for name in ("warnings", "moved", "storage_is_named"):
        assert f": {name}: unknown setting" in refused(tmp_path, {name: []})


def test_included_files_are_read(tmp_path: Path) -> None:
    """LiteLLM's `include`: lists are appended, other sections replaced."""
    (tmp_path / "more.yaml").write_text(yaml.safe_dump({"model_list": [{**MODEL, "model_name": "n"}]}))
    settings = load(tmp_path, {"model_list": [MODEL], "include": ["more.yaml"]})
    assert [entry.model_name for entry in settings.model_list] == ["m", "n"]
    (tmp_path / "more.yaml").write_text(yaml.safe_dump({"include": ["more.yaml"]}))
    assert "include each other" in refused(tmp_path, {"include": ["more.yaml"]})
    (tmp_path / "more.yaml").unlink()
    with pytest.raises(ConfigurationError, match=r"more\.yaml"):
        load(tmp_path, {"include": ["more.yaml"]})


def test_an_alias_of_nothing_is_told(tmp_path: Path) -> None:
    settings = load(tmp_path, {"model_list": [MODEL], "router_settings": {"model_group_alias": {"a": "gone"}}})
    assert [entry.model_name for entry in settings.model_list] == ["m"]
    assert any("model_group_alias: a stand for models" in warning for warning in settings.warnings)
