"""`Idempotency-Key`: the same request again gets the same answer again, and is charged and stored once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.support.answers import Json, conversation_of, read_stream, refusal, stored_of, user
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until

ASK: Json = {"model": "small", "messages": [user("What is the time?")]}

MISMATCH = (422, "idempotency_key_mismatch", "Idempotency-Key")


def keyed(name: str) -> dict[str, str]:
    return {"Idempotency-Key": name}


def ask(gateway: GatewayProcess, body: Json, key: str, token: str = "sk-test") -> httpx.Response:
    return gateway.post("/chat/completions", json=body, headers=keyed(key), key=token)


def test_s3_the_same_answer_again(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """The answer again: equal JSON, its bill included, and headers that say so; one call, one row of the ledger."""
    upstream.reply(text="Noon.", extra={"service_tier": "default", "note": {"x": [1]}})
    first = ask(gateway, ASK, "once-1")
    again = ask(gateway, ASK, "once-1")
    assert first.status_code == again.status_code == 200
    assert again.json() == first.json()
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    for name in ("x-conversation-id", "x-gateway-response-cost", "content-type"):
        assert again.headers[name] == first.headers[name], name
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    assert len(upstream.chats) == 1
    conversation = first.json()["conversation"]
    assert len(stored_of(gateway, conversation["id"])) == 1
    gateway.post("/chat/completions", json={**ASK, "conversation": conversation})
    assert [message["role"] for message in upstream.last.body["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("usage", [True, False])
def test_s3_a_stream_again_as_a_stream(gateway: GatewayProcess, upstream: MockUpstream, usage: bool) -> None:
    """§6's rules hold for the replay: the role and what is known first, the bill on the finish chunk, usage only if
    it was asked for, `[DONE]`."""
    upstream.reply(tool_calls=[("clock", {"zone": "UTC"})], message=None, extra={"system_fingerprint": "fp"})
    body = {**ASK, "stream": True, **({"stream_options": {"include_usage": True}} if usage else {})}
    key = keyed(f"stream-{usage}")
    first, again = (read_stream(gateway, body, **key) for _ in range(2))
    assert len(upstream.chats) == 1
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["x-conversation-id"] == first.headers["x-conversation-id"]
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.finish["response_metadata"] == first.finish["response_metadata"]
    assert again.chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert again.chunks[0]["response_metadata"].keys() == first.chunks[0]["response_metadata"].keys()
    assert [c for c in again.chunks if not c["choices"]] == [c for c in first.chunks if not c["choices"]]
    assert joined(again.chunks) == joined(first.chunks)


def joined(chunks: list[Json]) -> Json:
    """What a client puts together."""
    calls = [
        call["function"]
        for chunk in chunks
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls") or ()
    ]
    said: Json = {"id": chunks[0]["id"], "model": chunks[0]["model"], "created": chunks[0]["created"]}
    said["content"] = "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])
    said["arguments"] = "".join(call.get("arguments") or "" for call in calls)
    said["finish"] = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    return said


def test_s3_while_it_runs(gateway: GatewayProcess, upstream: MockUpstream, client: OpenAI) -> None:
    """While the first runs: 409, with when to ask again, and for another body 422; then the answer."""
    gate = threading.Event()
    upstream.reply(text="Noon.", gate=gate)
    create: Any = client.chat.completions.create
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(create, **ASK, extra_headers=keyed("running"))
        upstream.wait_for_chats(1)
        with pytest.raises(openai.ConflictError) as busy:
            create(**ASK, extra_headers=keyed("running"))
        assert refusal(ask(gateway, {**ASK, "temperature": 0.5}, "running")) == MISMATCH
        gate.set()
        answer = first.result()
    assert busy.value.code == "idempotency_key_in_use"
    assert busy.value.response.headers["retry-after"] == "1"
    assert create(**ASK, extra_headers=keyed("running")) == answer
    assert len(upstream.chats) == 1


def test_s3_another_body_and_another_meaning(gateway: GatewayProcess, upstream: MockUpstream, client: OpenAI) -> None:
    """422 for another request, as the SDK's own error class: another body, or a header that says what is asked."""
    assert ask(gateway, ASK, "taken").status_code == 200
    create: Any = client.chat.completions.create
    with pytest.raises(openai.UnprocessableEntityError) as other:
        create(**ASK, temperature=0.5, extra_headers=keyed("taken"))
    assert (other.value.code, other.value.param) == MISMATCH[1:]
    simple = {**keyed("taken"), "X-Context-Mode": "simple"}
    assert refusal(gateway.post("/chat/completions", json=ASK, headers=simple)) == MISMATCH
    assert refusal(ask(gateway, {**ASK, "stream": True}, "taken")) == MISMATCH
    assert len(upstream.chats) == 1


@pytest.mark.parametrize("keys", [[""], ["x" * 256], ["a\tb"], ["\x85"], ["one", "two"]])
def test_s7_keys_that_are_none(gateway: GatewayProcess, upstream: MockUpstream, keys: list[str]) -> None:
    """§7: bad input is a 400 that names the field, and nothing is stored."""
    raw = [(b"Idempotency-Key", key.encode("latin-1")) for key in keys]
    answer = gateway.post("/chat/completions", json=ASK, headers=raw)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "Idempotency-Key"
    assert not upstream.chats
    assert ask(gateway, ASK, "y" * 255).status_code == 200


