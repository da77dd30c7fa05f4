"""pydantic-ai with its Responses model: what a user of it sees."""

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from scenarios import MODEL, main, scenario


class Trip(BaseModel):
    city: str
    days: int


def agent(sdk, **more):
    return Agent(OpenAIResponsesModel(MODEL, provider=OpenAIProvider(openai_client=sdk)), **more)


@scenario
async def plain():
    async with AsyncOpenAI(max_retries=0) as sdk:
        result = await agent(sdk).run("plain")
        stored = await sdk.chat.completions.retrieve(result.all_messages()[-1].provider_response_id)
        return {"text": result.output, "total": stored.response_metadata["cost"]["total_cost"]}


@scenario
async def streamed():
    async with AsyncOpenAI(max_retries=0) as sdk, agent(sdk).run_stream("plain streamed") as result:
        return "".join([piece async for piece in result.stream_text(delta=True)])


@scenario
async def tool_loop():
    seen = []
    async with AsyncOpenAI(max_retries=0) as sdk:
        armed = agent(sdk)

        @armed.tool_plain
        def weather(city: str) -> str:
            seen.append(["weather", {"city": city}])
            return "rain"

        @armed.tool_plain
        def clock(zone: str) -> str:
            seen.append(["clock", {"zone": zone}])
            return "noon"

        return {"text": (await armed.run("tools")).output, "calls": seen}


@scenario
async def parsed():
    async with AsyncOpenAI(max_retries=0) as sdk:
        return (await agent(sdk, output_type=NativeOutput(Trip)).run("trip")).output.model_dump()


main()
