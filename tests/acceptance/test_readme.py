"""What the README tells a newcomer to run, runs as it stands there (but for the port and the upstream)."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support import worked_example
from tests.support.factory import GatewayFactory
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream

README = (Path(__file__).parents[2] / "README.md").read_text()


def _run(gateway: GatewayFactory, upstream: MockUpstream, folder: Path, fence: str, *command: str) -> str:
    config = {"model_list": None, "upstream": {"api_base": upstream.base_url}}
    running = gateway(config)
    block = re.search(rf"```{fence}\n((?:curl|from openai).*?)```", README, re.DOTALL)
    assert block
    code = block.group(1).replace("http://127.0.0.1:8000", running.url)
    environment = {**os.environ, "OPENAI_API_KEY": "sk-readme"}
    done = subprocess.run([*command, code], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_curl(start_gateway: GatewayFactory, upstream: MockUpstream, tmp_path: Path) -> None:
    output = _run(start_gateway, upstream, tmp_path, "bash", "bash", "-c")
    assert "echo: Say hello." in output
    assert '"response_metadata"' in output
    assert upstream.chats[-1].headers["authorization"] == "Bearer sk-readme"


def test_the_first_sdk_call(start_gateway: GatewayFactory, upstream: MockUpstream, tmp_path: Path) -> None:
    (tmp_path / "contract.txt").write_text("Clause 14 says that the clause after it is void.")
    output = _run(start_gateway, upstream, tmp_path, "python", sys.executable, "-c")
    assert "'total_cost'" in output
    first, follow_up = upstream.chats
    assert "Clause 14 says" in first.body["messages"][-1]["content"]
    roles = [message["role"] for message in follow_up.body["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert "Clause 14 says" in follow_up.body["messages"][0]["content"]


def test_the_planned_call(start_gateway: GatewayFactory, upstream: MockUpstream, tmp_path: Path) -> None:
    """With the models that it names in `model_list`, and documents that do not fit."""
    upstream.handler = models = InternalModels(every("rag_extract", extraction_query="order 4411"))
    running = start_gateway({"context": {"planning": "auto"}})
    (tmp_path / "orders.json").write_text(worked_example.orders() * 4)
    (tmp_path / "contract.md").write_text(worked_example.contract())
    block = re.search(r"```python\n(answer = .*?)```", README, re.DOTALL)
    assert block
    client = f"from openai import OpenAI\nclient = OpenAI(base_url='{running.base_url}', api_key='sk-readme')\n"
    command = [sys.executable, "-c", client + block.group(1)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "rag_extract" in done.stdout
    assert len(models.planned) == 1
