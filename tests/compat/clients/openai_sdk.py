"""The official Python SDK, any major: what a user of it sees."""

import asyncio

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from scenarios import BASE_URL, MODEL, TOOLS, main, scenario, seconds_until_cancelled, user

client = OpenAI(max_retries=0, timeout=20)
chat = client.chat.completions


class Trip(BaseModel):
    city: str
    days: int


def ask(text, **more):
    return chat.create(model=MODEL, messages=[user(text)], **more)


def text_of(chunks, index=0):
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


def bill(answer):
    metadata = answer.response_metadata
    return {
        "text": answer.choices[0].message.content,
        "cost": answer.usage.cost,
        "total": metadata["cost"]["total_cost"],
        "conversation": answer.conversation["id"],
        "named": metadata["conversation_id"],
        "tokens": answer.usage.total_tokens,
        "request_id": answer._request_id == metadata["request_id"],
    }


def raised(function):
    try:
        function()
    except openai.APIError as error:
        return {
            "class": type(error).__name__,
            "status": getattr(error, "status_code", None),
            "code": error.code,
            "param": error.param,
            "message": error.message,
            "retry_after": error.response.headers.get("retry-after") if hasattr(error, "response") else None,
            "request_id": bool(getattr(error, "request_id", None)),
        }
    return None


@scenario
def plain():
    return bill(ask("plain"))


@scenario
def typed():
    answer = ask("plain typed")
    answer.model_dump_json()
    return type(answer).model_validate(answer.model_dump()).response_metadata["cost"]["total_cost"]


@scenario
def raw():
    response = chat.with_raw_response.create(model=MODEL, messages=[user("plain raw")])
    answer = response.parse()
    return {
        "cost": float(response.headers["x-gateway-response-cost"]),
        "conversation": response.headers["x-conversation-id"] == answer.conversation["id"],
        "request_id": response.headers["x-request-id"] == answer.response_metadata["request_id"],
    }


@scenario
def stream():
    chunks = list(ask("plain stream", stream=True))
    last = chunks[-1]
    return {
        "text": text_of(chunks),
        "first": "cost" not in chunks[0].response_metadata and chunks[0].conversation == last.conversation,
        "total": last.response_metadata["cost"]["total_cost"],
        "finish": last.choices[0].finish_reason,
        "empty": sum(not chunk.choices for chunk in chunks),
    }


@scenario
def stream_with_usage():
    chunks = list(ask("plain stream usage", stream=True, stream_options={"include_usage": True}))
    last = chunks[-1]
    return {
        "text": text_of(chunks),
        "cost": last.usage.cost,
        "total": last.response_metadata["cost"]["total_cost"],
        "finish_total": chunks[-2].response_metadata["cost"]["total_cost"],
        "empty": sum(not chunk.choices for chunk in chunks),
    }


@scenario
def odd_stream():
    chunks = list(ask("odd", stream=True))
    with chat.stream(model=MODEL, messages=[user("odd helper")]) as events:
        final = events.get_final_completion()
    return {
        "text": text_of(chunks),
        "helper": final.choices[0].message.content,
        "total": chunks[-1].response_metadata["cost"]["total_cost"],
        "empty": sum(not chunk.choices for chunk in chunks),
        "kept": [chunk.x_metrics for chunk in chunks if hasattr(chunk, "x_metrics")],
    }


@scenario
def mode_off():
    answer = ask("plain off", extra_body={"context": {"mode": "off"}})
    return [answer.choices[0].message.content, answer.usage.cost, answer.response_metadata["cost"]["total_cost"]]


@scenario
def stream_helper():
    with chat.stream(model=MODEL, messages=[user("plain helper")]) as events:
        seen = list(events)
        final = events.get_final_completion()
    chunks = [event.chunk for event in seen if event.type == "chunk"]
    return {
        "text": final.choices[0].message.content,
        "deltas": "".join(event.delta for event in seen if event.type == "content.delta"),
        "total": chunks[-1].response_metadata["cost"]["total_cost"],
        "id": final.id == chunks[0].id,
        "final_total": final.response_metadata["cost"]["total_cost"]
        if hasattr(final, "response_metadata") and "cost" in final.response_metadata
        else None,
        "looked_up": chat.retrieve(final.id).response_metadata["cost"]["total_cost"],
    }


