"""`config.yaml`: LiteLLM's shape and our sections; what is wrong is named (guarantee §9)."""

from pathlib import Path

import pytest

from tests.support.answers import user
from tests.support.command import config_file, gateway_command
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

WRONG: list[tuple[str, list[str]]] = [
    ("storage:\n  ulr: x\n", ["storage.ulr", "'url'"]),
    ("server:\n  port: many\n", ["server.port"]),
    ("storage:\n  url: mysql://localhost/x\n", ["mysql"]),
    ("upstream:\n  api_key: os.environ/NOT_SET_AT_ALL\n", ["upstream.api_key", "NOT_SET_AT_ALL"]),
    ("a: [\n", ["YAML"]),
]
"""One of each kind of mistake; `tests/unit/core/config` has all of them."""
RUNS = [("check", text, named) for text, named in WRONG] + [("serve", *WRONG[index]) for index in (0, 1, 3)]


@pytest.mark.parametrize(
    ("command", "text", "named"), RUNS, ids=[f"{run}: {text.splitlines()[-1].strip()}" for run, text, _ in RUNS]
)
def test_s9_a_wrong_setting_is_named(tmp_path: Path, command: str, text: str, named: list[str]) -> None:
    """An unknown key is an error that names file, path and the nearest right name; no traceback."""
    path = config_file(tmp_path, text)
    done = gateway_command(command, "--config", str(path), directory=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    assert "mysql" in named or str(path) in said
    for name in named:
        assert name in said


LITELLM = """
model_list:
  - model_name: house
    litellm_params:
      model: openai/gpt-4o
      api_base: {api_base}
      api_key: os.environ/HOUSE_KEY
      temperature: 0.25
      rpm: 10
    model_info:
      max_input_tokens: 1000
      input_cost_per_token: 0.000002
      output_cost_per_token: 4e-6
litellm_settings:
  drop_params: true
  request_timeout: 30
general_settings:
  master_key: os.environ/MASTER_KEY
"""


def test_s9_the_file_of_a_litellm_proxy(upstream: MockUpstream, tmp_path: Path, fork_server: ForkServer) -> None:
    """`model_list` works as it stands, `master_key` is a key; what has no equivalent is warned about."""
    path = config_file(tmp_path, LITELLM.format(api_base=upstream.base_url))
    env = {"HOUSE_KEY": "sk-house", "MASTER_KEY": "sk-master-key", "GATEWAY_CONFIG": str(path)}
    with GatewayProcess(None, env, directory=tmp_path, fork_server=fork_server) as gateway:
        body = {"model": "house", "messages": [user("hello")]}
        assert gateway.post("/chat/completions", json=body, key="sk-nobody").status_code == 401
        upstream.reply(text="x", usage={"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
        answer = gateway.post("/chat/completions", json=body, key="sk-master-key").json()
    assert upstream.last.headers["authorization"] == "Bearer sk-house"
    assert upstream.last.body["model"] == "gpt-4o"
    assert upstream.last.body["temperature"] == 0.25
    assert "rpm" not in upstream.last.body
    assert answer["response_metadata"]["cost"]["total_cost"] == 0.00004
    assert answer["response_metadata"]["context_utilization"]["budget_tokens"] == 750
    assert any("drop_params" in str(line.get("warning")) for line in gateway.log_lines())
    assert not any(key in gateway.log_text() for key in ("sk-house", "sk-master-key"))


PRODUCTION = Path(__file__).parents[1] / "unit/core/config/litellm/production.yaml"


def test_s9_a_litellm_file_is_accounted_for_in_three_groups(tmp_path: Path) -> None:
    """`gateway check` tells each setting once: kept, replaced or not supported."""
    env = {"LITELLM_MASTER_KEY": "sk-1234"}
    said = gateway_command("check", "--config", str(PRODUCTION), directory=tmp_path, env=env).stdout
    lines = [line for line in said.splitlines() if "LiteLLM, " in line]
    groups = [line[6:].partition(": ")[0] for line in lines]
    assert groups == sorted(groups, key=["LiteLLM, kept", "LiteLLM, replaced", "LiteLLM, not supported"].index)
    assert len(set(lines)) == len(lines) > 30
    kept = (
        "ok    LiteLLM, kept: general_settings.master_key: a key of tenant `master` with the roles `user` and `admin`"
    )
    assert kept in lines
    assert "FAIL  model gpt-4o: the environment has no AZURE_API_KEY_EU" in said.splitlines()
    assert ".:" not in said
    assert "sk-1234" not in said


def test_s9_a_litellm_file_serves(upstream: MockUpstream, tmp_path: Path, fork_server: ForkServer) -> None:
    """With the short key of LiteLLM's documents; a model without its key says which variable is missing, and the
    others serve."""
    env = {"LITELLM_MASTER_KEY": "sk-1234", "TEAM_BASE": upstream.base_url, "GATEWAY_CONFIG": str(PRODUCTION)}
    serving = GatewayProcess(None, env, directory=tmp_path, fork_server=fork_server)
    with serving as gateway:
        body = {"messages": [user("hello")]}
        assert gateway.post("/chat/completions", json={**body, "model": "team"}, key="sk-1234").status_code == 200
        refused = gateway.post("/chat/completions", json={**body, "model": "gpt-4o"}, key="sk-1234")
        assert refused.status_code == 404
        assert "AZURE_API_KEY_EU" in refused.json()["error"]["message"]
    assert any("guardrails" in str(line.get("warning")) for line in gateway.log_lines())
    assert "sk-1234" not in gateway.log_text()


@pytest.mark.parametrize("command", ["audit", "purge", "migrate"])
def test_s9_a_command_says_which_database_it_takes(tmp_path: Path, command: str) -> None:
    """Without a configuration that is a file in the working directory, which may be another than was meant."""
    said = gateway_command(command, directory=tmp_path).stderr
    assert f"sqlite:///context-gateway.db in {tmp_path}" in said
    said = gateway_command(command, directory=tmp_path, env={"GATEWAY_STORAGE_URL": "sqlite:///other.db"}).stderr
    assert "the storage is the default" not in said
