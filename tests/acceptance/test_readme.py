"""What the README and the quickstarts tell a newcomer to run, runs as it stands there (but for port and upstream)."""

import json
import os
import re
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from tests.support import worked_example
from tests.support.command import gateway_command
from tests.support.factory import GatewayFactory
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess
from tests.support.http_server import Record
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.office import xlsx
from tests.support.page_examples import ADDRESS, INTEGRATING, MEMORY, README, ROOT, block, run
from tests.support.reply import Reply


def in_a_shell(code: str, running: GatewayProcess, folder: Path) -> str:
    """What a command line prints."""
    assert ADDRESS in code
    environment = {**os.environ, "OPENAI_API_KEY": "sk-readme"}
    called = ["bash", "-c", code.replace(ADDRESS, running.url)]
    done = subprocess.run(called, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def shipped(start_gateway: GatewayFactory, upstream: MockUpstream) -> GatewayProcess:
    """As `make run` serves, with config.yaml, but for the address of the default upstream and the SQLite file."""
    config = {**yaml.safe_load((ROOT / "config.yaml").read_text()), "storage": {}}
    return start_gateway({**config, "upstream": {"api_base": upstream.base_url}})


def test_the_example_of_files(start_gateway: GatewayFactory, upstream: MockUpstream, tmp_path: Path) -> None:
    """Started as the page says, with files kept here."""
    assert "`GATEWAY_FILES_SERVE=on make run`" in README
    config = {"upstream": {"api_base": upstream.base_url}, "files": {"serve": "on"}}
    (tmp_path / "budget.xlsx").write_bytes(xlsx("The harbour cost 1,234 in March."))
    code = (
        f'from openai import OpenAI\nclient = OpenAI(base_url="{ADDRESS}/v1")\n'
        + block(README, "Documents and files", "python").replace("client.chat", "print(client.chat", 1).rstrip()
        + ")"
    )
    run(code, start_gateway(config), tmp_path)
    assert "1,234" in json.dumps(upstream.last.body)


def test_the_first_curl(shipped: GatewayProcess, upstream: MockUpstream, tmp_path: Path) -> None:
    output = in_a_shell(block(README, "First request", "bash"), shipped, tmp_path)
    assert "echo: Say hello." in output
    assert '"response_metadata"' in output
    assert upstream.chats[-1].headers["authorization"] == "Bearer sk-readme"


def test_the_first_sdk_call(shipped: GatewayProcess, upstream: MockUpstream, tmp_path: Path) -> None:
    (tmp_path / "contract.txt").write_text("Clause 14 says that the clause after it is void.")
    output = run(block(README, "First request", "python"), shipped, tmp_path)
    assert "'total_cost'" in output
    first, follow_up = upstream.chats
    assert "Clause 14 says" in first.body["messages"][-1]["content"]
    roles = [message["role"] for message in follow_up.body["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert "Clause 14 says" in follow_up.body["messages"][0]["content"]


def test_the_example_of_pins(shipped: GatewayProcess, upstream: MockUpstream, tmp_path: Path) -> None:
    output = run(block(MEMORY, "Pins", "python"), shipped, tmp_path)
    assert "How do I get in?" in output
    assert "code 4711-B" in str(upstream.chats[-1].body["messages"])


def test_the_quickstart_of_the_sdk(shipped: GatewayProcess, upstream: MockUpstream, tmp_path: Path) -> None:
    """With the default planner of the default upstream, and documents that do not fit."""
    upstream.handler = models = InternalModels(every("rag_extract", extraction_query="order 4411"))
    (tmp_path / "orders.json").write_text(worked_example.orders() * 4)
    (tmp_path / "contract.md").write_text(worked_example.contract())
    output = run(block(INTEGRATING, "OpenAI SDK", "python"), shipped, tmp_path)
    assert "attachment:0:orders.json rag_extract" in output
    assert "conv_" in output
    assert len(models.planned) == 1


def test_the_quickstart_of_an_agent(shipped: GatewayProcess, upstream: MockUpstream, tmp_path: Path) -> None:
    """The model asks for a log, is sent what bears on the question, and both steps are on the sum of the bills."""
    call = {"id": "call_1", "type": "function", "function": {"name": "read_log", "arguments": '{"day": "2026-03-09"}'}}

    def answer(record: Record) -> Reply:
        results = [message for message in record.body["messages"] if message["role"] == "tool"]
        return Reply(text="At noon.") if results else Reply(tool_calls=[call])

    upstream.handler = answer
    output = run(block(INTEGRATING, "Agent loop", "python"), shipped, tmp_path)
    said, cost = output.rsplit(maxsplit=1)
    assert said == "At noon."
    assert Decimal(cost) > 0
    (_, result) = upstream.chats[-1].body["messages"][-2:]
    assert result["tool_call_id"] == "call_1"


def test_the_quickstart_of_a_local_model(upstream: MockUpstream, tmp_path: Path, fork_server: ForkServer) -> None:
    """`gateway check` takes the file, its model is managed by the window that it names, and other names are refused."""
    text = block(INTEGRATING, "Local model", "yaml").replace("http://127.0.0.1:8080/v1", upstream.base_url)
    (tmp_path / "local.yaml").write_text(text)
    command = re.search(r"gateway (check .*)", block(INTEGRATING, "Local model", "bash"))
    assert command
    done = gateway_command(*command.group(1).split(), directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    with GatewayProcess(yaml.safe_load(text), directory=tmp_path, fork_server=fork_server) as running:
        bodies = [{"model": model, "messages": [{"role": "user", "content": "hello"}]} for model in ("gpt-4o", "local")]
        curl = f"curl -s {ADDRESS}/v1/chat/completions -H 'Content-Type: application/json' -d "
        refused, answer = (json.loads(in_a_shell(f"{curl}'{json.dumps(body)}'", running, tmp_path)) for body in bodies)
    assert refused["error"]["code"] == "model_not_found"
    assert [chat.body["model"] for chat in upstream.chats] == ["qwen3"]
    assert answer["response_metadata"]["cost"]["total_cost"] == 0
    assert answer["response_metadata"]["context_utilization"]["context_window"] == 8192


def test_the_example_of_replays(shipped: GatewayProcess, upstream: MockUpstream, tmp_path: Path) -> None:
    """What a turn was sent, an estimate, and a replay with another instruction."""
    code = re.search(r"^```python\n(.*?)^```", (ROOT / "docs/replay.md").read_text(), re.DOTALL | re.MULTILINE)
    assert code
    output = run(code.group(1), shipped, tmp_path)
    assert "'Write to the board of the lamp works.'" in output
    assert "{'min': " in output
    assert "'status': 'complete'" in output
    system = [record.body["messages"][0]["content"] for record in upstream.chats]
    assert system == ["You write letters.", "You write short letters."]