@scenario
def stream_helper_with_usage():
    options = {"include_usage": True}
    with chat.stream(model=MODEL, messages=[user("plain helper usage")], stream_options=options) as events:
        final = events.get_final_completion()
    return {"text": final.choices[0].message.content, "cost": final.usage.cost, "tokens": final.usage.total_tokens}


@scenario
def tool_loop():
    messages = [user("tools plain")]
    first = chat.create(model=MODEL, messages=messages, tools=TOOLS)
    message = first.choices[0].message
    results = [{"role": "tool", "tool_call_id": c.id, "content": f"{c.function.name} done"} for c in message.tool_calls]
    last = chat.create(model=MODEL, messages=[*messages, message, *results], tools=TOOLS)
    return {
        "calls": [[c.function.name, c.function.arguments] for c in message.tool_calls],
        "text": last.choices[0].message.content,
        "total": last.response_metadata["cost"]["total_cost"],
    }


@scenario
def tool_loop_streamed():
    messages = [user("tools streamed")]
    with chat.stream(model=MODEL, messages=messages, tools=TOOLS) as events:
        done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
        message = events.get_final_completion().choices[0].message
    results = [{"role": "tool", "tool_call_id": c.id, "content": f"{c.function.name} done"} for c in message.tool_calls]
    resent = {
        "role": "assistant",
        "content": None,
        "tool_calls": [c.model_dump(exclude={"function": {"parsed_arguments"}}) for c in message.tool_calls],
    }
    with chat.stream(model=MODEL, messages=[*messages, resent, *results], tools=TOOLS) as events:
        chunks = [event.chunk for event in events if event.type == "chunk"]
    return {
        "calls": [[event.name, event.arguments] for event in done],
        "text": text_of(chunks),
        "total": chunks[-1].response_metadata["cost"]["total_cost"],
    }


@scenario
def structured():
    answer = chat.parse(model=MODEL, messages=[user("structured")], response_format=Trip)
    return {"parsed": answer.choices[0].message.parsed.model_dump(), "cost": answer.usage.cost}


@scenario
def structured_streamed():
    with chat.stream(model=MODEL, messages=[user("structured streamed")], response_format=Trip) as events:
        final = events.get_final_completion()
    return {"parsed": final.choices[0].message.parsed.model_dump()}


@scenario
def two_choices():
    answer = ask("plain two", n=2)
    chunks = list(ask("plain two streamed", n=2, stream=True))
    with chat.stream(model=MODEL, messages=[user("plain two helper")], n=2) as events:
        final = events.get_final_completion()
    return {
        "plain": [choice.message.content for choice in answer.choices],
        "streamed": [text_of(chunks, 0), text_of(chunks, 1)],
        "helper": [choice.message.content for choice in final.choices],
        "total": chunks[-1].response_metadata["cost"]["total_cost"],
    }


@scenario
def refusal():
    answer = ask("refusal")
    with chat.stream(model=MODEL, messages=[user("refusal streamed")], response_format=Trip) as events:
        final = events.get_final_completion()
    return {"plain": answer.choices[0].message.refusal, "streamed": final.choices[0].message.refusal}


@scenario
def logprobs():
    answer = ask("logprobs", logprobs=True)
    with chat.stream(model=MODEL, messages=[user("logprobs streamed")], logprobs=True) as events:
        final = events.get_final_completion()
    return [one.choices[0].logprobs.content[0].logprob for one in (answer, final)]


@scenario
def reasoning():
    answer = ask("reasoning")
    chunks = list(ask("reasoning streamed", stream=True))
    streamed = [getattr(c.choices[0].delta, "reasoning_content", None) or "" for c in chunks]
    return {"plain": answer.choices[0].message.reasoning_content, "streamed": "".join(streamed)}


