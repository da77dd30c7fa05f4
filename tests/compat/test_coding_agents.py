"""Codex CLI and Claude Code themselves, at work in a scratch repository against a scripted model of a small window."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos.audit import rows
from tests.compat import coding_task
from tests.compat.coding_agents import Ended, run_claude, run_codex
from tests.compat.coding_task import DONE, RAW_TOKENS, STEPS, TASK, WINDOW, Scratch, ScriptedModel
from tests.compat.running import KEY
from tests.support.factory import GatewayFactory, sqlite_url
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.provider_account import PICO

pytestmark = pytest.mark.compat

MODEL = "coder"
INFO = {
    "max_input_tokens": WINDOW,
    "max_output_tokens": 1000,
    "tokenizer": "o200k_base",
    "input_cost_per_token": 1e-06,
    "output_cost_per_token": 2e-06,
}
APIS = {"codex": "responses", "claude": "messages"}
NOBODY = "01a20d63-c5d0-7801-8574-c1491255f920"
RUNS: dict[str, Callable[..., Ended]] = {"codex": run_codex, "claude": run_claude}


@dataclass(frozen=True)
class Run:
    """One client's run, and what was left of it."""

    client: str
    ended: Ended
    scratch: Scratch
    model: ScriptedModel
    gateway: GatewayProcess
    storage_url: str
    upstream: MockUpstream

    def get(self, path: str) -> Any:
        """What the gateway tells."""
        answer = httpx.get(
            self.gateway.base_url + path, headers={"authorization": f"Bearer {KEY}"}, timeout=30, trust_env=False
        )
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module", params=list(RUNS))
def run(
    request: pytest.FixtureRequest,
    module_upstream: MockUpstream,
    module_start_gateway: GatewayFactory,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """A client that has done the task."""
    folder = tmp_path_factory.mktemp(str(request.param))
    scratch = coding_task.scratch(folder / "repository", seed=18)
    module_upstream.clear()
    module_upstream.handler = model = ScriptedModel()
    params = {"model": f"openai/{MODEL}", "api_base": module_upstream.base_url, "api_key": "sk-upstream"}
    config: dict[str, Any] = {
        "model_list": [{"model_name": MODEL, "litellm_params": params, "model_info": INFO}],
        "auth": {"keys": [{"key": KEY, "tenant": "compat"}]},
        "storage": {"url": sqlite_url(folder)},
    }
    gateway = module_start_gateway(config)
    ended = RUNS[request.param](gateway, MODEL, scratch.path, folder / "home", TASK)
    return Run(request.param, ended, scratch, model, gateway, config["storage"]["url"], module_upstream)


def _outputs(run: Run) -> list[str]:
    """What each command printed, as the client's own transcript has it."""
    if run.client == "codex":
        items = [event["item"] for event in run.ended.events if event["type"] == "item.completed"]
        return [item["aggregated_output"] for item in items if item["type"] == "command_execution"]
    blocks = [b for e in run.ended.events if e["type"] == "user" for b in e["message"]["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def _last_words(run: Run) -> str:
    if run.client == "codex":
        items = [event["item"] for event in run.ended.events if event["type"] == "item.completed"]
        return str([item["text"] for item in items if item["type"] == "agent_message"][-1])
    return str(run.ended.events[-1]["result"])


def test_s10_13_the_task_is_done(run: Run) -> None:
    """§10: over ten tool steps, of which the last needs what all before have shown."""
    assert run.scratch.found() == run.scratch.expected()
    assert _last_words(run) == DONE
    assert run.model.steps == STEPS + 1


def test_s10_13_the_transcript_is_right(run: Run) -> None:
    """§10: the client has seen every log whole, in order, whatever the window held."""
    outputs = [text.strip() for text in _outputs(run)]
    assert outputs[:-1] == [text.strip() for text in run.scratch.logs]
    assert outputs[-1].splitlines() == run.scratch.expected()


def test_s10_13_the_window_holds_where_a_raw_run_would_not(run: Run) -> None:
    """§4 I1, §10: each prompt is within 8,000 tokens, where all that the client sent at last is 60,000."""
    assert sum(map(coding_task.count_text, run.scratch.logs)) >= RAW_TOKENS
    assert max(run.model.prompts) <= WINDOW
    assert not run.upstream.violations


def test_s10_13_the_bill_balances(run: Run) -> None:
    """§6, §10: each call of the model is on the ledger once, under the API that it came by, at what it cost."""
    expected = [each["prompt_tokens"] + 2 * each["completion_tokens"] for each in run.model.usages]
    found = rows(run.storage_url, "SELECT * FROM ledger ORDER BY created_at, request_id")
    assert {row["endpoint"] for row in found} == {APIS[run.client]}
    assert {row["status"] for row in found} == {"complete"}
    assert sorted(row["total_cost_picousd"] for row in found) == sorted(tokens * PICO // 10**6 for tokens in expected)


def test_s10_13_the_history_holds_all_that_was_said(run: Run) -> None:
    """§3, §10: one conversation of one turn, its results whole. Codex says `store: false`, which leaves none (§2)."""
    conversations = {row["conversation_id"] for row in rows(run.storage_url, "SELECT conversation_id FROM ledger")}
    if run.client == "codex":
        assert conversations == {None}
        assert rows(run.storage_url, "SELECT body FROM messages") == []
        return
    (conversation,) = conversations
    items = run.get(f"/conversations/{conversation}/items?limit=100&order=asc")["data"]
    results = [item["output"].strip() for item in items if item["type"] == "function_call_output"]
    assert results == [text.strip() for text in _outputs(run)]
    assert [item["role"] for item in items if item["type"] == "message"][-2:] == ["user", "assistant"]
    assert items[-1]["content"][0]["text"] == DONE


def test_s10_13_it_asks_nobody_else(run: Run) -> None:
    """The settings of docs/clients.md keep the client from calling out."""
    assert run.ended.strangers == []


def test_s10_1_codex_knows_its_own_tools_again(
    module_upstream: MockUpstream, module_start_gateway: GatewayFactory, tmp_path: Path
) -> None:
    """§10: its tools of sub-agents stand in a namespace; a model that has them by one name calls the right one."""
    module_upstream.clear()
    module_upstream.reply(tool_calls=[("multi_agent_v1__close_agent", {"target": NOBODY})])
    module_upstream.reply(text=DONE)
    (tmp_path / "repository").mkdir()
    gateway = module_start_gateway({"auth": {"keys": [{"key": KEY, "tenant": "compat"}]}})
    run_codex(gateway, "gpt-4o", tmp_path / "repository", tmp_path / "home", "Close it.")
    assert module_upstream.last.body["messages"][-1]["content"] == f"agent with id {NOBODY} not found"
