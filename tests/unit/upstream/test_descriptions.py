"""What servers say of their models (guarantee §4 I1): recorded shapes are understood, what cannot be is ignored; who
asks them, and who waits for the answer."""

import asyncio
from decimal import Decimal
from typing import Any

import httpx
import pytest

from gateway.core import jsons
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.http import model_info as told_facts
from gateway.upstream.http.model_info import (
    NOTHING_TOLD,
    DiscoveredModels,
    ModelDescription,
    described,
    listed,
    prices,
    window_of_props,
    window_of_ps,
    window_of_show,
)
from tests.support.hand_clock import HandClock
from tests.support.listed_models import LLAMA_CPP, LM_STUDIO, OLLAMA, OPENROUTER, VLLM

GROQ: dict[str, Any] = {
    "id": "llama-3.3-70b-versatile", "object": "model", "created": 1733447754, "owned_by": "Meta", "active": True,
    "context_window": 131072, "public_apps": None, "max_completion_tokens": 32768,
}  # fmt: skip
MISTRAL: dict[str, Any] = {
    "id": "mistral-large-latest",
    "owned_by": "mistralai",
    "max_context_length": 131072,
    "aliases": [],
}


@pytest.mark.parametrize(
    ("entry", "window", "output"),
    [
        (VLLM, 40960, None), (LLAMA_CPP, 4096, None), (OPENROUTER, 64000, 16384), (GROQ, 131072, 32768),
        (LM_STUDIO, 4096, None), (OLLAMA, None, None), (MISTRAL, 131072, None),
        ({"id": "x", "meta": {"n_ctx_train": 8192}}, 8192, None),
    ],
)  # fmt: skip
def test_s4_i1_windows_as_servers_write_them(entry: Any, window: int | None, output: int | None) -> None:
    found = described(entry)
    assert (found.window, found.max_output) == (window, output)


def test_s6_prices_as_openrouter_writes_them() -> None:
    assert described(OPENROUTER).prices == {
        "input_cost_per_token": Decimal("0.0000025"),
        "output_cost_per_token": Decimal("0.00001"),
        "cache_read_input_token_cost": Decimal("0.00000125"),
    }
    free = prices({"prompt": "0", "completion": "0"})
    assert free == {"input_cost_per_token": 0, "output_cost_per_token": 0}


@pytest.mark.parametrize(
    "number", ["-1", "1e999", "NaN", "Infinity", '"4096"', "true", "null", "[4096]", "{}", "0", "12", "4096.5", "10e30"]
)
def test_a_window_that_cannot_be_is_none(number: str) -> None:
    try:
        entry = jsons.loads(f'{{"id": "m", "max_model_len": {number}, "meta": {{"n_ctx_train": {number}}}}}'.encode())
    except jsons.JSONDecodeError:  # such a list is no JSON, and none is read
        return
    assert described(entry) == NOTHING_TOLD or described(entry).window is None


@pytest.mark.parametrize("price", ["-1", "-0.000001", "NaN", "Infinity", "1e9", "free", "", None, True, [], {}, 2.5])
def test_a_price_that_cannot_be_is_none(price: Any) -> None:
    """OpenRouter itself writes -1 where a router chooses the model; others tell prices of a million tokens."""
    assert prices({"prompt": price, "completion": "0.00001"}) == {}
    assert prices({"prompt": "0.00001", "completion": price}) == {}


def test_a_price_of_the_request_itself_cannot_be_told_by_tokens() -> None:
    assert prices({"prompt": "0.000001", "completion": "0.000001", "request": "0.005"}) == {}
    assert prices({"input": 0.2, "output": 0.6}) == {}


@pytest.mark.parametrize(
    "body", [None, 5, "x", [], {}, {"data": None}, {"data": {"id": "a"}}, {"data": [5, {"id": 5}]}]
)
def test_what_is_no_list_of_models_is_empty(body: Any) -> None:
    assert list(listed(body)) == []
    assert (window_of_props(body), window_of_ps(body, {"a"}), window_of_show(body)) == (None, None, None)


def test_a_bare_list_is_one() -> None:
    assert [entry["id"] for entry in listed([VLLM])] == ["Qwen/Qwen3-8B"]


def test_llama_cpps_slot() -> None:
    assert window_of_props({"default_generation_settings": {"n_ctx": 2048, "params": {}}, "total_slots": 4}) == 2048
    assert window_of_props({"default_generation_settings": "?"}) is None


def test_ollamas_own_api() -> None:
    ps = {"models": [{"name": "llama3.2:latest", "model": "llama3.2:latest", "size": 1, "context_length": 8192}]}
    assert window_of_ps(ps, {"llama3.2", "llama3.2:latest"}) == 8192
    assert window_of_ps(ps, {"qwen3"}) is None
    show: dict[str, Any] = {"model_info": {"general.architecture": "llama", "llama.context_length": 131072}}
    assert window_of_show(show) == 4096, "not loaded, Ollama's default holds, and it cuts without a word"
    assert window_of_show({**show, "parameters": 'stop "<|eot|>"\nnum_ctx                        16384\n'}) == 16384
    assert window_of_show({"model_info": {"bert.context_length": 512}}) == 512
    assert window_of_show({"model_info": {"bert.context_length": "512"}, "parameters": 5}) is None


def test_a_description_is_nothing_by_itself() -> None:
    assert ModelDescription() == NOTHING_TOLD


MODEL = ModelDeployment("m", "m", "openai/m", "http://127.0.0.1:1/v1", "sk-client", operator_key=False)

LONG = 3600.0
"""Seconds: a busy machine may stop for as long as a request really waits."""


class Upstream:
    """Lists its model once `ready` is set."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.asked = asyncio.Event()
        self.times = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.times += 1
        self.asked.set()
        await self.ready.wait()
        return httpx.Response(200, json={"object": "list", "data": [{"id": "m", "max_model_len": 8192}]})


async def test_first_requests_at_once_ask_once_and_all_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_facts, "MODEL_INFO_WAIT_SECONDS", LONG)
    upstream = Upstream()
    async with httpx.AsyncClient(transport=httpx.MockTransport(upstream)) as client:
        told = DiscoveredModels(client, HandClock())
        waiting = [asyncio.create_task(told.ask(MODEL)) for _ in range(8)]
        await upstream.asked.wait()
        assert not any(each.done() for each in waiting)
        upstream.ready.set()
        await asyncio.gather(*waiting)
        assert (told.known(MODEL).window, upstream.times) == (8192, 1)


async def test_nobody_waits_for_longer_than_it_is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that began so long ago holds nobody up; what it finds counts from then on."""
    monkeypatch.setattr(told_facts, "MODEL_INFO_WAIT_SECONDS", LONG)
    upstream, clock = Upstream(), HandClock()
    async with httpx.AsyncClient(transport=httpx.MockTransport(upstream)) as client:
        told = DiscoveredModels(client, clock)
        first = asyncio.create_task(told.ask(MODEL))
        await upstream.asked.wait()
        clock.seconds = LONG
        await told.ask(MODEL)
        assert told.known(MODEL).window is None
        upstream.ready.set()
        await first
        assert (told.known(MODEL).window, upstream.times) == (8192, 1)