@scenario
def errors():
    stranger = OpenAI(api_key="sk-stranger", max_retries=0)
    found = {status: raised(lambda status=status: ask(f"status {status}")) for status in (400, 404, 422, 429, 500, 503)}
    return found | {
        "streamed": raised(lambda: ask("status 400", stream=True)),
        "stranger": raised(lambda: stranger.chat.completions.create(model=MODEL, messages=[user("plain")])),
        "ours": raised(lambda: ask("plain", extra_body={"attachments": [{}]})),
        "unknown": raised(lambda: ask("plain", extra_body={"conversation": "conv_unknown"})),
    }


@scenario
def retries():
    patient = client.with_options(max_retries=2)
    return patient.chat.completions.create(model=MODEL, messages=[user("busy")]).choices[0].message.content


@scenario
def error_in_stream():
    return raised(lambda: list(ask("broken", stream=True)))


@scenario
def cut_stream():
    return raised(lambda: list(ask("cut", stream=True)))


@scenario
def conversation():
    first = ask("plain one")
    chosen = first.conversation["id"]
    by_body = ask("plain two", extra_body={"conversation": chosen})
    by_header = ask("plain three", extra_headers={"X-Conversation-Id": chosen})
    named = [ask("plain", extra_headers={"X-Context-Session": "diary"}).conversation["id"] for _ in range(2)]
    listed = chat.list(extra_query={"conversation": chosen})
    return {
        "same": {one.conversation["id"] for one in (first, by_body, by_header)} == {chosen},
        "session": named[0] == named[1] != chosen,
        "listed": [one.id for one in listed] == [first.id, by_body.id, by_header.id],
        "listed_cost": sum(one.response_metadata["cost"]["total_cost"] for one in listed),
        "retrieved": chat.retrieve(first.id).choices[0].message.content,
        "by_request": chat.retrieve(first.response_metadata["request_id"]).id == first.id,
    }


@scenario
def attachments():
    document = {"title": "Contract", "content": "Clause 14 says that the clause after it is void."}
    answer = ask("plain attached", extra_body={"attachments": [document], "context": {"mode": "simple"}})
    (used,) = answer.response_metadata["context_utilization"]["artifacts_processed"]
    return used["source"]


@scenario
def models():
    return {"listed": [one.id for one in client.models.list()], "one": client.models.retrieve(MODEL).id}


@scenario
def other_paths():
    vector = client.embeddings.create(model="text-embedding-3-small", input="the sea").data[0].embedding
    with client.responses.stream(model=MODEL, input="plain") as events:
        streamed = events.get_final_response().output_text
    return {
        "embedding": len(vector),
        "response": client.responses.create(model=MODEL, input="plain").output_text,
        "response_streamed": streamed,
        "batches": raised(lambda: client.batches.list()),
        "files": [each.id for each in client.files.list()],
    }


@scenario
def abort():
    with ask("stall abort", stream=True) as chunks:
        next(iter(chunks))
    return seconds_until_cancelled("stall abort")


@scenario
def abort_helper():
    with chat.stream(model=MODEL, messages=[user("stall helper")]) as events:
        next(iter(events))
    return seconds_until_cancelled("stall helper")


@scenario
async def asynchronous():
    async with AsyncOpenAI(max_retries=0) as own:
        answer = await own.chat.completions.create(model=MODEL, messages=[user("plain async")])
        chunks = [
            c async for c in await own.chat.completions.create(model=MODEL, messages=[user("plain")], stream=True)
        ]
        async with own.chat.completions.stream(
            model=MODEL, messages=[user("structured")], response_format=Trip
        ) as events:
            final = await events.get_final_completion()
        stalled = await own.chat.completions.create(model=MODEL, messages=[user("stall async")], stream=True)
        async for _ in stalled:
            break
        await stalled.close()
        gone = await asyncio.to_thread(seconds_until_cancelled, "stall async")
    return {
        "plain": bill(answer),
        "text": text_of(chunks),
        "total": chunks[-1].response_metadata["cost"]["total_cost"],
        "parsed": final.choices[0].message.parsed.model_dump(),
        "cancelled": gone,
    }


assert str(client.base_url).rstrip("/") == BASE_URL
main()
