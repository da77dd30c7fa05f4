"""Secrets that stand outside the configuration (guarantee §12.19)."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.core.config.loading import ConfigurationError, load_settings
from gateway.core.config.settings import Settings
from gateway.operations.from_litellm import convert
from tests.unit.core.config.configured import load, refused

SECRET = "sk-of-the-vault-1234"
PACKAGE = """
def read(reference):
    if reference.endswith("broken"):
        raise PermissionError("sealed")
    return {"vault://kv/none": None}.get(reference, f"sk-of-the-vault-1234 {reference}")
"""


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with an entry point, installed as far as Python is concerned."""
    folder = tmp_path / "packages"
    info = folder / "our_vault-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "our_vault_of_tests.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-vault\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gateway.secrets]\nvault = our_vault_of_tests:read\n")
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("our_vault_of_tests", None)


def kept(tmp_path: Path, content: bytes = f"{SECRET}\n".encode()) -> str:
    file = tmp_path / "secret"
    file.write_bytes(content)
    return f"file://{file}"


def secrets_of(settings: Settings) -> list[Any]:
    headers = settings.telemetry.headers or {}
    return [
        settings.upstream.api_key,
        settings.auth.keys[0].key,
        settings.model_list[0].litellm_params.api_key,
        settings.files.s3.secret_key,
        headers["authorization"],
        settings.auth.oidc and settings.auth.oidc.client_secret,
    ]


@pytest.mark.parametrize("by", ["file", "vault", "environment"])
def test_s12_19_every_secret_may_stand_elsewhere(tmp_path: Path, vault: None, by: str) -> None:
    """Wherever a setting stands, also in lists, in mappings and in LiteLLM's own."""
    reference = {"file": kept(tmp_path), "vault": "vault://kv/gateway", "environment": "os.environ/OURS"}[by]
    oidc = {
        "issuer": "https://login.example",
        "client_id": "gateway",
        "client_secret": reference,
        "redirect_url": "https://gateway.example/ui/login/callback",
        "tenant": "acme",
        "default_roles": "viewer",
    }
    config = {
        "upstream": {"api_key": reference},
        "auth": {"keys": [{"key": reference, "tenant": "acme"}], "oidc": oidc},
        "model_list": [{"model_name": "m", "litellm_params": {"model": "openai/m", "api_key": reference}}],
        "files": {"s3": {"bucket": "b", "secret_key": reference}},
        "telemetry": {"headers": {"authorization": reference}},
    }
    found = load(tmp_path, config, {"OURS": SECRET})
    wanted = f"{SECRET} vault://kv/gateway" if by == "vault" else SECRET
    assert [each.get_secret_value() for each in secrets_of(found)] == [wanted] * 6


def test_s12_19_the_environment_may_name_a_file_too(tmp_path: Path) -> None:
    reference = kept(tmp_path)
    url = kept(tmp_path / "..", b"postgresql://u:p@db/gateway\r\n")
    found = load_settings(None, {"OPENAI_API_KEY": reference, "DATABASE_URL": url})
    assert found.upstream.api_key is not None
    assert found.upstream.api_key.get_secret_value() == SECRET
    assert found.storage.url == "postgresql://u:p@db/gateway"


def test_s12_19_litellms_master_key_may_stand_in_a_file(tmp_path: Path) -> None:
    found = load(tmp_path, {"general_settings": {"master_key": kept(tmp_path)}})
    assert [each.key.get_secret_value() for each in found.auth.keys] == [SECRET]


def test_s12_19_a_mark_of_byte_order_is_no_part_of_a_secret(tmp_path: Path) -> None:
    found = load(tmp_path, {"upstream": {"api_key": kept(tmp_path, b"\xef\xbb\xbf" + SECRET.encode())}})
    assert found.upstream.api_key is not None
    assert found.upstream.api_key.get_secret_value() == SECRET


@pytest.mark.parametrize("content", [f"{SECRET}\n{SECRET}", f"{SECRET}ä", f"\t{SECRET}"])
def test_s12_19_a_key_that_no_header_can_hold_is_named_and_not_shown(tmp_path: Path, content: str) -> None:
    params = {"model": "openai/m", "api_key": kept(tmp_path, content.encode())}
    said = refused(tmp_path, {"model_list": [{"model_name": "m", "litellm_params": params}]})
    assert "model_list[0].litellm_params.api_key: must hold printable ASCII" in said
    assert SECRET not in said


def test_s12_19_no_secret_has_a_line_break(tmp_path: Path) -> None:
    two = kept(tmp_path, f"{SECRET}\n{SECRET}".encode())
    said = refused(tmp_path, {"auth": {"keys": [{"key": two, "tenant": "a"}]}, "files": {"s3": {"secret_key": two}}})
    assert "auth.keys[0].key: must be one line" in said
    assert "files.s3.secret_key: must be one line" in said
    assert SECRET not in said


