"""Estimates that reports calibrate, before an upstream that counts otherwise and is strict (guarantee §4 I1)."""

import json
from collections.abc import Callable
from math import ceil
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, function_tool, usage_of, user
from tests.support.documents import keeper, lamps, prompt_tokens, text_of, tokens
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.http_server import Record
from tests.support.mock_upstream import MockUpstream, Reply

WINDOW, RESERVED = 6000, 500
DOCUMENT = lamps(900)
MODEL_INFO = {"max_input_tokens": WINDOW - RESERVED, "context_window": WINDOW, "max_output_tokens": RESERVED}
TOOLS = [
    function_tool(
        f"look_{number}",
        description="Looks after a lamp and after its keeper. " * 4,
        parameters={"type": "object", "properties": {"lamp": {"type": "string", "description": "which one"}}},
    )
    for number in range(8)
]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "lamp", "schema": TOOLS[0]["function"]}}


def counting(factor: float, hidden: int = 0) -> Callable[[Json], int]:
    """Another tokenizer than the gateway's, and a prompt of the provider's own before each."""

    def count(body: Json) -> int:
        extras = sum(tokens(json.dumps(body[name])) for name in ("response_format",) if name in body)
        return ceil(factor * (prompt_tokens(body) + extras)) + hidden

    return count


@pytest.fixture
def strict(upstream: MockUpstream) -> MockUpstream:
    """Refuses whatever is larger than the model's input."""
    upstream.count_prompt = counting(1.4)
    upstream.context_limit = WINDOW - RESERVED
    return upstream


def started(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str | None = None, **info: Any
) -> GatewayProcess:
    params = {"model": "openai/some-llama", "api_base": upstream.base_url, "api_key": "sk-upstream"}
    entry = {"model_name": "llama", "litellm_params": params, "model_info": {**MODEL_INFO, **info}}
    context = {"low_water": 0.97}  # how full a window becomes shows how well it was counted
    storage = {"storage": {"url": storage_url}} if storage_url else {}
    return start_gateway({"model_list": [entry], "context": context, **storage})


def ask(gateway: GatewayProcess, lamp: int = 5, **body: Any) -> httpx.Response:
    body = {"messages": [user(f"Who is the keeper of lamp {lamp}?")], "attachments": [{"content": DOCUMENT}], **body}
    return gateway.post("/chat/completions", json={"model": "llama", **body})


def refused(upstream: MockUpstream) -> int:
    """How many prompts were too large."""
    return sum(upstream.count_prompt(chat.body) > (upstream.context_limit or 0) for chat in upstream.chats)


def share(upstream: MockUpstream) -> float:
    """How much of the model's input the last prompt took, by upstream's count."""
    return upstream.count_prompt(upstream.last.body) / (upstream.context_limit or 1)


@pytest.mark.in_turn("streamed")
@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_s4_i1_what_was_learned_outlives_a_restart(
    start_gateway: GatewayFactory, strict: MockUpstream, storage_url: str, streamed: bool
) -> None:
    """One refit for the first prompt of an unknown tokenizer; the next ones fit at once, also after a restart."""
    gateway = started(start_gateway, strict, storage_url)
    assert ask(gateway, stream=streamed).status_code == 200
    assert (refused(strict), len(strict.chats)) == (1, 2)
    assert ask(gateway, 6, stream=streamed).status_code == 200
    assert (refused(strict), len(strict.chats)) == (1, 3)
    assert 0.9 <= share(strict) <= 1
    gateway.restart()
    assert ask(gateway, 7, stream=streamed).status_code == 200
    assert (refused(strict), len(strict.chats)) == (1, 4)
    assert 0.9 <= share(strict) <= 1
    assert keeper(7) in text_of(strict.last.body)


@pytest.mark.chaos
def test_s4_i1_a_replica_that_starts_later_knows_it(
    start_gateway: GatewayFactory, strict: MockUpstream, storage_url: str
) -> None:
    first = started(start_gateway, strict, storage_url)
    ask(first)
    first.terminate()
    second = started(start_gateway, strict, storage_url)
    assert ask(second).status_code == 200
    assert refused(strict) == 1


