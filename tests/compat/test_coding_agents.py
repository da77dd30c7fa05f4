"""Codex CLI and Claude Code themselves, at work in a scratch repository against a scripted model of a small window.

Each does the task with few tools and with all of its own, before an upstream that speaks its API and one of chats.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.audit import rows
from tests.compat import coding_task
from tests.compat.coding_agents import Ended, run_claude, run_codex
from tests.compat.coding_models import Chats, Messages, Responses
from tests.compat.coding_task import DONE, TASK, Job, Scratch, ScriptedModel
from tests.compat.running import KEY
from tests.support.answers import ok
from tests.support.command import gateway_command
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.provider_account import PICO
from tests.support.schemas import sqlite_url

pytestmark = pytest.mark.compat

MODEL = "claude-opus-4-8"
PRICES = {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "tokenizer": "o200k_base"}
APIS = {"codex": "responses", "claude": "messages"}
NOBODY = "01a20d63-c5d0-7801-8574-c1491255f920"
RUNS: dict[str, Callable[..., Ended]] = {"codex": run_codex, "claude": run_claude}


@dataclass(frozen=True)
class Case:
    """`speaks`: the upstream's API. `lean`: with few tools and instructions of a line.

    Lean runs read one long log in a step, others two shorter ones at once.
    """

    client: str
    speaks: str
    lean: bool

    @property
    def window(self) -> int:
        return 8_000 if self.lean else 32_000

    @property
    def raw(self) -> int:
        """Tokens that the last prompt has at least where nothing is left out."""
        return 60_000 if self.lean else 100_000

    @property
    def job(self) -> Job:
        return Job(days=10, lines=290, together=1) if self.lean else Job(days=30, lines=145, together=2)

    def __str__(self) -> str:
        return f"{self.client}-{self.speaks}-{'lean' if self.lean else 'full'}"


SPEAKING = {"codex": ("chats", "responses", "messages"), "claude": ("chats", "messages")}
CASES = [Case(client, api, lean) for client, apis in SPEAKING.items() for api in apis for lean in (True, False)]
FACES: dict[str, type[Chats | Responses | Messages]] = {"chats": Chats, "responses": Responses, "messages": Messages}


@dataclass(frozen=True)
class Run:
    """One client's run, and what was left of it."""

    case: Case
    ended: Ended
    scratch: Scratch
    model: ScriptedModel
    face: Chats | Responses | Messages
    gateway: GatewayProcess
    storage_url: str

    def get(self, path: str) -> Any:
        """What the gateway tells."""
        return ok(self.gateway.get(path, key=KEY))