def test_s12_19_all_missing_secrets_are_named_at_once(tmp_path: Path) -> None:
    keys = [{"key": each, "tenant": "acme"} for each in ("os.environ/ONE", "os.environ/TWO", "file:///none")]
    said = refused(tmp_path, {"auth": {"keys": keys}, "upstream": {"api_key": "file:///nothing"}})
    for place in ("keys[0].key: the environment has no ONE", "keys[1].key: the", "keys[2].key: /none", "api_key: /no"):
        assert place in said


def test_s8_an_empty_key_of_a_model_says_what_to_write(tmp_path: Path) -> None:
    """The clients' own keys went to its provider."""
    params = {"model": "openai/m", "api_key": ""}
    said = refused(tmp_path, {"model_list": [{"model_name": "m", "litellm_params": params}]})
    assert "model_list[0].litellm_params.api_key: is empty: leave it out" in said


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"", "holds nothing"),
        (b"\n", "holds nothing"),
        (b"\xff\xfe", "UTF-8"),
        (b"x" * 70_000, "bytes"),
    ],
)
def test_s12_19_a_file_that_cannot_be_read_is_named_and_not_shown(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    reference = f"file://{tmp_path / 'none'}" if content is None else kept(tmp_path, content)
    said = refused(tmp_path, {"auth": {"keys": [{"key": reference, "tenant": "acme"}]}})
    assert "auth.keys[0].key: " in said
    assert why in said
    assert "xxx" not in said


def test_s12_19_a_path_that_is_not_from_the_root_says_so(tmp_path: Path) -> None:
    assert "file:///PATH" in refused(tmp_path, {"upstream": {"api_key": "file://secret"}})


@pytest.mark.parametrize(
    ("reference", "why"),
    [("vault://kv/broken", "PermissionError"), ("vault://kv/none", "gave no text"), ("safe://x", "there is: vault")],
)
def test_s12_19_a_vault_that_gives_nothing_is_named(tmp_path: Path, vault: None, reference: str, why: str) -> None:
    said = refused(tmp_path, {"upstream": {"api_key": reference}})
    assert "upstream.api_key: " in said
    assert why in said


def test_s12_19_addresses_and_other_texts_are_no_references(tmp_path: Path, vault: None) -> None:
    config = {
        "cache": {"url": "redis://localhost:6379/0"},
        "upstream": {"api_base": "https://api.example/v1"},
        "prompt_profiles": {"core": "chat://is what we speak"},
    }
    found = load(tmp_path, config)
    assert found.cache.url == "redis://localhost:6379/0"
    assert found.prompt_profiles.core == "chat://is what we speak"


def test_s12_19_a_conversion_refers_to_the_same_file_and_reads_none(tmp_path: Path) -> None:
    file = tmp_path / "litellm.yaml"
    file.write_text("general_settings: {master_key: file:///run/secrets/none}\n")
    assert "file:///run/secrets/none" in convert(str(file), {}).text


@pytest.mark.parametrize(
    ("auth", "why"),
    [
        ({"jwt": {"issuer": "http://login.example", "audience": "a", "tenant": "t"}}, "https://"),
        ({"jwt": {"issuer": "https://login.example", "tenant": "t"}}, "audience"),
        ({"jwt": {"issuer": "https://login.example", "audience": "a"}}, "tenant"),
        ({"jwt": {"issuer": "https://login.example", "audience": [], "tenant": "t"}}, "audience"),
        (
            {"jwt": {"issuer": "https://login.example", "audience": "a", "tenant": "t", "algorithms": ["HS256"]}},
            "algorithms",
        ),
        (
            {"jwt": {"issuer": "https://login.example", "audience": "a", "tenant": "t", "algorithms": ["none"]}},
            "algorithms",
        ),
        ({"oidc": {"issuer": "https://login.example", "client_id": "g", "tenant": "t"}}, "redirect_url"),
    ],
)
def test_s12_17_settings_that_would_let_strangers_in_are_refused(
    tmp_path: Path, auth: dict[str, Any], why: str
) -> None:
    assert why in refused(tmp_path, {"auth": auth})


def test_s12_18_a_redirect_leads_to_the_pages_own_path(tmp_path: Path) -> None:
    oidc = {"issuer": "https://login.example", "client_id": "g", "tenant": "t", "default_roles": ["viewer"]}
    for url in ("https://gateway.example/", "http://gateway.example/ui/login/callback", "/ui/login/callback"):
        assert "redirect_url" in refused(tmp_path, {"auth": {"oidc": {**oidc, "redirect_url": url}}})


def test_what_cannot_be_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match=r"auth\.jwt"):
        load_settings(None, {"GATEWAY_AUTH_JWT": "{issuer: 7}"})
