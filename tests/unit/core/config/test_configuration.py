"""`config.yaml` and the environment (guarantee §9): exact, and precise about what is wrong."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.core.config.loading import ConfigurationError, environment_names, load_settings
from gateway.core.config.setting_sections import words
from gateway.core.config.settings import SECTIONS, Settings
from tests.unit.core.config.configured import MODEL, load, refused

KEY = {"key": "12345678", "tenant": "a"}
TIMEOUT = "model_list[0].litellm_params.timeout"
PRICE = "model_list[0].model_info.input_cost_per_token"


def test_without_anything_it_serves() -> None:
    settings = load_settings(None, {})
    assert settings.storage.url.startswith("sqlite:///")
    assert (settings.cache.url, settings.server.host, settings.auth.keys) == (None, "127.0.0.1", ())
    assert settings.upstream.api_base == "https://api.openai.com/v1"
    assert not settings.has_operator_key()


@pytest.mark.parametrize(
    ("config", "where", "near"),
    [
        ({"storage": {"ulr": "x"}}, "storage.ulr", "'url'"),
        ({"stroage": {"url": "x"}}, "stroage", "'storage'"),
        ({"context": {"max_input_token": 5}}, "context.max_input_token", "'max_input_tokens'"),
        ({"server": {"prot": 5}}, "server.prot", "'port'"),
        ({"auth": {"keys": [{**KEY}, {"kye": "12345678", "tenant": "b"}]}}, "auth.keys[1].kye", "'key'"),
        ({"auth": {"keys": [{**KEY, "tennant": "a"}]}}, "auth.keys[0].tennant", "'tenant'"),
        ({"upstream": {"idel": 5}}, "upstream.idel", "'idle'"),
        ({"upstream": {"zzz": 1}}, "upstream.zzz", "api_base"),
    ],
)  # fmt: skip
def test_an_unknown_setting_names_file_path_and_the_nearest_right_name(
    tmp_path: Path, config: Any, where: str, near: str
) -> None:
    message = refused(tmp_path, config)
    assert f": {where}: unknown setting" in message
    assert near in message


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({"server": {"port": "many"}}, "server.port"),
        ({"server": {"port": 70_000}}, "server.port"),
        ({"context": {"mode": "fast"}}, "context.mode"),
        ({"context": {"history_share": 2}}, "context.history_share"),
        ({"context": {"warning_threshold": 2}}, "context.warning_threshold"),
        ({"upstream": {"api_key": "os.environ/NOT_SET_AT_ALL"}}, "upstream.api_key"),
        ({"storage": {"timeout": 0}}, "storage.timeout"),
        ({"auth": {"keys": [{"key": "short", "tenant": "a"}]}}, "auth.keys[0].key"),
        ({"auth": {"keys": [{"key": "12345678", "tenant": "a b"}]}}, "auth.keys[0].tenant"),
        ({"model_list": {"a": "b"}}, "model_list"),
        ({"model_list": [{"model_name": "m"}]}, "model_list[0].litellm_params"),
        ({"model_list": [{"model_name": "m", "litellm_params": {}}]}, "model_list[0].litellm_params.model"),
        ({"model_list": [{**MODEL, "model_info": {"input_cost_per_token": -1}}]}, PRICE),
        ({"model_list": [{**MODEL, "model_info": {"input_cost_per_token": True}}]}, PRICE),
        ({"storage": "sqlite"}, "storage"),
        ({"context": {"embedding_model": "other"}}, "context.embedding_model"),
        ({"model_list": [{**MODEL, "litellm_params": {"model": "m", "timeout": 0}}]}, TIMEOUT),
    ],
)  # fmt: skip
def test_an_unusable_value_is_named(tmp_path: Path, config: Any, where: str) -> None:
    message = refused(tmp_path, config)
    assert f"config.yaml: {where}: " in message
    assert not re.search(r"[a-z][A-Z]|dictionary", message.replace(str(tmp_path), "")), "no names of classes"


@pytest.mark.parametrize("wrong", ["FETCH /v1/files", "../files", "/v1/files/..", "POST https://x/v1", "a//b", "", 7])
def test_s9_a_relay_line_that_is_none(tmp_path: Path, wrong: Any) -> None:
    """What could not be meant is an error at start that names file and path."""
    assert ": server.relay[1]: " in refused(tmp_path, {"server": {"relay": ["POST batches", wrong]}})


def test_a_short_key_is_told_how_long_it_must_be(tmp_path: Path) -> None:
    message = refused(tmp_path, {"auth": {"keys": [{"key": "sk-1234", "tenant": "a"}]}})
    assert message.endswith("auth.keys[0].key: must have at least 8 characters")


@pytest.mark.parametrize("text", ["a: [", "- a", "text", "\x00"])
def test_a_file_that_is_no_mapping_says_so(tmp_path: Path, text: str) -> None:
    refused(tmp_path, text)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.yaml"):
        load_settings(str(tmp_path / "none.yaml"), {})


def test_an_empty_file_is_no_configuration(tmp_path: Path) -> None:
    assert load(tmp_path, "") == load_settings(None, {})


def test_a_secret_never_stands_in_an_error(tmp_path: Path) -> None:
    config = {"auth": {"keys": [{"key": "sk-very-secret", "tenant": "not good", "more": "sk-very-secret"}]}}
    assert "sk-very" not in refused(tmp_path, config)
    config = {"model_list": [{"model_name": "m", "litellm_params": {"model": "", "api_key": "sk-very-secret"}}]}  # type: ignore[dict-item]
    assert "sk-very" not in refused(tmp_path, config)


def test_names_of_the_environment_are_replaced_wherever_they_stand(tmp_path: Path) -> None:
    entry = {"model_name": "m", "litellm_params": {"model": "openai/m", "api_key": "os.environ/MY_KEY"}}
    settings = load(tmp_path, {"model_list": [entry], "storage": {"url": "os.environ/MY_DB"}},
                    {"MY_KEY": "sk-1", "MY_DB": "sqlite:///x.db"})  # fmt: skip
    key = settings.model_list[0].litellm_params.api_key
    assert key is not None
    assert key.get_secret_value() == "sk-1"
    assert settings.storage.url == "sqlite:///x.db"
    message = refused(tmp_path, {"storage": {"url": "os.environ/MY_DB"}}, {})
    assert "storage.url" in message
    assert "MY_DB" in message


def test_later_wins_file_environment_command_line(tmp_path: Path) -> None:
    config = {"server": {"port": 1, "host": "::1"}}
    assert load(tmp_path, config).server.port == 1
    assert load(tmp_path, config, {"GATEWAY_SERVER_PORT": "2"}).server.port == 2
    settings = load(tmp_path, config, {"GATEWAY_SERVER_PORT": "2"}, **{"server.port": 3})
    assert (settings.server.port, settings.server.host) == (3, "::1")


def test_every_setting_has_an_environment_name() -> None:
    names = environment_names()
    for section in SECTIONS:
        for key in Settings.model_fields[section].annotation.model_fields:  # type: ignore[union-attr]
            assert names.get(f"GATEWAY_{section}_{key}".upper()) == (section, key)
    assert names["DATABASE_URL"] == ("storage", "url")
    assert names["REDIS_URL"] == ("cache", "url")
    assert names["OPENAI_API_KEY"] == ("upstream", "api_key")


def test_values_of_the_environment_have_their_type() -> None:
    environ = {
        "GATEWAY_CONTEXT_MODE": "off", "GATEWAY_CONVERSATION_STORE": "false", "GATEWAY_CONTEXT_MAX_INPUT_TOKENS": "500",
        "GATEWAY_CONTEXT_EXPENSIVE_INPUT_COST_PER_TOKEN": "0.0000025", "OPENAI_API_KEY": "12345", "DATABASE_URL": "",
    }  # fmt: skip
    settings = load_settings(None, environ)
    assert (settings.context.mode, settings.conversation.store, settings.context.max_input_tokens) == (
        "off",
        False,
        500,
    )
    assert settings.context.expensive_input_cost_per_token == Decimal("0.0000025")
    assert settings.upstream.api_key is not None
    assert settings.upstream.api_key.get_secret_value() == "12345"
    assert settings.storage.url.startswith("sqlite:///")


def test_an_unusable_value_of_the_environment_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"server\.port"):
        load_settings(None, {"GATEWAY_SERVER_PORT": "many"})


@pytest.mark.parametrize("text", ["2.5e-06", "0.0000025", "1e-7", "0"])
def test_a_price_is_exactly_what_was_written(tmp_path: Path, text: str) -> None:
    entry = f"{{model_name: m, litellm_params: {{model: m}}, model_info: {{input_cost_per_token: {text}}}}}"
    config = f"model_list: [{entry}]"
    assert load(tmp_path, config).model_list[0].model_info.input_cost_per_token == Decimal(text)


@pytest.mark.parametrize("price", [-1e-6, float("nan"), float("inf"), "1e300", "cheap"])
@pytest.mark.parametrize("part", ["litellm_params", "model_info"])
def test_s6_no_price_makes_a_bill_that_is_below_0_or_cannot_be_written(tmp_path: Path, part: str, price: Any) -> None:
    """Whatever kind of token it is for, and in a table of context tiers as well."""
    tier = {"range": [0, 1000], "output_cost_per_token": price}
    for wrong in ({"cache_read_input_token_cost": price}, {"tiered_pricing": [tier]}):
        entry = {**MODEL, part: {"model": "m", **wrong}}
        message = refused(tmp_path, {"model_list": [entry]})
        assert f"config.yaml: model_list[0].{part}: prices must be numbers from 0 to " in message
        assert message.endswith(("_cost_per_token", "_token_cost"))


@pytest.mark.parametrize(
    "part",
    [{"litellm_params": {"model": "m", "rpm": True}}, {"model_info": {"mode": "chat", "max_input_tokens": True}}],
)
def test_true_is_no_number_in_a_model_list(tmp_path: Path, part: dict[str, Any]) -> None:
    assert "must be a number" in refused(tmp_path, {"model_list": [{**MODEL, **part}]})


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load_settings(None, {}).server.port = 5  # type: ignore[misc]


NEEDS = {("files", "store", "s3"): ("  s3:\n    bucket: b\n", {"GATEWAY_FILES_S3": '{"bucket": "b"}'})}
"""Words that count only with something beside them: in the file, and in the environment."""


def enumerated() -> list[tuple[str, str, str]]:
    """Every setting that is one of some words, with each of them; new ones are found by themselves."""
    found = []
    for section in SECTIONS:
        model = Settings.model_fields[section].annotation
        assert model is not None
        found += [(section, k, word) for k, f in model.model_fields.items() for word in words(f.annotation)]
    return found


def written(word: str) -> list[str]:
    """What a hand may type, bare and quoted."""
    return [word, word.upper(), word.capitalize(), f'"{word}"', f"'{word}'"]


def test_there_are_enumerated_settings() -> None:
    assert {("conversation", "match", "off"), ("auth", "mode", "open"), ("upstream", "unlisted", "relay")} <= set(
        enumerated()
    )
    assert {word for _, _, word in enumerated()} >= {"off", "never", "open", "key", "debug", "auto"}


@pytest.mark.parametrize(("section", "key", "word"), enumerated())
def test_every_word_that_is_documented_works_unquoted(tmp_path: Path, section: str, key: str, word: str) -> None:
    """YAML 1.1 takes a bare `off` (on, yes, no) for a boolean; in the environment nobody thinks of quotes."""
    needed, environment = NEEDS.get((section, key, word), ("", {}))
    for text in written(word):
        found = load(tmp_path, f"{section}:\n  {key}: {text}\n{needed}")
        assert getattr(getattr(found, section), key) == word, text
    for text in (word, word.upper()):
        found = load_settings(None, {f"GATEWAY_{section}_{key}".upper(): text, **environment})
        assert getattr(getattr(found, section), key) == word, text


def test_a_boolean_is_no_word_where_none_means_it(tmp_path: Path) -> None:
    assert "context.planning: Input should be 'auto'" in refused(tmp_path, "context:\n  planning: off\n")
    assert "context.mode: Input should be 'auto'" in refused(tmp_path, "context:\n  mode: on\n")


@pytest.mark.parametrize("text", ["@cf/planner", "claude: opus", "off", "12"])
def test_a_text_of_the_environment_is_no_yaml(text: str) -> None:
    assert load_settings(None, {"CONTEXT_PLANNER_MODEL": text}).context.planner_model == text
    assert load_settings(None, {"CONTEXT_PLANNER_MODEL": "null"}).context.planner_model is None


@pytest.mark.parametrize("text", ["POST /v1/batches, batches/*", "[POST /v1/batches, 'batches/*']"])
def test_a_list_of_the_environment(text: str) -> None:
    assert load_settings(None, {"GATEWAY_SERVER_RELAY": text}).server.relay == ("POST /v1/batches", "batches/*")


def test_what_is_no_list_says_so(tmp_path: Path) -> None:
    assert "auth.keys: must be a list" in refused(tmp_path, "auth: {keys: }")


def test_a_text_that_yaml_reads_as_a_number_says_so(tmp_path: Path) -> None:
    assert "auth.keys[0].tenant: must be a text: write it in quotes" in refused(
        tmp_path, "auth: {keys: [{key: long-enough, tenant: 42}]}"
    )


OWN = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize("base", [OWN, "http://localhost:8000/v1", "http://[::1]:8000/v1", "http://0.0.0.0:8000"])
def test_the_address_of_the_gateway_itself_is_not_its_upstream(tmp_path: Path, base: str) -> None:
    """Clients on the same machine find the gateway by `OPENAI_BASE_URL`."""
    settings = load_settings(None, {"OPENAI_BASE_URL": base, "OPENAI_API_BASE": "http://other/v1"})
    assert settings.upstream.api_base == "http://other/v1"
    assert any("OPENAI_BASE_URL is ignored" in warning for warning in settings.warnings)
    settings = load_settings(None, {"OPENAI_BASE_URL": base, "OPENAI_API_BASE": base})
    assert settings.upstream.api_base == "https://api.openai.com/v1"
    assert "upstream.api_base: is the address" in refused(tmp_path, {"upstream": {"api_base": base}})
    assert load_settings(None, {"OPENAI_BASE_URL": base}, {"server.port": 8001}).upstream.api_base == base
    with pytest.raises(ConfigurationError, match="GATEWAY_UPSTREAM_API_BASE"):
        load_settings(None, {"GATEWAY_UPSTREAM_API_BASE": base, "GATEWAY_SERVER_HOST": "0.0.0.0"})


@pytest.mark.parametrize(
    "base", ["http://10.0.0.7:8000/v1", "http://127.0.0.1:8080/v1", "http://vllm:8000/v1", "nothing"]
)
def test_other_addresses_are(base: str) -> None:
    assert load_settings(None, {"OPENAI_BASE_URL": base}).upstream.api_base == base


def test_of_two_names_for_the_upstreams_address_openais_counts() -> None:
    both = {"OPENAI_BASE_URL": "http://one/v1", "OPENAI_API_BASE": "http://two/v1"}
    settings = load_settings(None, both)
    assert settings.upstream.api_base == "http://one/v1"
    assert any("differ" in warning for warning in settings.warnings)
    settings = load_settings(None, {**both, "GATEWAY_UPSTREAM_API_BASE": "http://three/v1"})
    assert (settings.upstream.api_base, settings.warnings) == ("http://three/v1", ())
    assert load_settings(None, {"OPENAI_API_BASE": "http://two/v1"}).upstream.api_base == "http://two/v1"


def test_s9_a_misspelt_name_of_the_environment_is_told(tmp_path: Path) -> None:
    """It is no error: other programs may have names that begin like the gateway's."""
    others = {"GATEWAY_CONFIG": "x", "GATEWAY_SERVICE_HOST": "10.0.0.1", "GATEWAY_KEY": "k"}
    settings = load(tmp_path, {}, {"GATEWAY_CONTEXT_MOD": "off", "GATEWAY_SERVER_XYZZY": "1", **others})
    assert settings.warnings == (
        "environment: GATEWAY_SERVER_XYZZY: unknown setting, ignored",
        "environment: GATEWAY_CONTEXT_MOD: unknown setting, ignored; did you mean 'GATEWAY_CONTEXT_MODE'?",
    )
    assert load(tmp_path, {}, {**others, "GATEWAY_CONTEXT_MODE": "off"}).warnings == ()


