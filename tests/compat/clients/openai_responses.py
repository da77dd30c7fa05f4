"""The official Python SDK, any major, by Responses: what a user of it sees."""

import json

from openai import OpenAI
from pydantic import BaseModel
from scenarios import MODEL, TOOLS, main, scenario

client = OpenAI(max_retries=0, timeout=20)
responses = client.responses
FUNCTIONS = [{"type": "function", **tool["function"]} for tool in TOOLS]


class Trip(BaseModel):
    city: str
    days: int


def bill(response):
    return {
        "text": response.output_text,
        "cost": response.usage.cost,
        "total": response.response_metadata["cost"]["total_cost"],
        "conversation": response.conversation.id[:5],
        "tokens": response.usage.total_tokens,
    }


@scenario
def plain():
    return bill(responses.create(model=MODEL, input="plain"))


@scenario
def stream_helper():
    with responses.stream(model=MODEL, input="plain helper") as events:
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        final = events.get_final_response()
    return {**bill(final), "deltas": "".join(deltas)}


@scenario
def tool_loop():
    first = responses.create(model=MODEL, input="tools", tools=FUNCTIONS)
    calls = [item for item in first.output if item.type == "function_call"]
    sent = [{"role": "user", "content": "tools"}, *[item.model_dump(exclude_none=True) for item in first.output]]
    sent += [{"type": "function_call_output", "call_id": call.call_id, "output": "done"} for call in calls]
    second = responses.create(model=MODEL, input=sent, tools=FUNCTIONS)
    same = first.conversation.id == second.conversation.id
    return {"calls": [[call.name, json.loads(call.arguments)] for call in calls], **bill(second), "same": same}


@scenario
def parsed():
    return responses.parse(model=MODEL, input="trip", text_format=Trip).output_parsed.model_dump()


@scenario
def looked_up():
    response = responses.create(model=MODEL, input="plain again")
    stored = client.chat.completions.retrieve(response.id)
    return stored.response_metadata["cost"]["total_cost"]


main()
