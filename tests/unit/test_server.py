"""Where the server listens (guarantee §8)."""

from typing import Any

import pytest

from gateway.config.settings import Settings
from gateway.server import bind_address

OWN_KEY = {"upstream": {"api_key": "sk-own"}}
MODEL_KEY = {"model_list": [{"model_name": "m", "litellm_params": {"model": "m", "api_key": "sk-own"}}]}
KEYS = {"auth": {"keys": [{"key": "gateway-key", "tenant": "a"}]}}


@pytest.mark.parametrize(
    ("sections", "asked", "bound"),
    [
        ({}, "0.0.0.0", "0.0.0.0"),
        (OWN_KEY, "0.0.0.0", "127.0.0.1"),
        (MODEL_KEY, "0.0.0.0", "127.0.0.1"),
        (OWN_KEY, "::", "127.0.0.1"),
        (OWN_KEY, "gateway.example.org", "127.0.0.1"),
        (OWN_KEY, "10.0.0.5", "127.0.0.1"),
        (OWN_KEY, "127.0.0.2", "127.0.0.2"),
        (OWN_KEY, "::1", "::1"),
        (OWN_KEY, "localhost", "localhost"),
        ({**OWN_KEY, **KEYS}, "0.0.0.0", "0.0.0.0"),
        ({**OWN_KEY, "auth": {"mode": "open"}}, "0.0.0.0", "0.0.0.0"),
        ({"auth": {"mode": "open"}}, "0.0.0.0", "0.0.0.0"),
    ],
)
def test_an_operators_key_without_gateway_keys_binds_to_loopback_only(
    sections: dict[str, Any], asked: str, bound: str
) -> None:
    assert bind_address(Settings.model_validate({**sections, "server": {"host": asked}})) == bound