def test_s9_a_misspelt_setting_of_a_model_is_told(tmp_path: Path) -> None:
    """It is no error: what is no setting is sent as a parameter, or is a fact that LiteLLM knows."""
    params = {"model": "openai/m", "api_bse": "http://127.0.0.1:9999/v1", "temperature": 0, "region_name": "eu"}
    facts = {"input_cost_per_tokn": 1, "input_cost_per_token_batches": 1, "mode": "chat"}
    raw = {"model_list": [{"model_name": "m", "litellm_params": params, "model_info": facts}]}
    assert load(tmp_path, raw, {}).warnings == (
        "model_list[0].litellm_params.api_bse: not a setting of the gateway; did you mean 'api_base'?",
        "model_list[0].model_info.input_cost_per_tokn: not a setting of the gateway; "
        "did you mean 'input_cost_per_token'?",
    )


def test_s7_a_gateway_without_any_key_for_its_upstream_says_so() -> None:
    """The model is not what is missing."""
    keyed = load_settings(None, {}, {"auth.mode": "keys"})
    assert "`upstream.api_key`" in keyed.unknown("gpt-4o", lambda _: True)
    assert "gpt-4o" in load_settings(None, {"OPENAI_API_KEY": "sk-1"}, {"auth.mode": "keys"}).unknown("gpt-4o", bool)


