"""Anthropic refuses a prompt that does not leave room for `max_tokens`, which clients seldom name (guarantee §4 I1)."""

from typing import Any

import pytest

from tests.support import anthropic_wire as wire
from tests.support.answers import http, user
from tests.support.documents import prose, tokens
from tests.support.factory import GatewayFactory
from tests.support.mock_provider import MockProvider

WINDOW, LONGEST, RESERVED = 8000, 6000, 1000


@pytest.mark.parametrize(("words", "named"), [(10, None), (3000, None), (12_000, None), (10, 77)])
def test_s4_i1_prompt_and_answer_have_room_in_the_window(
    start_gateway: GatewayFactory, provider: MockProvider, words: int, named: int | None
) -> None:
    """However long the prompt: a short one leaves all that the model can write, one that fills the window what was
    reserved."""
    params = {"model": "anthropic/claude-sonnet-4-5", "api_base": provider.url, "api_key": "sk-ant"}
    info = {"max_input_tokens": WINDOW, "max_output_tokens": LONGEST}
    claude = {"model_name": "claude", "litellm_params": params, "model_info": info}
    gateway = start_gateway({"model_list": [claude], "context": {"reserved_output_tokens": RESERVED}})
    provider.reply(wire.message(wire.text("Yes.")))
    paper = [{"title": "Tides", "content": prose(1, words)}]
    body: dict[str, Any] = {"model": "claude", "messages": [user("Which tide?")], "attachments": paper}
    if named:
        body["max_tokens"] = named
    with http(gateway) as client:
        answer = client.post("/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    sent = provider.calls[-1].body
    prompt = sum(tokens(part["text"]) for message in sent["messages"] for part in message["content"])
    assert prompt + sent["max_tokens"] <= WINDOW
    assert sent["max_tokens"] >= (named or RESERVED)
    if words == 10:
        assert sent["max_tokens"] == (named or LONGEST)