def test_s8_keys_belong_to_their_tenant(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """§8: another tenant's key behaves as one that was never used."""
    keys = [{"key": f"sk-gateway-{name}", "tenant": name} for name in ("alice", "bob")]
    gateway = start_gateway({"auth": {"keys": keys}})
    alice, bob = (ask(gateway, ASK, "same", f"sk-gateway-{name}").json() for name in ("alice", "bob"))
    assert alice["id"] != bob["id"]
    assert len(upstream.chats) == 2


def test_s3_what_failed_runs_again(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """An error, whoever made it, leaves the key free: before the call, by the upstream, in mid-stream."""
    unknown = {**ASK, "conversation": "conv_unknown"}
    assert ask(gateway, unknown, "failing").status_code == 404
    upstream.reply(status=500)
    assert ask(gateway, ASK, "failing").status_code == 500
    upstream.reply(text="one two three four", cut_after=3)
    broken = gateway.post("/chat/completions", json={**ASK, "stream": True}, headers=keyed("failing"))
    assert '"error"' in broken.text
    good = ask(gateway, ASK, "failing")
    assert good.status_code == 200
    assert "idempotent-replayed" not in good.headers
    assert ask(gateway, ASK, "failing").json() == good.json()


def test_s3_an_abandoned_stream_runs_again(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A client that left has no answer: its turn is partial, and its key is free."""
    body = {**ASK, "stream": True}
    upstream.reply(text="one two three four five six", stall_after=4)
    with gateway.http() as client, client.stream("POST", "/chat/completions", json=body, headers=keyed("left")) as gone:
        next(gone.iter_lines())
    answers = []

    def is_free() -> bool:
        answers.append(gateway.post("/chat/completions", json=body, headers=keyed("left")))
        return bool(answers[-1].status_code == 200)

    wait_until(is_free, "the end of the stream that was left")
    again = answers[-1]
    assert again.text.rstrip().endswith("[DONE]")
    assert "idempotent-replayed" not in again.headers
    assert len(upstream.chats) == 2


@pytest.mark.parametrize("unkept", [{"store": False}, {"context": {"mode": "off"}}])
def test_s2_an_answer_that_is_not_kept(
    gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory, unkept: Json
) -> None:
    """§2: with `store: false` and in mode `off` nothing that the model wrote is kept; that it was answered is. An SDK
    does not ask again for what it cannot get."""
    key = keyed(f"unkept-{'store' in unkept}")
    create: Any = make_client(gateway, max_retries=3).chat.completions.create
    create(**ASK, extra_body=unkept, extra_headers=key)
    with pytest.raises(openai.ConflictError) as gone:
        create(**ASK, extra_body=unkept, extra_headers=key)
    assert gone.value.code == "idempotency_answer_not_kept"
    assert gone.value.request.headers["x-stainless-retry-count"] == "0"
    assert len(upstream.chats) == 1


@pytest.mark.parametrize("part", ["conversation", "answer", "prefilled answer"])
def test_s3_what_was_deleted_is_not_given_again(
    gateway: GatewayProcess, upstream: MockUpstream, client: OpenAI, part: str
) -> None:
    """Deleted is deleted: a repeat says that it was answered, and no more."""
    create: Any = client.chat.completions.create
    upstream.reply(text="The secret is Rosebud.")
    begun = [{"role": "assistant", "content": "Well: "}] if part == "prefilled answer" else []
    body = {"model": "small", "messages": [user(f"Delete the {part}"), *begun]}
    first = create(**body, extra_headers=keyed(f"delete {part}"))
    conversation = conversation_of(first)
    if part == "conversation":
        client.conversations.delete(conversation)
    else:
        [item] = [each for each in client.conversations.items.list(conversation) if "Rosebud" in each.to_json()]
        client.conversations.items.delete(str(item.id), conversation_id=conversation)
    with pytest.raises(openai.ConflictError) as gone:
        create(**body, extra_headers=keyed(f"delete {part}"))
    assert gone.value.code == "idempotency_answer_not_kept"
    assert "Rosebud" not in gateway.get(f"/chat/completions/{first.id}").text
    assert len(upstream.chats) == 1


def test_s3_a_keyed_answer_is_finished_for_a_client_that_left(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """The client hangs up before the answer and asks again with its key: it is charged and stored once."""
    upstream.reply(text="late", delay_first=0.5)
    with pytest.raises(httpx.TimeoutException):
        gateway.post(
            "/chat/completions",
            json=ASK,
            headers={"authorization": "Bearer sk-test", **keyed("left-early")},
            timeout=httpx.Timeout(5, read=0.2),
            key=None,
        )
    meanwhile = ask(gateway, ASK, "left-early")
    assert (meanwhile.status_code, meanwhile.json()["error"]["code"]) == (409, "idempotency_key_in_use")
    wait_until(lambda: ask(gateway, ASK, "left-early").status_code == 200, "the answer is stored")
    again = ask(gateway, ASK, "left-early")
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["choices"][0]["message"]["content"] == "late"
    assert len(upstream.chats) == 1
