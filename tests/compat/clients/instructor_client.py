"""instructor: typed answers; what a user of it sees."""

import instructor
from openai import OpenAI
from pydantic import BaseModel
from scenarios import MODEL, main, scenario, user

client = instructor.from_openai(OpenAI(max_retries=0), mode=instructor.Mode.JSON_SCHEMA)


class Trip(BaseModel):
    city: str
    days: int


@scenario
def plain():
    trip, answer = client.chat.completions.create_with_completion(
        model=MODEL, messages=[user("structured")], response_model=Trip
    )
    return {
        "parsed": trip.model_dump(),
        "cost": answer.usage.cost,
        "total": answer.response_metadata["cost"]["total_cost"],
        "on_the_model": trip._raw_response.response_metadata["cost"]["total_cost"],
    }


@scenario
def stream():
    parts = client.chat.completions.create_partial(
        model=MODEL, messages=[user("structured streamed")], response_model=Trip
    )
    return list(parts)[-1].model_dump()


@scenario
def conversation():
    first = client.chat.completions.create(model=MODEL, messages=[user("structured one")], response_model=Trip)
    chosen = first._raw_response.conversation["id"]
    second = client.chat.completions.create(
        model=MODEL, messages=[user("structured two")], response_model=Trip, extra_body={"conversation": chosen}
    )
    return second._raw_response.conversation["id"] == chosen


main()
