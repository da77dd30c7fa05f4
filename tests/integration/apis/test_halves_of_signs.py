"""Half of a surrogate pair in an answer: servers that cut texts by UTF-16 units send a sign in two chunks (§1)."""

import json

import pytest

from tests.support.answers import Json, assistant, exact, stored, there, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.raw import LAST, SSE_HEAD, End, event, whole
from tests.support.sse import chunks_of

NAMED = {"id": "up-1", "created": 1, "model": "gpt-4o"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
CHAT: Json = {"model": "gpt-4o", "messages": [user("smile")]}


def chunk(text: str, finish: str | None = None) -> bytes:
    """An event as such a server writes it: escaped."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return event(json.dumps({**NAMED, "object": "chat.completion.chunk", "choices": [choice]}).encode())


def test_s1_9_a_sign_in_two_chunks_arrives_and_is_stored_whole(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """The conversation goes on: its digest is that of the sign that a client joins and sends again (§3.2)."""
    done = event({**NAMED, "choices": [], "usage": USAGE}) + event(b"[DONE]")
    upstream.reply(raw=(SSE_HEAD, chunk("so \ud83d"), chunk("\ude00!"), chunk("", "stop"), done, LAST, End.KEEP))
    answer = gateway.post("/chat/completions", json={**CHAT, "stream": True})
    events = chunks_of(answer.content)
    said = [each["choices"][0]["delta"]["content"] for each in events if each["choices"][0]["delta"]]
    assert [text for text in said if text] == ["so ", "😀!"]
    assert answer.text.endswith("data: [DONE]\n\n")
    assert stored(gateway, events[0]["id"])["choices"][0]["message"]["content"] == "so 😀!"
    conversation = events[0]["conversation"]
    resent = gateway.post(
        "/chat/completions",
        json={
            **CHAT,
            "conversation": conversation["id"],
            "messages": [user("smile"), assistant("so 😀!"), user("again")],
        },
    )
    assert resent.json()["conversation"] == conversation
    gateway.post("/chat/completions", json={**CHAT, "conversation": conversation["id"]})
    assert there(upstream.last.body)["messages"][:3] == [user("smile"), assistant("so 😀!"), user("again")]


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_s1_9_a_half_alone_is_mended(gateway: GatewayProcess, upstream: MockUpstream, mode: str) -> None:
    """No provider takes half a pair back, nor do most clients read one."""
    message = {"role": "assistant", "content": "cut \ud83d", "note": "\ude00"}
    body = {**NAMED, "object": "chat.completion", "choices": [{"index": 0, "message": message}], "usage": USAGE}
    upstream.reply(raw=(whole(json.dumps(body).encode()), End.KEEP))
    answer = gateway.post("/chat/completions", json={**CHAT, "context": {"mode": mode}})
    assert answer.status_code == 200
    mended = {"role": "assistant", "content": "cut \ufffd", "note": "\ufffd"}
    assert answer.json()["choices"][0]["message"] == mended
    if mode == "off":
        return
    assert exact(answer.content)["response_metadata"]["cost"]["estimated"] is False
    assert stored(gateway, answer.json()["id"])["choices"][0]["message"]["content"] == "cut \ufffd"
    named = {"conversation": answer.json()["conversation"]["id"]}
    assert gateway.post("/chat/completions", json={**CHAT, **named}).status_code == 200
    assert there(upstream.last.body)["messages"][1]["content"] == "cut \ufffd"


HALF = "cut \ud83d"
SAID: dict[str, Json] = {
    "chat/completions": {"messages": [user(HALF)]},
    "responses": {"input": [{"role": "user", "content": [{"type": "input_text", "text": HALF}]}]},
    "messages": {"max_tokens": 9, "messages": [user([{"type": "text", "text": HALF}])]},
}


@pytest.mark.parametrize("path", SAID)
@pytest.mark.parametrize("store", [True, False])
def test_s1_9_a_half_in_a_request_is_mended(
    gateway: GatewayProcess, upstream: MockUpstream, path: str, store: bool
) -> None:
    """Clients that cut texts by UTF-16 units write halves of signs: the model reads what can be read of them, and the
    same client goes on."""
    body = {"model": "gpt-4o", **SAID[path], "store": store, "metadata": {"user_id": HALF}}
    answer = gateway.post(f"/{path}", content=json.dumps(body).encode())
    assert answer.status_code == 200, answer.text
    assert str(upstream.last.body["messages"][-1]["content"]).count("cut \ufffd") == 1


def test_s1_9_a_half_in_a_relayed_request_goes_up_as_it_came(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Its model is read all the same."""
    raw = json.dumps({"model": "gpt-4o", "input": HALF}).encode()
    answer = gateway.post("/embeddings", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    assert upstream.requests[-1].body["input"] == HALF
