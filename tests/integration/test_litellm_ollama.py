"""Ollama's chats through litellm: what its answers lack, and errors in their place."""

import httpx
import pytest
import respx

from gateway.core.errors import UpstreamRefused
from tests.integration.litellm_calls import complete, deployment

URL = "http://127.0.0.1:11434/api/chat"
LOCAL = deployment("ollama_chat/qwen3", api_base="http://127.0.0.1:11434")


async def test_s6_an_answer_without_usage_has_none_of_litellms_making(respx_mock: respx.Router) -> None:
    """Its tokens are counted here, and the bill says so. Ollama names no prompt that was cached whole."""
    said = {"model": "qwen3", "message": {"role": "assistant", "content": "Rain."}, "done": True, "eval_count": 3}
    respx_mock.post(URL).mock(httpx.Response(200, json=said))
    found = (await complete(LOCAL)).body
    assert found["choices"][0]["message"]["content"] == "Rain."
    assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (0, 3)


async def test_s7_an_error_in_an_answers_place_is_the_upstreams(respx_mock: respx.Router) -> None:
    """litellm made a 400 of it, for which no other model would have been asked."""
    respx_mock.post(URL).mock(httpx.Response(200, json={"error": {"message": "out of memory", "code": 500}}))
    with pytest.raises(UpstreamRefused, match="out of memory") as caught:
        await complete(LOCAL)
    assert caught.value.status == 500