def nested(first: str, form: str) -> str:
    """Ten lines that stand for billions of values."""
    lines = (form.format(", ".join([f"*v{n}"] * 9)) for n in range(9))
    return "\n".join(f"v{n}: &v{n} {each}" for n, each in enumerate((first, *lines)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (nested("a", "[{}]"), "its aliases repeat more than 100,000 values"),
        (nested("{a: 1}", "{{<<: [{}]}}"), "its aliases repeat more than 100,000 values"),
        ("server: &a [*a]", "an alias stands inside what it names"),
        ("server: &a {host: {port: *a}}", "an alias stands inside what it names"),
        ("server: " + "[" * 1000, "nested too deeply"),
    ],
)
def test_s9_a_file_without_end_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert f"config.yaml: {said}" in refused(tmp_path, text)


def test_s9_what_stands_twice_by_an_alias_is_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("limits: {all: &a {limits: {rpm: 5}}, users: {ann: *a, bob: *a}}")
    settings = load_settings(str(path), {})
    assert [settings.limits.users[name].limits.rpm for name in ("ann", "bob")] == [5, 5]


def test_s9_a_key_that_stands_twice_in_a_file_is_warned_about(tmp_path: Path) -> None:
    """The first `model_list` of two was lost without a word."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "model_list: [{model_name: a, litellm_params: {model: a}}]\nserver: {port: 1, port: 2}\n"
        "model_list: [{model_name: b, litellm_params: {model: b}}]\n"
    )
    settings = load_settings(str(path), {})
    assert ([each.model_name for each in settings.model_list], settings.server.port) == (["b"], 2)
    text = "is set in line 1 and again in line 3: the last one counts"
    assert f"{path}: model_list {text}" in settings.warnings
    assert f"{path}: port is set in line 2 and again in line 2: the last one counts" in settings.warnings


@pytest.mark.parametrize(
    "text", ['auth: {keys: [{key: "sk-very-secret, tenant: a}]}', "upstream:\n  api_key: sk-very-secret: x"]
)
def test_a_line_that_is_no_yaml_is_named_not_shown(tmp_path: Path, text: str) -> None:
    """§7, §8: a message never contains a key."""
    message = refused(tmp_path, text)
    assert "sk-very" not in message
    assert "line " in message


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({"auth": 5, "general_settings": {"master_key": "sk-master-1"}}, "auth: "),
        ({"auth": {"keys": 5}, "general_settings": {"master_key": "sk-master-1"}}, "auth.keys: "),
        ({"upstream": 5, "litellm_settings": {"request_timeout": 5}}, "upstream: "),
        (
            {"model_list": [{"model_name": "m", "litellm_params": {"model": "m", "timeout": {"conect": 1}}}]},
            "model_list[0].litellm_params.timeout.conect: unknown setting; did you mean 'connect'?",
        ),
        ({"auth": {"keys": [KEY, {**KEY, "tenant": "b"}]}}, "auth: "),
    ],
)
def test_sections_that_are_none_are_named(tmp_path: Path, config: Any, where: str) -> None:
    message = refused(tmp_path, config)
    assert f": {where}" in message
    assert KEY["key"] not in message


def test_empty_sections_take_what_litellms_say(tmp_path: Path) -> None:
    text = "auth: {keys: }\nupstream:\ngeneral_settings: {master_key: sk-master-1}\nlitellm_settings: {timeout: 7}\n"
    settings = load(tmp_path, text)
    assert ([key.tenant for key in settings.auth.keys], settings.upstream.first_byte) == (["master"], 7)


@pytest.mark.parametrize("value", ["many", "{"])
def test_what_the_environment_says_is_not_blamed_on_the_file(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.yaml").write_text("server: {port: 1}")
    with pytest.raises(ConfigurationError, match=r"^environment: GATEWAY_SERVER_PORT: "):
        load_settings(str(tmp_path / "config.yaml"), {"GATEWAY_SERVER_PORT": value})
    with pytest.raises(ConfigurationError, match=r"^command line: server\.port: "):
        load_settings(str(tmp_path / "config.yaml"), {}, {"server.port": 70_000})


def test_a_model_that_the_environment_names_and_no_list_has_is_told_by_its_variable() -> None:
    with pytest.raises(ConfigurationError, match=r"^environment: GATEWAY_CONTEXT_EMBEDDING_MODEL: context\.embedding_"):
        load_settings(None, {"GATEWAY_CONTEXT_EMBEDDING_MODEL": "nope"})
