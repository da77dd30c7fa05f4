"""Environment names of the classic API's settings (guarantee §9.4): they rank below everything else."""

from typing import Any

import pytest

from gateway.core.config.loading import CLASSIC_NAMES, ConfigurationError, environment_names, load_settings
from gateway.core.config.settings import Settings

CLASSIC = {
    "MAX_CONVERSATION_LENGTH": "15",
    "CONVERSATION_PERSISTENCE_ENABLED": "true",
    "CONVERSATION_STORAGE_DIR": "./storage/conversations",
    "CONVERSATION_AUTO_SAVE": "true",
    "CONTEXT_CACHE_TTL": "300",
    "SUMMARIZATION_ENABLED": "true",
    "SUMMARIZATION_THRESHOLD": "0.70",
    "TELEMETRY_ENABLED": "true",
    "CONTEXT_WINDOW_WARNING_THRESHOLD": "0.85",
}


def setting(settings: Settings, path: str) -> Any:
    section, key = path.split(".")
    return getattr(getattr(settings, section), key)


def test_all_names_are_read() -> None:
    settings = load_settings(None, CLASSIC)
    assert settings.storage.url == "sqlite:///./storage/conversations/context-gateway.db"
    assert settings.storage_is_named
    assert (settings.context.warning_threshold, settings.cache.conversation_ttl) == (0.85, 300)
    assert (settings.conversation.store, settings.server.metrics) == (True, "open")
    assert (settings.context.memory, settings.conversation.max_turns, settings.memory.threshold) == ("both", 15, 0.7)
    assert settings.max_turns == 15
    told = {fate.path: fate.group for fate in settings.moved}
    assert told.keys() == CLASSIC.keys() == {each.name for each in CLASSIC_NAMES}
    assert {fate.origin for fate in settings.moved} == {"environment"}
    assert {name for name, group in told.items() if group == "kept"} == {
        each.name for each in CLASSIC_NAMES if each.setting
    }


@pytest.mark.parametrize(
    ("name", "text", "path", "value"),
    [
        ("TELEMETRY_ENABLED", "false", "server.metrics", "off"),
        ("TELEMETRY_ENABLED", "0", "server.metrics", "off"),
        ("CONVERSATION_PERSISTENCE_ENABLED", "False", "conversation.store", False),
        ("SUMMARIZATION_ENABLED", "false", "context.memory", "extracts"),
        ("CONTEXT_CACHE_TTL", "3600", "cache.conversation_ttl", 600),
        ("CONVERSATION_STORAGE_DIR", "/srv/talks/", "storage.url", "sqlite:////srv/talks/context-gateway.db"),
    ],
)
def test_what_a_value_gives(name: str, text: str, path: str, value: Any) -> None:
    assert setting(load_settings(None, {name: text}), path) == value


@pytest.mark.parametrize(
    ("name", "text", "own", "path", "value"),
    [
        ("TELEMETRY_ENABLED", "false", {"GATEWAY_SERVER_METRICS": "key"}, "server.metrics", "key"),
        ("CONTEXT_CACHE_TTL", "300", {"GATEWAY_CACHE_CONVERSATION_TTL": "60"}, "cache.conversation_ttl", 60),
        ("CONVERSATION_STORAGE_DIR", "./x", {"DATABASE_URL": "sqlite:///y.db"}, "storage.url", "sqlite:///y.db"),
        ("CONVERSATION_PERSISTENCE_ENABLED", "no", {"GATEWAY_CONVERSATION_STORE": "true"}, "conversation.store", True),
    ],
)
def test_the_gateways_own_names_count_first(name: str, text: str, own: dict[str, str], path: str, value: Any) -> None:
    settings = load_settings(None, {name: text, **own})
    assert setting(settings, path) == value
    (fate,) = settings.moved
    assert (fate.group, fate.text) == ("replaced", f"`{path}`, which is set")


def test_a_file_and_the_command_line_count_first(tmp_path: Any) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("context: {warning_threshold: 0.5}\n")
    environ = {"CONTEXT_WINDOW_WARNING_THRESHOLD": "0.9", "TELEMETRY_ENABLED": "false"}
    settings = load_settings(str(path), environ, {"server.metrics": "open"})
    assert (settings.context.warning_threshold, settings.server.metrics) == (0.5, "open")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TELEMETRY_ENABLED", "perhaps"),
        ("CONTEXT_CACHE_TTL", "0"),
        ("CONTEXT_CACHE_TTL", "nan"),
        ("MAX_CONVERSATION_LENGTH", "15.5"),
        ("MAX_CONVERSATION_LENGTH", "1"),
        ("SUMMARIZATION_THRESHOLD", "70"),
        ("CONTEXT_WINDOW_WARNING_THRESHOLD", "eighty"),
        ("CONTEXT_WINDOW_WARNING_THRESHOLD", "80"),
        ("CONVERSATION_STORAGE_DIR", "a?b"),
    ],
)
def test_a_wrong_value_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"environment: {name}: "):
        load_settings(None, {name: text})


def test_an_empty_value_says_nothing() -> None:
    assert load_settings(None, dict.fromkeys(CLASSIC, "")) == load_settings(None, {})


def test_they_are_no_further_names_of_ours() -> None:
    """One name may not rank in two places."""
    assert not environment_names().keys() & CLASSIC.keys()
