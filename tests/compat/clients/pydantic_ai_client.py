"""pydantic-ai with its OpenAI chat model: what a user of it sees."""

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from scenarios import MODEL, main, scenario


class Trip(BaseModel):
    city: str
    days: int


def agent(sdk, **more):
    return Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=sdk)), **more)


async def looked_up(sdk, result):
    """The bill of a run's last answer, by the id that pydantic-ai keeps."""
    stored = await sdk.chat.completions.retrieve(result.all_messages()[-1].provider_response_id)
    return stored.response_metadata["cost"]["total_cost"]


@scenario
async def plain():
    async with AsyncOpenAI(max_retries=0) as sdk:
        result = await agent(sdk).run("plain")
        return {"text": result.output, "total": await looked_up(sdk, result)}


@scenario
async def stream():
    async with AsyncOpenAI(max_retries=0) as sdk, agent(sdk).run_stream("plain stream") as result:
        pieces = [piece async for piece in result.stream_text(delta=True)]
        return {"text": "".join(pieces), "total": await looked_up(sdk, result)}


@scenario
async def odd_stream():
    async with AsyncOpenAI(max_retries=0) as sdk, agent(sdk).run_stream("odd") as result:
        return await result.get_output()


@scenario
async def tool_loop():
    seen = []
    async with AsyncOpenAI(max_retries=0) as sdk:
        armed = agent(sdk)

        @armed.tool_plain
        def weather(city: str) -> str:
            seen.append(["weather", {"city": city}])
            return "weather done"

        @armed.tool_plain
        def clock(zone: str) -> str:
            seen.append(["clock", {"zone": zone}])
            return "clock done"

        result = await armed.run("tools plain")
    return {"text": result.output, "calls": sorted(seen, reverse=True)}


@scenario
async def structured():
    async with AsyncOpenAI(max_retries=0) as sdk:
        return (await agent(sdk, output_type=NativeOutput(Trip)).run("structured")).output.model_dump()


@scenario
async def conversation():
    async with AsyncOpenAI(max_retries=0) as sdk:
        settings = {"extra_headers": {"X-Context-Session": "diary"}}
        ids = []
        for text in ("plain one", "plain two"):
            result = await agent(sdk).run(text, model_settings=settings)
            answer = await sdk.chat.completions.retrieve(result.all_messages()[-1].provider_response_id)
            ids.append(answer.conversation["id"])
    return ids[0] == ids[1]


@scenario
async def errors():
    async with AsyncOpenAI(max_retries=0) as sdk:
        try:
            await agent(sdk).run("status 400")
        except ModelHTTPError as error:
            return error.status_code
    return None


main()
