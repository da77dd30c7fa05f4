"""A model whose window or price nobody knows: its own upstream is asked, so that a local server is managed by its
address alone (guarantee §4 I1)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.answers import ok, user
from tests.support.command import config_file, gateway_command
from tests.support.documents import prompt_tokens
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess
from tests.support.listed_models import LLAMA_CPP, LM_STUDIO, OLLAMA, OPENROUTER, VLLM
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import wait_until

LIST = "GET /v1/models"
LONG = "The ferry leaves at nine. " * 4000


def lists(upstream: MockUpstream, *entries: dict[str, Any], **reply: Any) -> None:
    upstream.routes[LIST] = Reply(json={"object": "list", "data": list(entries)}, **reply)


def asked(upstream: MockUpstream, path: str = "/v1/models") -> list[Any]:
    return [record for record in upstream.requests if record.path == path]


@pytest.fixture
def gateway(upstream: MockUpstream, tmp_path: Path, fork_server: ForkServer) -> Iterator[GatewayProcess]:
    env = {"OPENAI_BASE_URL": upstream.base_url}
    with GatewayProcess(None, env, directory=tmp_path, fork_server=fork_server) as started:
        yield started


def chat(gateway: GatewayProcess, model: str, key: str = "sk-client", **more: Any) -> dict[str, Any]:
    answer = ok(gateway.post("/chat/completions", json={"model": model, "messages": [user("hello")], **more}, key=key))
    found: dict[str, Any] = answer["response_metadata"]
    return found


def window(metadata: dict[str, Any]) -> int | None:
    found: int | None = metadata["context_utilization"]["context_window"]
    return found


def learn(gateway: GatewayProcess, model: str, expected: int, key: str = "sk-client") -> None:
    """Asks until the window is known: a request waits for what its upstream tells, but on a busy machine not for as
    long as that takes."""
    wait_until(lambda: window(chat(gateway, model, key)) is not None, f"the window of {model}")
    assert window(chat(gateway, model, key)) == expected


def test_s4_i1_vllm_by_its_address_alone(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """The window is known and kept: what does not fit is cut; the list is asked for once."""
    lists(upstream, VLLM)
    name = VLLM["id"]
    learn(gateway, name, 40960)
    assert chat(gateway, name)["cost"]["priced"] is False
    attachments = [{"title": "Log", "content": LONG * 3}]
    body = {"model": name, "messages": [user("When does the ferry leave?")], "attachments": attachments}
    found = gateway.post("/chat/completions", json=body, key="sk-client").json()["response_metadata"][
        "context_utilization"
    ]
    assert found["tokens_used"] <= found["budget_tokens"] < 40960
    assert len(upstream.last.raw) < len(LONG * 3)
    assert len(asked(upstream)) == 1
    assert asked(upstream)[0].headers["authorization"] == "Bearer sk-client"


def test_s4_i1_llama_cpp_by_any_name(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """It serves its one model by any name; the window of a slot is what a request has."""
    lists(upstream, LLAMA_CPP)
    upstream.routes["GET /props?model=anything&autoload=false"] = slot = Reply(
        json={"default_generation_settings": {"n_ctx": 2048}, "total_slots": 2}
    )
    upstream.routes["GET /props"] = slot
    learn(gateway, "anything", 2048)


def test_s4_i1_ollama_and_lm_studio_by_their_own_apis(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    lists(upstream, OLLAMA)
    upstream.routes["POST /api/show"] = Reply(json={"model_info": {"llama.context_length": 131072}, "parameters": ""})
    upstream.routes["GET /api/ps"] = Reply(json={"models": [{"name": "llama3.2:latest", "context_length": 16384}]})
    learn(gateway, "llama3.2", 16384)
    lists(upstream, {"id": LM_STUDIO["id"], "object": "model", "owned_by": "organization_owner"})
    upstream.routes["GET /api/v0/models"] = Reply(json={"object": "list", "data": [LM_STUDIO]})
    learn(gateway, LM_STUDIO["id"], 4096, "sk-another")


def test_s6_a_price_that_the_upstream_tells_is_a_price(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    entry = {**OPENROUTER, "id": "house/model-of-nobody"}
    lists(upstream, entry)
    wait_until(lambda: chat(gateway, "house/model-of-nobody")["cost"]["priced"], "the price")
    upstream.reply(text="x", usage={"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
    cost = chat(gateway, "house/model-of-nobody")["cost"]
    assert (cost["priced"], cost["total_cost"]) == (True, 0.000075)


def test_s8_what_one_key_is_told_is_not_anothers(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Each client's key goes to its own upstream's list alone, and only its own requests go by what it says."""
    lists(upstream, {"id": "m", "max_model_len": 8192})
    learn(gateway, "m", 8192, "sk-one")
    lists(upstream, {"id": "m", "max_model_len": 32768})
    learn(gateway, "m", 32768, "sk-two")
    assert window(chat(gateway, "m", "sk-one")) == 8192
    assert [record.headers["authorization"] for record in asked(upstream)] == ["Bearer sk-one", "Bearer sk-two"]


