"""Many clients at once, and requests of unusual but valid shapes (guarantee §1, §2, §3.7)."""

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.support.answers import Json, bill_of, chat, conversation_of, read_stream, stored, stored_of, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Record, Reply

ASK = [user("hello")]
CHAT: Json = {"model": "small", "messages": ASK}


async def test_s3_7_forty_streams_at_once(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Each gets its own answer, its own conversation and its own bill, and all run side by side."""

    def slowly(record: Record) -> Reply:
        return Reply(text=f"{record.body['messages'][-1]['content']} is what you said", chunk_delay=0.02)

    upstream.handler = slowly

    async def one(client: AsyncOpenAI, number: int) -> str:
        said: Any = [user(f"client {number}")]
        stream = await client.chat.completions.create(model="small", messages=said, stream=True)
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == f"client {number} is what you said"
        assert bill_of(chunks[-1])["cost"]["priced"] is True
        return conversation_of(chunks[-1])

    async with AsyncOpenAI(base_url=gateway.base_url, api_key="sk-test", max_retries=0, timeout=30) as client:
        conversations = await asyncio.gather(*(one(client, number) for number in range(40)))
    assert len(set(conversations)) == 40
    assert upstream.max_in_flight > 20
    for number, conversation in enumerate(conversations):
        (turn,) = stored_of(gateway, conversation)
        assert turn["choices"][0]["message"]["content"] == f"client {number} is what you said"


async def test_s3_7_streams_at_once_on_one_conversation(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Twenty turns committed side by side: all there, each question beside its answer."""
    first = chat(gateway, **CHAT)
    body = {"conversation": first["conversation"]["id"]}
    async with AsyncOpenAI(base_url=gateway.base_url, api_key="sk-test", max_retries=0, timeout=30) as client:

        async def one(number: int) -> None:
            said: Any = [user(f"n{number}")]
            stream = await client.chat.completions.create(model="gpt-4o", messages=said, stream=True, extra_body=body)
            async for _ in stream:
                pass

        await asyncio.gather(*map(one, range(20)))
    chat(gateway, model="gpt-4o", messages=[user("last")], **body)
    messages = upstream.last.body["messages"]
    assert len(messages) == 2 + 40 + 1
    pairs = list(zip(messages[2:-1:2], messages[3:-1:2], strict=True))
    assert all(answer["content"] == f"echo: {question['content']}" for question, answer in pairs)
    assert {question["content"] for question, _ in pairs} == {f"n{number}" for number in range(20)}


def test_s2_nulls_are_nothing(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Fields that are null are as good as absent, and those that the gateway does not own go up as they are."""
    own = dict.fromkeys(("conversation", "attachments", "context"))
    theirs = dict.fromkeys(("n", "tools", "stream_options", "max_tokens", "temperature", "x_new"))
    chat(one_gateway, **CHAT, **own, **theirs, stream=None)
    sent = upstream.last.body
    assert not set(own) & set(sent)
    assert {name: sent[name] for name in theirs} == theirs
    assert sent["stream"] is None
    assert sent["messages"] == ASK


def test_s2_metadata_that_breaks_the_rules(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """It goes up untouched and is not stored; metadata that keeps them is stored and does not go up."""
    broken: list[Any] = [{"a": 1}, {"k" * 65: "v"}, {"k": "v" * 513}, {str(n): "v" for n in range(17)}, {"a": None}]
    for metadata in broken:
        answer = chat(one_gateway, **CHAT, metadata=metadata)
        assert upstream.last.body["metadata"] == metadata
        assert "metadata" not in stored(one_gateway, answer["id"])
    kept = {"k" * 64: "v" * 512, **{str(n): "" for n in range(15)}}
    answer = chat(one_gateway, **CHAT, metadata=kept)
    assert "metadata" not in upstream.last.body
    assert stored(one_gateway, answer["id"])["metadata"] == kept


def test_s2_store_and_metadata_go_up_together(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """`upstream.forward_store`: both or neither."""
    gateway = start_gateway({"upstream": {"forward_store": True}})
    chat(gateway, **CHAT, metadata={"a": "b"}, store=True)
    assert upstream.last.body["metadata"] == {"a": "b"}
    assert upstream.last.body["store"] is True


@pytest.mark.parametrize("asked", [True, False])
def test_s6_a_provider_that_ignores_n(one_gateway: GatewayProcess, upstream: MockUpstream, asked: bool) -> None:
    """Two choices asked, one given: the stream still ends well, with one bill."""
    upstream.reply(choices=[{"message": {"role": "assistant", "content": "only one"}}])
    options = {"stream_options": {"include_usage": True}} if asked else {}
    wire = read_stream(one_gateway, {**CHAT, "n": 2, **options})
    assert wire.text == "only one"
    assert wire.done
    assert sum("cost" in chunk.get("response_metadata", {}) for chunk in wire.chunks if chunk["choices"]) == 1
    assert wire.finish["response_metadata"]["cost"]["priced"] is True


def test_s2_conversation_with_mode_off(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A conversation that is named is put in front, and the gateway's own fields are taken out all the same."""
    first = chat(one_gateway, **CHAT)
    extras: Json = {"conversation": first["conversation"], "attachments": [], "context": {"mode": "off"}}
    chat(one_gateway, model="small", messages=[user("again")], **extras)
    assert upstream.last.body == {
        "model": "small",
        "messages": [*CHAT["messages"], {"role": "assistant", "content": "echo: hello"}, user("again")],
    }