@pytest.fixture(scope="module", params=CASES, ids=str)
def run(
    request: pytest.FixtureRequest,
    module_upstream: MockUpstream,
    module_start_gateway: GatewayFactory,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """A client that has done the task."""
    case: Case = request.param
    folder = tmp_path_factory.mktemp(str(case))
    scratch, model = coding_task.scratch(folder / "repository", case.job), ScriptedModel(case.job)
    module_upstream.clear()
    face = _face(case, model, module_upstream)
    config: dict[str, Any] = {
        "model_list": [_entry(case, module_upstream)],
        "auth": {"keys": [{"key": KEY, "tenant": "compat"}]},
        "storage": {"url": sqlite_url(folder)},
    }
    gateway = module_start_gateway(config)
    more = {"thinks": True} if (case.client, case.speaks) == ("codex", "messages") else {}
    ended = RUNS[case.client](gateway, MODEL, scratch.path, folder / "home", TASK, lean=case.lean, **more)
    return Run(case, ended, scratch, model, face, gateway, config["storage"]["url"])


def _face(case: Case, model: ScriptedModel, upstream: MockUpstream) -> Chats | Responses | Messages:
    return FACES[case.speaks](model, upstream)


def _entry(case: Case, upstream: MockUpstream) -> dict[str, Any]:
    """The model of the case. What it can write at most is what Claude Code asks for where nobody cuts that down."""
    params = {"model": f"openai/{MODEL}", "api_base": upstream.base_url, "api_key": "sk-upstream"}
    facts: dict[str, Any] = {"max_input_tokens": case.window, "max_output_tokens": 1000, **PRICES}
    if case.speaks == "messages":
        params = {"model": f"anthropic/{MODEL}", "api_base": upstream.url, "api_key": "sk-ant"}
        facts |= {"context_window": 200_000, "max_output_tokens": 64_000} if case.client == "claude" else {}
    return {"model_name": MODEL, "litellm_params": params, "model_info": facts}


def _outputs(run: Run) -> list[str]:
    """What each command printed, in the order of the calls, as the client's own transcript has it."""
    if run.case.client == "codex":
        items = [event["item"] for event in run.ended.events if event["type"] == "item.completed"]
        commands = [item for item in items if item["type"] == "command_execution"]
        return [item["aggregated_output"] for item in sorted(commands, key=_read_log)]
    told = [e for e in run.ended.events if e["type"] in ("assistant", "user")]
    blocks = [block for event in told for block in event["message"]["content"] if isinstance(block, dict)]
    printed = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    return [printed[block["id"]] for block in blocks if block["type"] == "tool_use"]


def _read_log(command: dict[str, Any]) -> int:
    """The day whose log a command reads; the last command reads none."""
    found = re.search(r"day-(\d+)\.log", command["command"])
    return int(found[1]) if found else 100


def _last_words(run: Run) -> str:
    if run.case.client == "codex":
        items = [event["item"] for event in run.ended.events if event["type"] == "item.completed"]
        return str([item["text"] for item in items if item["type"] == "agent_message"][-1])
    return str(run.ended.events[-1]["result"])


def test_s10_13_the_task_is_done(run: Run) -> None:
    """§10: over ten tool steps, of which the last needs what all before have shown."""
    assert run.scratch.found() == run.scratch.expected()
    assert _last_words(run) == DONE
    assert run.model.steps == run.model.last + 1 >= 12


def test_s10_13_the_transcript_is_right(run: Run) -> None:
    """§10: the client has seen every log whole, in order, whatever the window held."""
    outputs = [text.strip() for text in _outputs(run)]
    assert outputs[:-1] == [text.strip() for text in run.scratch.logs]
    assert outputs[-1].splitlines() == run.scratch.expected()


def test_s10_13_the_window_holds_where_a_raw_run_would_not(run: Run) -> None:
    """§4 I1, §10: each prompt is within the window, where all that the client sent at last is far beyond."""
    prompts = [prompt for prompt, _ in run.model.spent]
    assert min(prompts[1:]) + sum(map(coding_task.count_text, run.scratch.logs)) >= run.case.raw
    assert max(prompts) <= run.case.window
    assert run.face.refused == []


def test_s10_13_thoughts_go_up_again_where_they_may(run: Run) -> None:
    """§1.3, §10.4, §10.10: a provider that has thoughts gets back that of each step in the window, and refuses none,
    whether its client speaks its API or keeps them sealed. Anthropic's are bound to all that stands before them: where
    one log fills the window, each step changes what was seen before, and of these only the first stays where it was
    made."""
    if run.case.speaks == "chats":
        pytest.skip("a chat has no thoughts")
    assert run.face.thoughts == run.face.takes
    assert max(run.face.thoughts) > (0 if run.case.speaks == "messages" and run.case.lean else 1)
    assert run.face.refused == []


def test_s4_i2_each_step_sees_what_was_done_before_it(run: Run) -> None:
    """§4 I2, §10: however much a log takes of the window, the latest steps stand beside it, their logs reduced."""
    assert all(stood >= min(before, 5) for before, stood in enumerate(run.model.stood))


def test_s10_13_the_bill_balances(run: Run) -> None:
    """§6, §10: each call of the model is on the ledger once, under the API that it came by, at what it cost."""
    expected = [prompt + 2 * answer for prompt, answer in run.model.spent]
    found = rows(run.storage_url, "SELECT * FROM ledger ORDER BY created_at, request_id")
    assert {row["endpoint"] for row in found} == {APIS[run.case.client]}
    assert {row["status"] for row in found} == {"complete"}
    assert sorted(row["total_cost_picousd"] for row in found) == sorted(tokens * PICO // 10**6 for tokens in expected)
    audit = gateway_command("audit", "--config", str(run.gateway.config_path), directory=run.gateway.directory)
    assert audit.returncode == 0, audit.stdout + audit.stderr


def test_s10_13_the_history_holds_all_that_was_said(run: Run) -> None:
    """§3, §10: one conversation of one turn, its results whole. Codex says `store: false`, which leaves none (§2)."""
    conversations = {row["conversation_id"] for row in rows(run.storage_url, "SELECT conversation_id FROM ledger")}
    if run.case.client == "codex":
        assert conversations == {None}
        assert rows(run.storage_url, "SELECT body FROM messages") == []
        return
    (conversation,) = conversations
    items = run.get(f"/conversations/{conversation}/items?limit=100&order=asc")["data"]
    results = {item["call_id"]: item["output"].strip() for item in items if item["type"] == "function_call_output"}
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert [results[call] for call in calls] == [text.strip() for text in _outputs(run)]
    assert [item["role"] for item in items if item.get("role") in ("user", "assistant")] == ["user", "assistant"]
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


@pytest.mark.parametrize("speaks", ["chats", "responses"])
def test_s1_10_codex_with_nothing_but_its_base_url(
    module_upstream: MockUpstream, module_start_gateway: GatewayFactory, tmp_path: Path, speaks: str
) -> None:
    """§1.10: it offers all of its own tools, of which one is to be run by the upstream, and the task is done."""
    job = Job(days=3, lines=20, together=1)
    scratch, model = coding_task.scratch(tmp_path / "repository", job), ScriptedModel(job)
    module_upstream.clear()
    face = Chats(model, module_upstream) if speaks == "chats" else Responses(model, module_upstream)
    params = {"model": f"openai/{MODEL}", "api_base": module_upstream.base_url, "api_key": "sk-upstream"}
    gateway = module_start_gateway(
        {
            "model_list": [{"model_name": MODEL, "litellm_params": params, "model_info": PRICES}],
            "auth": {"keys": [{"key": KEY, "tenant": "compat"}]},
        }
    )
    ended = run_codex(gateway, MODEL, scratch.path, tmp_path / "home", TASK, bare=True)
    assert scratch.found() == scratch.expected()
    assert face.refused == []
    assert ended.events[-1]["type"] == "turn.completed"
    path = "/chat/completions" if speaks == "chats" else "/responses"
    offered = [str(each.body.get("tools")) for each in module_upstream.requests if each.path.endswith(path)]
    assert len(offered) > job.days
    assert all(("web_search" in tools) == (speaks == "responses") for tools in offered)
