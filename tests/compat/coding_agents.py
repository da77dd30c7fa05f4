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
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.http_server import Answer, Record, ThreadedHttpServer

SECONDS = 1800
"""Only what hangs is to end."""
PAGE = (REPOSITORY / "docs/clients.md").read_text("utf-8")
INSTRUCTIONS = "You are a coding agent. Work in the current folder with the shell, step by step, and end with a report."


@dataclass(frozen=True)
class Ended:
    """What a client printed, one JSON object a line, and whom else it asked for."""

    events: list[dict[str, Any]]
    strangers: list[str]


BARE = """model = "gpt-4o-mini"
model_provider = "gateway"

[model_providers.gateway]
name = "context-gateway"
base_url = "http://127.0.0.1:8000/v1"
env_key = "OPENAI_API_KEY"
"""
"""What names a provider to Codex, and nothing else."""


def run_codex(
    gateway: GatewayProcess,
    model: str,
    folder: Path,
    home: Path,
    task: str,
    *,
    lean: bool = True,
    bare: bool = False,
    thinks: bool = False,
) -> Ended:
    """One `codex exec`; a lean one has instructions that leave room in a small window, a bare one its address alone.
    `thinks`: it is told that the model does, of which it knows nothing."""
    home.mkdir()
    (home / "instructions.md").write_text(INSTRUCTIONS, "utf-8")
    more = f"model_instructions_file = {json.dumps(str(home / 'instructions.md'))}\n" if lean else ""
    more += "model_supports_reasoning_summaries = true\nmodel_reasoning_effort = 'medium'\n" if thinks else ""
    settings = _placed(BARE, gateway, model) if bare else more + _settings("Codex CLI", "toml", gateway, model)
    (home / "config.toml").write_text(settings, "utf-8")
    program = NODE_PROJECT / "node_modules/@openai/codex/bin/codex.js"
    options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    environment = {"CODEX_HOME": str(home), "OPENAI_API_KEY": KEY}
    return _run([str(node()), str(program), "exec", *options, task], environment, folder, home)


def run_claude(gateway: GatewayProcess, model: str, folder: Path, home: Path, task: str, *, lean: bool = True) -> Ended:
    """One `claude --print`; a lean one has one tool, which leaves room in a small window."""
    home.mkdir()
    program = NODE_PROJECT / "node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs"
    options = ["--output-format", "stream-json", "--verbose", "--allowedTools", "Bash"]
    options += ["--tools", "Bash"] if lean else []
    lines = _settings("Claude Code", "bash", gateway, model).splitlines()
    environment = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    return _run([str(node()), str(program), "--print", task, *options], environment, folder, home)


def _settings(heading: str, language: str, gateway: GatewayProcess, model: str) -> str:
    """What the page tells users of a client to set, for this gateway."""
    found = PAGE.partition(f"## {heading}\n\n```{language}\n")[2].partition("```")[0]
    return _placed(found, gateway, model)


def _placed(found: str, gateway: GatewayProcess, model: str) -> str:
    for ours, theirs in (("http://127.0.0.1:8000", gateway.url), ("gpt-4o-mini", model), ("sk-gateway", KEY)):
        found = found.replace(ours, theirs)
    return found


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
