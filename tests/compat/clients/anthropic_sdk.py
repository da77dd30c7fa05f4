"""Anthropic's official Python SDK: what a user of it sees."""

from anthropic import Anthropic, NotFoundError
from scenarios import BASE_URL, MODEL, TOOLS, main, scenario, user

client = Anthropic(base_url=BASE_URL.removesuffix("/v1"), max_retries=0, timeout=20)
COMMON = {"model": MODEL, "max_tokens": 500}
ARMS = [{"name": each["function"]["name"], "input_schema": each["function"]["parameters"]} for each in TOOLS]


def bill(message):
    return {
        "text": "".join(block.text for block in message.content if block.type == "text"),
        "cost": message.usage.cost,
        "total": message.response_metadata["cost"]["total_cost"],
        "conversation": message.conversation["id"][:5],
        "tokens": message.usage.input_tokens + message.usage.output_tokens,
    }


@scenario
def plain():
    return bill(client.messages.create(messages=[user("plain")], **COMMON))


@scenario
def stream_helper():
    with client.messages.stream(messages=[user("plain helper")], **COMMON) as stream:
        events = list(stream)
        final = stream.get_final_message()
    told = next(event for event in events if event.type == "message_delta")
    deltas = [event.text for event in events if event.type == "text"]
    text = "".join(block.text for block in final.content)
    total = told.response_metadata["cost"]["total_cost"]
    return {"text": text, "deltas": "".join(deltas), "cost": told.usage.cost, "total": total}


@scenario
def tool_loop():
    first = client.messages.create(messages=[user("tools")], tools=ARMS, **COMMON)
    calls = [block for block in first.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "done"} for call in calls]
    said = [user("tools"), {"role": "assistant", "content": first.content}, user(results)]
    second = client.messages.create(messages=said, tools=ARMS, **COMMON)
    same = first.conversation["id"] == second.conversation["id"]
    return {"calls": [[call.name, call.input] for call in calls], **bill(second), "same": same}


@scenario
def counted():
    return client.messages.count_tokens(model=MODEL, messages=[user("plain")]).input_tokens


@scenario
def unknown():
    try:
        client.messages.create(messages=[user("plain")], **COMMON, extra_body={"conversation": "conv_none"})
    except NotFoundError as error:
        return error.body["error"]["type"]


main()
