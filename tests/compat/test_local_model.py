"""The demo's small local model as planner and summarizer: its answers are often poor, and no request may suffer.

What is asserted holds whatever the model says: the answer comes and keeps to its budget, the bill adds up, and it is
told what became of the model's words. How good they are is another matter.
"""

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from tests.support.answers import Json, exact, used, user
from tests.support.documents import text_of
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.process import free_port, wait_until

pytestmark = pytest.mark.compat
SCRIPT = REPOSITORY / "deploy" / "demo" / "local_model.py"
HANDBOOK = (REPOSITORY / "deploy" / "demo" / "handbook.md").read_text()
CHAPTERS = HANDBOOK.split("\n## ")
PROMPT_PRICE, COMPLETION_PRICE = Decimal("0.00000005"), Decimal("0.0000002")
SECONDS = 240
"""Two cores read a prompt at some hundred tokens a second."""
SUMMARY = {"models": {"summarizer": "smollm2"}, "planning": "always", "max_input_tokens": 1800}
NO_SUMMARY = {"summary_not_shorter", "summarizer_empty", "summarizer_cut", "summarizer_over_time_ceiling"}
SHORT = "smollm2-short"
"""The same, known with so small a window that a chapter has to be summarized in pieces."""
QUESTION = "How long do the batteries carry the light alone?"


@pytest.fixture(scope="module")
def local_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of SmolLM2 on llama.cpp's server."""
    port, log = free_port(), tmp_path_factory.mktemp("model") / "model.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "--port", str(port)], stdin=subprocess.PIPE, stdout=out, stderr=out
        )
    try:
        wait_until(lambda: process.poll() is not None or _answers(port), "the local model")
        assert process.poll() is None, f"run `make compat`: {_end(log)}"
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.communicate(timeout=30)  # closes its standard input, by which it ends


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False, timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def _end(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


@pytest.fixture(scope="module")
def module_local(module_start_gateway: GatewayFactory, local_model: str) -> GatewayProcess:
    """`small` and its planner `gpt-4o-mini` are scripted, `smollm2` is real."""
    factory = module_start_gateway
    params = {"model": "openai/smollm2", "api_base": local_model, "api_key": "local"}
    info = {
        "max_input_tokens": 8192,
        "max_output_tokens": 512,
        "tokenizer": "o200k_base",
        "token_margin": 1.3,
        "input_cost_per_token": float(PROMPT_PRICE),
        "output_cost_per_token": float(COMPLETION_PRICE),
    }
    patience = {"planner_timeout": SECONDS, "summarizer_timeout": SECONDS, "planning_max_seconds": SECONDS}
    listed = factory(start=False).config
    assert listed is not None
    real = {"model_name": "smollm2", "litellm_params": params, "model_info": info}
    short = {**real, "model_name": SHORT, "model_info": {**info, "max_input_tokens": 2300}}
    return factory(
        {
            "model_list": [*listed["model_list"], real, short],
            "context": {"planning": "auto", "planner_prompt_chars": 2000, **patience},
        }
    )


@pytest.fixture
def local(module_local: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway before `upstream` and the local model."""
    return module_local


def ask(gateway: GatewayProcess, attachments: list[Json], context: Json, question: str = QUESTION) -> Json:
    """The answer, after what holds of every answer."""
    body = {"model": "small", "messages": [user(question)], "attachments": attachments, "context": context}
    answer = gateway.post("/chat/completions", json=body, timeout=2 * SECONDS)
    assert answer.status_code == 200, answer.text
    found: Json = exact(answer.text)
    told, cost = used(found), found["response_metadata"]["cost"]
    assert told["tokens_used"] <= told["budget_tokens"]
    assert told["llm_planning_used"] or told["fallback_reason"]
    assert cost["total_cost"] == cost["prompt_cost"] + cost["completion_cost"] + cost["planning_cost"]
    assert cost["planning_cost"] == told["planning_cost"]["total_cost"]
    return found


def _price(usage: Json) -> Decimal:
    return Decimal(usage["prompt_tokens"]) * PROMPT_PRICE + Decimal(usage["completion_tokens"]) * COMPLETION_PRICE


@pytest.mark.parametrize(
    "attachments",
    [
        [{"title": "Handbook", "content": HANDBOOK}],
        [{"title": f"Chapter {n}", "content": chapter} for n, chapter in enumerate(CHAPTERS[:8])],
    ],
    ids=["one document", "eight documents"],
)
def test_s5_a_small_real_model_plans(local: GatewayProcess, upstream: MockUpstream, attachments: list[Json]) -> None:
    """Followed or not, its one call is on the bill by what it reported."""
    context = {"models": {"context_planner": "smollm2"}, "planning": "always", "max_input_tokens": 1500}
    told = used(ask(local, attachments, context))
    planner = told["planning_usage"]["planner"]
    assert planner["calls"] == 1
    assert planner["prompt_tokens"] > 200
    assert told["planning_cost"]["planner_cost"] == _price(planner)
    assert told["artifacts_processed"]


def test_s5_a_small_real_model_summarizes(local: GatewayProcess, upstream: MockUpstream) -> None:
    """What it made stands in the context under its label and is paid for once; if it made none, that is told."""
    upstream.handler = models = InternalModels(every("summarize", summarization_focus="batteries and light"))
    attachments = [{"title": "Handbook", "content": HANDBOOK[:9000]}]
    first, second = (ask(local, attachments, SUMMARY) for _ in range(2))
    summarizer = used(first)["planning_usage"]["summarizer"]
    assert summarizer["calls"] >= 1
    assert used(first)["planning_cost"]["summarizer_cost"] == _price(summarizer)
    made = [record for record in used(first)["artifacts_processed"] if record["strategy"] == "summarize"]
    if used(first)["fallback_reason"] is None:
        assert made
    assert made or used(first)["fallback_reason"] in NO_SUMMARY
    assert used(second)["cache_stats"]["hits"] >= len(made)
    for record in made:
        assert record["processed_size_chars"] < record["original_size_chars"]
        assert record["artifact_id"] in text_of(models.answered[0])


def test_s5_a_small_real_model_summarizes_what_is_longer_than_its_window(
    local: GatewayProcess, upstream: MockUpstream
) -> None:
    """By map and reduce: a call for each piece, and one for what they came to."""
    upstream.handler = InternalModels(every("summarize", summarization_focus="batteries and light"))
    context = {**SUMMARY, "models": {"summarizer": SHORT}, "max_input_tokens": 1500}
    told = used(ask(local, [{"title": "Handbook", "content": HANDBOOK[:7500]}], context))
    summarizer = told["planning_usage"]["summarizer"]
    assert summarizer["calls"] >= 2
    assert told["planning_cost"]["summarizer_cost"] == _price(summarizer)
    assert told["fallback_reason"] in {None, *NO_SUMMARY}
