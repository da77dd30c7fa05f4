"""LlamaIndex's OpenAI LLM: what a user of it sees."""

import asyncio

import openai
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI
from scenarios import BASE_URL, MODEL, main, scenario, seconds_until_cancelled

llm = OpenAI(model=MODEL, api_base=BASE_URL, max_retries=0)


def weather(city: str) -> str:
    """The weather of a city."""
    return f"weather done {city}"


def clock(zone: str) -> str:
    """The time of a zone."""
    return f"clock done {zone}"


def ask(text, **more):
    return llm.chat([ChatMessage(role="user", content=text)], **more)


def raised(function):
    try:
        function()
    except openai.APIError as error:
        return [type(error).__name__, error.code]
    return None


@scenario
def plain():
    answer = ask("plain")
    return {
        "text": answer.message.content,
        "cost": answer.raw.usage.cost,
        "total": answer.raw.response_metadata["cost"]["total_cost"],
        "conversation": answer.raw.conversation["id"][:5],
    }


@scenario
def stream():
    parts = list(llm.stream_chat([ChatMessage(role="user", content="plain stream")]))
    return {
        "text": "".join(part.delta for part in parts),
        "total": parts[-1].raw.response_metadata["cost"]["total_cost"],
    }


@scenario
def odd_stream():
    return "".join(part.delta for part in llm.stream_chat([ChatMessage(role="user", content="odd")]))


@scenario
def tools():
    offered = [FunctionTool.from_defaults(fn=function) for function in (weather, clock)]
    answer = llm.chat_with_tools(offered, user_msg="tools plain", allow_parallel_tool_calls=True)
    streamed = list(llm.stream_chat_with_tools(offered, user_msg="tools streamed", allow_parallel_tool_calls=True))[-1]
    return [
        [[call.tool_name, call.tool_kwargs] for call in llm.get_tool_calls_from_response(one)]
        for one in (answer, streamed)
    ]


@scenario
def conversation():
    chosen = ask("plain one").raw.conversation["id"]
    second = ask("plain two", extra_body={"conversation": chosen})
    return second.raw.conversation["id"] == chosen


@scenario
def errors():
    return {
        "bad": raised(lambda: ask("status 400")),
        "in_stream": raised(lambda: list(llm.stream_chat([ChatMessage(role="user", content="broken")]))),
    }


async def _read(parts, begun):
    async for _ in parts:
        begun.set()


@scenario
async def asynchronous():
    answer = await llm.achat([ChatMessage(role="user", content="plain async")])
    stalled = await llm.astream_chat([ChatMessage(role="user", content="stall llama")])
    begun = asyncio.Event()
    reading = asyncio.create_task(_read(stalled, begun))
    await begun.wait()
    reading.cancel()
    await asyncio.wait([reading])
    gone = await asyncio.to_thread(seconds_until_cancelled, "stall llama")
    return {"total": answer.raw.response_metadata["cost"]["total_cost"], "cancelled": gone}


main()
