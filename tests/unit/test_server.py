"""Where a server that has an operator's key does not listen (guarantee §8), and a signal before it listens (§9)."""

import signal
import subprocess
import sys
from typing import Any

import pytest

from gateway.core.config.exposure import has_page, operators_keys, refusal
from gateway.core.config.settings import Settings
from gateway.operations.server import _what_is_served

OWN_KEY = {"upstream": {"api_key": "sk-own"}}
MODEL_KEY = {"model_list": [{"model_name": "m", "litellm_params": {"model": "m", "api_key": "sk-own"}}]}
KEYS = {"auth": {"keys": [{"key": "gateway-key", "tenant": "a"}]}}


HEADER_KEY = {
    "model_list": [{"model_name": "m", "litellm_params": {"model": "m", "extra_headers": {"Api-Key": "sk-own"}}}]
}
CLOUD = {"model_list": [{"model_name": "m", "litellm_params": {"model": "bedrock/claude"}}]}
KEYLESS = {"model_list": [{"model_name": "m", "litellm_params": {"model": "m", "extra_headers": {"X-Team": "a"}}}]}


@pytest.mark.parametrize(
    ("sections", "asked", "starts"),
    [
        ({}, "0.0.0.0", True),
        (KEYLESS, "0.0.0.0", True),
        ({"upstream": {"api_key": ""}}, "0.0.0.0", True),
        (OWN_KEY, "0.0.0.0", False),
        (MODEL_KEY, "0.0.0.0", False),
        (HEADER_KEY, "0.0.0.0", False),
        (CLOUD, "0.0.0.0", False),
        (OWN_KEY, "", False),
        (OWN_KEY, "::", False),
        (OWN_KEY, "gateway.example.org", False),
        (OWN_KEY, "10.0.0.5", False),
        (OWN_KEY, "127.0.0.2", True),
        (OWN_KEY, "::1", True),
        (OWN_KEY, "localhost", True),
        ({**OWN_KEY, **KEYS}, "0.0.0.0", True),
        ({**OWN_KEY, "auth": {"mode": "open"}}, "0.0.0.0", True),
        ({"auth": {"mode": "open"}}, "0.0.0.0", True),
    ],
)
def test_s8_an_operators_key_without_gateway_keys_is_for_loopback_alone(
    sections: dict[str, Any], asked: str, starts: bool
) -> None:
    reason = refusal(Settings.model_validate({**sections, "server": {"host": asked}}))
    assert (reason is None) is starts
    assert reason is None or ("auth.keys" in reason and "auth.mode: open" in reason and "sk-own" not in reason)


def test_s12_1_a_server_that_wants_keys_made_at_runtime_is_guarded() -> None:
    """`auth.mode: keys` says so without any in `auth.keys`; the page is there, for who logs in."""
    said = {**OWN_KEY, "auth": {"mode": "keys"}, "server": {"host": "0.0.0.0"}}
    settings = Settings.model_validate(said)
    assert refusal(settings) is None
    assert operators_keys(settings) == ""
    assert has_page(settings)


def test_the_keys_that_everyone_may_spend_are_named() -> None:
    both = Settings.model_validate({**OWN_KEY, **MODEL_KEY})
    assert operators_keys(both) == "upstream.api_key (OPENAI_API_KEY) and model_list (m)"
    assert operators_keys(Settings.model_validate({**OWN_KEY, **KEYS})) == ""


def test_the_first_line_of_the_log_shows_no_password_of_the_upstream() -> None:
    base = "https://me:hunt/er2@models.example/v1?api_key=hunter2"
    settings = Settings.model_validate({"upstream": {"api_base": base}})
    assert _what_is_served(settings)["upstream"] == "https://…@models.example/v1"


SIGNALLED_EARLY = """
import signal, sys, uvicorn
from gateway.core.config.settings import Settings
from gateway.operations.server import _serve_on, bound_sockets

run = uvicorn.Server.run
async def app(scope, receive, send):
    for event in ("startup", "shutdown"):
        await receive()
        print(event, flush=True)
        await send({"type": f"lifespan.{event}.complete"})
def signalled(self, sockets):
    signal.raise_signal(int(sys.argv[1]))
    run(self, sockets)
uvicorn.Server.run = signalled
sys.exit(_serve_on(Settings(), lambda *_: app, bound_sockets("127.0.0.1", 0)))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_s9_a_signal_just_before_the_server_listens_ends_it_in_order(number: int) -> None:
    """It came when uvicorn's own handlers were not there yet, and was swallowed: the process stayed."""
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED_EARLY, str(int(number))],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "startup\nshutdown\n"), ended.stderr
