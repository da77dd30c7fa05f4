"""LiteLLM as a client: what a user of it sees."""

import asyncio

import litellm
from pydantic import BaseModel
from scenarios import MODEL, TOOLS, main, scenario, seconds_until_cancelled, user

NAME = f"openai/{MODEL}"


class Trip(BaseModel):
    city: str
    days: int


def ask(text, **more):
    return litellm.completion(model=NAME, messages=[user(text)], num_retries=0, **more)


def text_of(chunks):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def billed(chunks):
    found = [chunk.response_metadata for chunk in chunks if hasattr(chunk, "response_metadata")]
    return found[-1]["cost"]["total_cost"]


def raised(function):
    try:
        function()
    except litellm.exceptions.APIError as error:
        return [type(error).__name__, error.status_code]
    except Exception as error:  # LiteLLM's classes share no other base
        return [type(error).__name__, getattr(error, "status_code", None)]
    return None


@scenario
def plain():
    answer = ask("plain")
    headers = answer._hidden_params["additional_headers"]
    return {
        "text": answer.choices[0].message.content,
        "cost": answer.usage.cost,
        "total": answer.response_metadata["cost"]["total_cost"],
        "header_cost": float(headers["llm_provider-x-gateway-response-cost"]),
        "conversation": answer.conversation["id"] == headers["llm_provider-x-conversation-id"],
    }


@scenario
def stream():
    chunks = list(ask("plain stream", stream=True))
    whole = litellm.stream_chunk_builder(chunks)
    return {"text": text_of(chunks), "total": billed(chunks), "built": whole.choices[0].message.content}


@scenario
def odd_stream():
    return text_of(list(ask("odd", stream=True)))


@scenario
def stream_with_usage():
    chunks = list(ask("plain stream usage", stream=True, stream_options={"include_usage": True}))
    return {
        "text": text_of(chunks),
        "total": billed(chunks),
        "cost": chunks[-1].usage.cost,
        "built_cost": litellm.stream_chunk_builder(chunks).usage.cost,
    }


@scenario
def tool_loop():
    messages = [user("tools plain")]
    message = litellm.completion(model=NAME, messages=messages, tools=TOOLS).choices[0].message
    return _second_half(messages, message)


@scenario
def tool_loop_streamed():
    messages = [user("tools streamed")]
    chunks = list(litellm.completion(model=NAME, messages=messages, tools=TOOLS, stream=True))
    return _second_half(messages, litellm.stream_chunk_builder(chunks).choices[0].message)


def _second_half(messages, message):
    results = [{"role": "tool", "tool_call_id": c.id, "content": f"{c.function.name} done"} for c in message.tool_calls]
    last = litellm.completion(model=NAME, messages=[*messages, message, *results], tools=TOOLS)
    return {
        "calls": [[c.function.name, c.function.arguments] for c in message.tool_calls],
        "text": last.choices[0].message.content,
    }


@scenario
def structured():
    return Trip.model_validate_json(ask("structured", response_format=Trip).choices[0].message.content).model_dump()


@scenario
def conversation():
    chosen = ask("plain one").conversation["id"]
    document = {"title": "Contract", "content": "Clause 14 says that the clause after it is void."}
    second = ask("plain two", extra_body={"conversation": chosen, "attachments": [document]})
    third = ask("plain three", extra_headers={"X-Conversation-Id": chosen})
    used = second.response_metadata["context_utilization"]["artifacts_processed"]
    return {
        "same": chosen == second.conversation["id"] == third.conversation["id"],
        "attached": [one["source"] for one in used],
    }


@scenario
def errors():
    return {
        "bad": raised(lambda: ask("status 400")),
        "busy": raised(lambda: ask("status 429")),
        "unknown": raised(lambda: ask("plain", extra_body={"conversation": "conv_unknown"})),
        "stranger": raised(lambda: ask("plain", api_key="sk-stranger")),
        "in_stream": raised(lambda: list(ask("broken", stream=True))),
        "cut": raised(lambda: list(ask("cut", stream=True))),
    }


@scenario
def embeddings():
    return len(litellm.embedding(model="openai/text-embedding-3-small", input=["the sea"]).data[0]["embedding"])


@scenario
async def asynchronous():
    answer = await litellm.acompletion(model=NAME, messages=[user("plain async")])
    streaming = await litellm.acompletion(model=NAME, messages=[user("plain async stream")], stream=True)
    chunks = [chunk async for chunk in streaming]
    stalled = await litellm.acompletion(model=NAME, messages=[user("stall litellm async")], stream=True)
    async for _ in stalled:
        break
    await stalled.aclose()
    return {
        "total": answer.response_metadata["cost"]["total_cost"],
        "text": text_of(chunks),
        "streamed_total": billed(chunks),
        "cancelled": await asyncio.to_thread(seconds_until_cancelled, "stall litellm async"),
    }


main()
