"""Keys and tenants (guarantee §8)."""

from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.answers import conversation_of, ok, user
from tests.support.command import config_file, gateway_command
from tests.support.factory import ClientFactory
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import free_port

ASK: Any = [user("hello")]
ALICE, BOB, ALICE_TOO, HEIR = "gw-alice-key-1", "gw-bob-key-22", "gw-alice-key-3", "gw-heir-key-4"
KEYS = [
    {"key": ALICE, "tenant": "alice"},
    {"key": BOB, "tenant": "bob"},
    {"key": ALICE_TOO, "tenant": "alice"},
    {"key": HEIR, "tenant": "anonymous"},
]


def test_s8_a_key_may_have_the_tenant_of_callers_without_one(guarded: GatewayProcess) -> None:
    """It keeps what was stored before there were keys, and lists all of it as any key lists its tenant's."""
    with guarded.http(HEIR) as client:
        for path in ("/conversations", "/chat/completions", "/memory", "/memory/customer/7/conversations"):
            assert client.get(path).json()["object"] == "list", path


def test_s8_without_keys_the_clients_token_goes_to_the_default_upstream(
    own_key_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """The client's own bearer token goes up, and tenants are told apart by it."""
    client = make_client(own_key_gateway, "sk-mine")
    answer = client.chat.completions.create(model="gpt-4o", messages=ASK)
    assert upstream.last.headers["authorization"] == "Bearer sk-mine"
    body = {"conversation": conversation_of(answer)}
    with pytest.raises(openai.NotFoundError):
        make_client(own_key_gateway, "sk-yours").chat.completions.create(model="gpt-4o", messages=ASK, extra_body=body)
    client.models.list()
    assert upstream.requests[-1].headers["authorization"] == "Bearer sk-mine"


def test_s8_no_token_is_anonymous(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Without a token the tenant is "anonymous", and no authorization goes up."""
    answer = ok(own_key_gateway.post("/chat/completions", json={"model": "gpt-4o", "messages": ASK}, key=None))
    assert "authorization" not in upstream.last.headers
    again = {"model": "gpt-4o", "messages": ASK, "conversation": answer["conversation"]["id"]}
    assert own_key_gateway.post("/chat/completions", json=again, key=None).status_code == 200
    assert own_key_gateway.post("/chat/completions", json=again, key="sk-someone").status_code == 404


def test_s8_keys_are_nowhere_in_the_clear(module_guarded: GatewayProcess, guarded: GatewayProcess) -> None:
    """Neither in the log nor in the database file."""
    assert not any(key in guarded.log_text() for key in (ALICE, BOB, "sk-upstream"))
    for file in guarded.directory.glob("gateway.db*"):
        assert not any(key.encode() in file.read_bytes() for key in (ALICE, BOB, "sk-upstream"))


def test_s8_an_operators_key_is_not_shown_to_the_network(tmp_path: Path) -> None:
    """Asked to listen beyond loopback without `auth.keys`, by whatever way: it does not start, and its last line says
    what to set. `gateway check` says it, too."""
    config = config_file(tmp_path, '{"server": {"host": "0.0.0.0"}, "model_list": []}')
    key = {"OPENAI_API_KEY": "sk-operator"}
    ways: list[tuple[list[str], dict[str, str]]] = [
        (["serve"], {**key, "GATEWAY_SERVER_HOST": "0.0.0.0"}),
        (["serve", "--host", "::"], key),
        (["serve", "--host", ""], key),
        (["serve", "--config", str(config)], key),
        (["check", "--config", str(config)], key),
    ]
    for arguments, env in ways:
        port = ["--port", str(free_port())] if arguments[0] == "serve" else []
        done = gateway_command(*arguments, *port, directory=tmp_path, env=env)
        assert done.returncode != 0, arguments
        said = (done.stderr or done.stdout).strip().splitlines()
        line = said[-1] if arguments[0] == "serve" else "\n".join(said)
        assert "auth.keys" in line
        assert "auth.mode: open" in line
        assert "sk-operator" not in done.stdout + done.stderr


def test_s8_everyones_use_of_an_operators_key_is_said_at_the_start(
    upstream: MockUpstream, tmp_path: Path, fork_server: ForkServer
) -> None:
    """On loopback it is spent for everybody: one line says so, and none with `auth.keys` of the environment."""
    env = {"OPENAI_API_KEY": "sk-operator", "OPENAI_API_BASE": upstream.base_url}
    for keys, lines in (({}, 1), ({"GATEWAY_AUTH_KEYS": f"[{{key: {ALICE}, tenant: alice}}]"}, 0)):
        directory = tmp_path / str(lines)
        directory.mkdir()
        with GatewayProcess(None, env | keys, directory=directory, fork_server=fork_server) as gateway:
            said = [line for line in gateway.log_lines() if line["event"] == "operators_key_is_everyones"]
            assert len(said) == lines
            assert all("OPENAI_API_KEY" in line["reason"] and "auth.keys" in line["reason"] for line in said)
            with gateway.http(ALICE if keys else None) as client:
                assert client.get("/models").status_code == 200
            assert gateway.get("/models", key="sk-other").status_code == (401 if keys else 200)
