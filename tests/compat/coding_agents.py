"""Codex CLI and Claude Code as their users run them, each with a home of its own that says where its model is.

Whatever they would ask of anybody but the gateway goes to a proxy, which refuses it and keeps whom they asked for.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compat.running import KEY, NODE_PROJECT, node
from tests.support.gateway_process import GatewayProcess
from tests.support.http_server import Answer, Record, ThreadedHttpServer

SECONDS = 300
CODEX_CONFIG = """\
model = "{model}"
model_provider = "gateway"
model_context_window = 272000
check_for_update_on_startup = false
web_search = "disabled"
tool_output_token_limit = 20000
{more}
[model_providers.gateway]
name = "context-gateway"
base_url = "{base_url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"

[analytics]
enabled = false

[features]
plugins = false

[agents]
enabled = false
"""
INSTRUCTIONS = "You are a coding agent. Work in the current folder with the shell, step by step, and end with a report."


@dataclass(frozen=True)
class Ended:
    """What a client printed, one JSON object a line, and whom else it asked for."""

    events: list[dict[str, Any]]
    strangers: list[str]


def run_codex(gateway: GatewayProcess, model: str, folder: Path, home: Path, task: str) -> Ended:
    """One `codex exec`."""
    home.mkdir()
    (home / "instructions.md").write_text(INSTRUCTIONS, "utf-8")
    more = f"model_instructions_file = {json.dumps(str(home / 'instructions.md'))}"
    (home / "config.toml").write_text(CODEX_CONFIG.format(model=model, base_url=gateway.base_url, more=more), "utf-8")
    program = NODE_PROJECT / "node_modules/@openai/codex/bin/codex.js"
    options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    environment = {"CODEX_HOME": str(home), "OPENAI_API_KEY": KEY}
    return _run([str(node()), str(program), "exec", *options, task], environment, folder, home)


def run_claude(gateway: GatewayProcess, model: str, folder: Path, home: Path, task: str) -> Ended:
    """One `claude --print`."""
    home.mkdir()
    program = NODE_PROJECT / "node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs"
    options = ["--output-format", "stream-json", "--verbose", "--tools", "Bash", "--allowedTools", "Bash"]
    environment = {
        "ANTHROPIC_BASE_URL": gateway.url,
        "ANTHROPIC_AUTH_TOKEN": KEY,
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_SMALL_FAST_MODEL": model,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "1000",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return _run([str(node()), str(program), "--print", task, *options], environment, folder, home)


def _run(command: list[str], environment: dict[str, str], folder: Path, home: Path) -> Ended:
    with _refusing_proxy() as (url, strangers):
        proxies = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        kept = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
        done = subprocess.run(
            command,
            env=kept | proxies | environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return Ended(events, list(strangers))


@contextmanager
def _refusing_proxy() -> Iterator[tuple[str, list[str]]]:
    strangers: list[str] = []

    def refuse(record: Record) -> Answer:
        strangers.append(record.path)
        return Answer(status=403, headers=(), pieces=())

    server = ThreadedHttpServer(refuse)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}", strangers
    finally:
        server.stop()