OVERFLOW = {
    "message": "This model's maximum context length is 4096 tokens. Please reduce the length of the messages.",
    "type": "invalid_request_error",
    "param": "messages",
    "code": "context_length_exceeded",
}


def ferries(gateway: GatewayProcess, **more: Any) -> dict[str, Any]:
    attachments = [{"title": "Log", "content": LONG}]
    answer = chat(gateway, "m", attachments=attachments, context={"mode": "simple"}, **more)
    used: dict[str, Any] = answer["context_utilization"]
    return used


def test_s4_i1_a_window_that_was_told_outlives_the_process(
    upstream: MockUpstream, tmp_path: Path, fork_server: ForkServer
) -> None:
    """By a list, or by a refusal that says no more than the limit: one refit, and no refusal after it."""
    env = {"OPENAI_BASE_URL": upstream.base_url}
    lists(upstream, {"id": "listed", "max_model_len": 8192})
    with GatewayProcess(None, env, directory=tmp_path, fork_server=fork_server) as started:
        learn(started, "listed", 8192)
        upstream.clear()
        upstream.reply(status=400, json={"error": OVERFLOW})
        used = ferries(started)
        assert len(upstream.chats) == 2
        assert (used["context_window"], used["budget_tokens"] < 4096) == (4096, True)
        assert "context_window_unknown" not in used["warnings"]
        assert (ferries(started)["context_window"], len(upstream.chats)) == (4096, 3)
        started.terminate()
    upstream.clear()
    upstream.routes.pop(LIST, None)
    with GatewayProcess(None, env, directory=tmp_path, fork_server=fork_server) as started:
        assert window(chat(started, "listed")) == 8192
        assert (ferries(started)["context_window"], len(upstream.chats)) == (4096, 2)
    assert asked(upstream) == []


def test_s4_i1_what_each_message_adds_is_learned_from_small_prompts(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """An upstream that counts six tokens more a message refuses nothing, as soon as it has answered once."""
    lists(upstream, {"id": "m", "max_model_len": 4096})
    learn(gateway, "m", 4096)
    upstream.count_prompt = lambda body: prompt_tokens(body) + 6 * len(body["messages"])
    chat(gateway, "m")
    upstream.context_limit = 4096 - 1000
    talk = [message for n in range(400) for message in (user(f"{n}?"), {"role": "assistant", "content": f"{n}."})]
    used = chat(gateway, "m", messages=[*talk, user("And?")], max_tokens=1000)["context_utilization"]
    assert "refitted_after_upstream_overflow" not in used["warnings"]
    assert used["messages_excluded"] > 0


@pytest.mark.in_turn("reply")
@pytest.mark.parametrize(
    "reply",
    [Reply(status=500), Reply(status=401), Reply(body=b"<html>"), Reply(json={"data": "?"}), Reply(cut_after=-1),
     Reply(json={"data": [{"id": "m", "max_model_len": -5, "context_length": "many", "n_ctx": 10**30}]})],
    ids=["500", "401", "no JSON", "no list", "cut", "hostile"],
)  # fmt: skip
def test_s4_i1_an_upstream_that_tells_nothing_costs_nothing(
    gateway: GatewayProcess, upstream: MockUpstream, reply: Reply
) -> None:
    """Requests go on as before, unmanaged and with a warning, and it is not asked at each of them."""
    upstream.routes[LIST] = reply
    for _ in range(3):
        metadata = chat(gateway, "m")
        assert window(metadata) is None
        assert "context_window_unknown" in metadata["context_utilization"]["warnings"]
    assert len(asked(upstream)) <= 2, "a connection that breaks before the answer is tried once more"


CONFIGURED = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "{base}", api_key: sk-house}}
    model_info: {{max_input_tokens: 1000, input_cost_per_token: 0, output_cost_per_token: 0}}
  - model_name: bare
    litellm_params: {{model: openai/bare, api_base: "{base}", api_key: sk-house}}
"""


def test_s9_what_is_configured_wins_and_check_tells_what_was_learnt(
    upstream: MockUpstream, tmp_path: Path, fork_server: ForkServer
) -> None:
    lists(upstream, *({**OPENROUTER, "id": name} for name in ("m", "bare")))
    path = config_file(tmp_path, CONFIGURED.format(base=upstream.base_url))
    env = {"GATEWAY_CONFIG": str(path)}
    with GatewayProcess(None, env, directory=tmp_path, fork_server=fork_server) as gateway:
        assert not asked(upstream), "never at the start"
        metadata = chat(gateway, "m")
        assert (window(metadata), metadata["cost"]["total_cost"], asked(upstream)) == (1000, 0, [])
        learn(gateway, "bare", 64000)
    done = gateway_command("check", "--config", str(path), directory=tmp_path)
    assert "ok    model bare: window 64,000 tokens; priced" in done.stdout
    assert "model m:" not in done.stdout
    lists(upstream, {"id": "bare"})
    done = gateway_command("check", "--config", str(path), directory=tmp_path)
    assert (
        "warn  model bare: its window is not known, so it is not managed: set model_info.max_input_tokens"
        in done.stdout
    )
