"""LangChain's ChatOpenAI: what a user of it sees."""

import asyncio

import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel
from scenarios import MODEL, TOOLS, main, scenario, seconds_until_cancelled

model = ChatOpenAI(model=MODEL, max_retries=0, include_response_headers=True)


class Trip(BaseModel):
    """A journey."""

    city: str
    days: int


def looked_up(chunk):
    request_id = chunk.response_metadata["headers"]["x-request-id"]
    return model.root_client.chat.completions.retrieve(request_id).response_metadata["cost"]["total_cost"]


def raised(function):
    try:
        function()
    except openai.APIError as error:
        return [
            type(error).__mro__[1].__name__ if "OpenAI" in type(error).__name__ else type(error).__name__,
            error.code,
        ]
    return None


@scenario
def plain():
    answer = model.invoke("plain")
    return {
        "text": answer.content,
        "cost": answer.response_metadata["token_usage"]["cost"],
        "header_cost": float(answer.response_metadata["headers"]["x-gateway-response-cost"]),
        "total": looked_up(answer),
        "conversation": answer.response_metadata["headers"]["x-conversation-id"][:5],
        "tokens": answer.usage_metadata["total_tokens"],
    }


@scenario
def stream():
    chunks = list(model.stream("plain stream"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return {
        "text": "".join(chunk.content for chunk in chunks),
        "merged": whole.content,
        "finish": whole.response_metadata["finish_reason"],
        "total": looked_up(chunks[0]),
    }


@scenario
def odd_stream():
    return "".join(chunk.content for chunk in model.stream("odd"))


@scenario
def stream_with_usage():
    chunks = list(model.stream("plain stream usage", stream_usage=True))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return {"text": whole.content, "tokens": whole.usage_metadata["total_tokens"], "total": looked_up(chunks[0])}


def tool_loop_with(ask):
    armed = model.bind_tools(TOOLS)
    messages = [HumanMessage("tools " + ask.__name__)]
    first = ask(armed, messages)
    results = [ToolMessage(f"{call['name']} done", tool_call_id=call["id"]) for call in first.tool_calls]
    last = ask(armed, [*messages, first, *results])
    return {"calls": [[call["name"], call["args"]] for call in first.tool_calls], "text": last.content}


def invoked(armed, messages):
    return armed.invoke(messages)


def streamed(armed, messages):
    whole = None
    for chunk in armed.stream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


@scenario
def tool_loop():
    return tool_loop_with(invoked)


@scenario
def tool_loop_streamed():
    return tool_loop_with(streamed)


@scenario
def structured():
    asking = model.with_structured_output(Trip, include_raw=True)
    answer = asking.invoke("structured")
    return {
        "parsed": answer["parsed"].model_dump(),
        "cost": answer["raw"].response_metadata["token_usage"]["cost"],
        "streamed": list(model.with_structured_output(Trip).stream("structured streamed"))[-1].model_dump(),
    }


@scenario
def conversation():
    first = model.invoke("plain one")
    chosen = first.response_metadata["headers"]["x-conversation-id"]
    document = {"title": "Contract", "content": "Clause 14 says that the clause after it is void."}
    second = model.invoke("plain two", extra_body={"conversation": chosen, "attachments": [document]})
    named = ChatOpenAI(model=MODEL, default_headers={"X-Context-Session": "diary"}, include_response_headers=True)
    names = {named.invoke("plain").response_metadata["headers"]["x-conversation-id"] for _ in range(2)}
    bill = model.root_client.chat.completions.retrieve(second.response_metadata["id"]).response_metadata
    return {
        "same": second.response_metadata["headers"]["x-conversation-id"] == chosen,
        "session": len(names) == 1,
        "attached": [used["source"] for used in bill["context_utilization"]["artifacts_processed"]],
    }


@scenario
def errors():
    return {
        "bad": raised(lambda: model.invoke("status 400")),
        "busy": raised(lambda: model.invoke("status 429")),
        "unknown": raised(lambda: model.invoke("plain", extra_body={"conversation": "conv_unknown"})),
        "in_stream": raised(lambda: list(model.stream("broken"))),
        "cut": raised(lambda: list(model.stream("cut"))),
    }


@scenario
def embeddings():
    return len(
        OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False).embed_query("the sea")
    )


@scenario
def abort():
    chunks = model.stream("stall langchain")
    next(chunks)
    chunks.close()
    return seconds_until_cancelled("stall langchain")


@scenario
async def asynchronous():
    answer = await model.ainvoke("plain async")
    chunks = [chunk async for chunk in model.astream("plain async stream")]
    events = [event async for event in model.astream_events("plain async events")]
    stalled = model.astream("stall langchain async")
    async for _ in stalled:
        break
    await stalled.aclose()
    return {
        "cost": answer.response_metadata["token_usage"]["cost"],
        "text": "".join(chunk.content for chunk in chunks),
        "ended": events[-1]["event"],
        "cancelled": await asyncio.to_thread(seconds_until_cancelled, "stall langchain async"),
    }


main()