@pytest.mark.chaos
def test_s4_i1_an_upstream_that_counts_less_is_made_use_of(start_gateway: GatewayFactory, strict: MockUpstream) -> None:
    """Slowly, and never over."""
    strict.count_prompt = counting(0.7)
    gateway = started(start_gateway, strict)
    ask(gateway)
    before = share(strict)
    for number in range(15):
        assert ask(gateway, number).status_code == 200
    assert before < 0.75
    assert share(strict) > before + 0.1
    assert not refused(strict)


@pytest.mark.in_turn("hidden")
@pytest.mark.parametrize(
    "body",
    [{}, {"tools": TOOLS}, {"response_format": SCHEMA}, {"tools": TOOLS, "response_format": SCHEMA, "n": 2}],
    ids=["bare", "tools", "schema", "both"],
)
@pytest.mark.parametrize("hidden", [0, 300])
def test_s4_i1_whatever_is_sent_with_it_fits_after_one_refit(
    start_gateway: GatewayFactory, strict: MockUpstream, body: Json, hidden: int
) -> None:
    """Tools and schema count, and so does what the provider puts before each prompt."""
    strict.count_prompt = counting(1.3, hidden)
    gateway = started(start_gateway, strict)
    for number in range(5):
        assert ask(gateway, number, **body).status_code == 200
    assert refused(strict) <= 1, "it learns from the first"
    assert share(strict) > 0.85


def test_s4_i1_a_refusal_without_figures_teaches_as_well(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """A provider that names no figures, and counts far more: after a few refusals its prompts fit."""
    count = counting(1.9)

    def answer(record: Record) -> Reply:
        if count(record.body) > WINDOW - RESERVED:
            return Reply(status=400, json={"error": {"message": "prompt is too long", "type": "invalid_request_error"}})
        return Reply(usage=usage_of(count(record.body), 2))

    upstream.handler = answer
    gateway = started(start_gateway, upstream)
    statuses = [ask(gateway, number).status_code for number in range(6)]
    assert statuses[-3:] == [200, 200, 200]
    upstream.requests.clear()
    assert ask(gateway).status_code == 200
    assert len(upstream.chats) == 1
    assert 0.8 <= count(upstream.last.body) / (WINDOW - RESERVED) <= 1


def test_s4_i1_small_prompts_do_not_shrink_the_window(start_gateway: GatewayFactory, strict: MockUpstream) -> None:
    """What a provider adds to each prompt dominates small ones; a large one is estimated by large ones alone."""
    strict.count_prompt = counting(1.0, hidden=200)
    gateway = started(start_gateway, strict)
    for number in range(5):
        assert ask(gateway, number, context={"max_input_tokens": 300}).status_code == 200
    strict.requests.clear()
    assert ask(gateway).status_code == 200
    assert share(strict) > 0.85


def test_s4_i1_the_models_own_tokenizer_learns_nothing_while_it_fits(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """An exact count stays exact whatever usage says; only an overflow shows that it is another's."""
    upstream.count_prompt = counting(1.4)
    gateway = started(start_gateway, upstream, tokenizer="o200k_base", max_input_tokens=WINDOW)
    first = ask(gateway, context={"max_input_tokens": 2000}).json()["response_metadata"]["context_utilization"]
    second = ask(gateway, context={"max_input_tokens": 4000}).json()["response_metadata"]["context_utilization"]
    assert first["tokens_used"] <= 2000
    assert prompt_tokens(upstream.last.body) <= second["tokens_used"] <= 4000


def test_s4_i1_of_two_refused_tries_nothing_is_charged_and_both_are_told(
    start_gateway: GatewayFactory, strict: MockUpstream
) -> None:
    """A refusal costs nothing; the bill is of the answer alone, and says that it was refitted."""
    gateway = started(start_gateway, strict)
    answer = ask(gateway).json()
    assert answer["usage"]["prompt_tokens"] == strict.count_prompt(strict.last.body)
    assert "refitted_after_upstream_overflow" in answer["response_metadata"]["context_utilization"]["warnings"]
