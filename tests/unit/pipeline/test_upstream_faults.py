"""Upstreams that answer rubbish, break off, are gone or too slow (guarantee §7)."""

from typing import Any

import openai
import pytest

from tests.support.answers import Json, stored, user
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, free_port

ASK: Any = [user("hello")]

BROKEN: list[tuple[str, Json]] = [
    ("malformed JSON", {"body": b'{"id": "x", "choices": ['}),
    ("HTML with status 200", {"body": b"<html>login</html>", "content_type": "text/html"}),
    ("an empty body", {"body": b""}),
    ("JSON that is no object", {"body": b"[1]"}),
    ("no choices", {"json": {"id": "x", "object": "chat.completion"}}),
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("name", "script"), BROKEN, ids=[name for name, _ in BROKEN])
def test_s7_answers_that_are_none(
    one_gateway: GatewayProcess,
    upstream: MockUpstream,
    make_client: ClientFactory,
    name: str,
    script: Json,
    streamed: bool,
) -> None:
    """Not what an OpenAI-compatible server sends: 502 in OpenAI's shape, never a 500."""
    upstream.reply(**script)
    client = make_client(one_gateway)
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=ASK, stream=streamed)
    assert caught.value.status_code == 502
    assert caught.value.code == "upstream_invalid_response"
    assert stored(one_gateway, caught.value.response.headers["x-request-id"])["status"] == "failed"


@pytest.mark.parametrize("streamed", [False, True])
def test_s7_a_connection_that_breaks_before_any_byte_is_tried_once_more(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory, streamed: bool
) -> None:
    """A connection that failed before any byte is tried once more; twice is 502 `upstream_unreachable`."""
    client = make_client(one_gateway)
    upstream.reply(cut_after=-1)
    upstream.reply(text="at last")
    answer: Any = client.chat.completions.create(model="gpt-4o", messages=ASK, stream=streamed)
    text = "".join(c.choices[0].delta.content or "" for c in answer) if streamed else answer.choices[0].message.content
    assert text == "at last"
    assert len(upstream.chats) == 2
    upstream.reply(cut_after=-1)
    upstream.reply(cut_after=-1)
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=ASK, stream=streamed)
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_unreachable")
    assert len(upstream.chats) == 4


def test_s7_an_answer_cut_in_its_middle_is_not_repeated(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """Half a JSON answer was paid for: no second try."""
    upstream.reply(text="a b c", cut_after=40)
    with pytest.raises(openai.InternalServerError) as caught:
        make_client(one_gateway).chat.completions.create(model="gpt-4o", messages=ASK)
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_interrupted")
    assert len(upstream.chats) == 1
    bill = stored(one_gateway, caught.value.response.headers["x-request-id"])["response_metadata"]
    assert bill["cost"]["estimated"] is True
    assert bill["cost"]["total_cost"] > 0


@pytest.fixture(scope="module")
def module_lost(module_start_gateway: GatewayFactory) -> GatewayProcess:
    dead = {"model": "openai/gpt-4o", "api_base": f"http://127.0.0.1:{free_port()}/v1", "api_key": "sk-upstream-secret"}
    nowhere = {"model": "openai/gpt-4o", "api_base": "http://no-such-host.invalid/v1", "api_key": "sk-upstream-secret"}
    models = [{"model_name": "dead", "litellm_params": dead}, {"model_name": "nowhere", "litellm_params": nowhere}]
    return module_start_gateway({"model_list": models})


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("model", ["dead", "nowhere"])
def test_s7_unreachable(module_lost: GatewayProcess, make_client: ClientFactory, model: str, streamed: bool) -> None:
    """Unreachable: 502 `upstream_unreachable`; the message holds no key."""
    with pytest.raises(openai.InternalServerError) as caught:
        make_client(module_lost).chat.completions.create(model=model, messages=ASK, stream=streamed)
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_unreachable")
    assert set(caught.value.response.json()["error"]) == {"message", "type", "param", "code"}
    assert "secret" not in caught.value.response.text
    bill = stored(module_lost, caught.value.response.headers["x-request-id"])
    assert bill["response_metadata"]["cost"]["total_cost"] == 0


@pytest.fixture(scope="module")
def module_hasty(module_start_gateway: GatewayFactory) -> GatewayProcess:
    return module_start_gateway({"upstream": {"first_byte": 0.3}})


@pytest.mark.parametrize(
    ("script", "streamed"),
    [({"delay_first": 60}, False), ({"delay_first": 60}, True), ({"delay_body": 60}, False)],
    ids=["no status line", "no status line, streamed", "no body"],
)
def test_s7_too_slow(
    module_hasty: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory, script: Json, streamed: bool
) -> None:
    """Too slow: 504 `upstream_timeout`, the upstream call is ended, and what it may have cost is recorded."""
    upstream.reply(text="late", **script)
    with pytest.raises(openai.InternalServerError) as caught:
        make_client(module_hasty).chat.completions.create(model="gpt-4o", messages=ASK, stream=streamed)
    assert (caught.value.status_code, caught.value.code) == (504, "upstream_timeout")
    assert upstream.last.disconnected.wait(PATIENCE)
    assert len(upstream.chats) == 1
    assert stored(module_hasty, caught.value.response.headers["x-request-id"])["status"] == "failed"
