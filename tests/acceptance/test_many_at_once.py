"""Many clients at once (guarantee §3.7)."""

import asyncio
from typing import Any

from openai import AsyncOpenAI

from tests.support.answers import Json, bill_of, chat, conversation_of, stored_of, user
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
