"""OpenAI's agents, with a session: their default is Responses."""

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
from scenarios import MODEL, main, scenario

set_tracing_disabled(True)
seen = []


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    seen.append(["weather", {"city": city}])
    return "rain"


@function_tool
def clock(zone: str) -> str:
    """The time in a zone."""
    seen.append(["clock", {"zone": zone}])
    return "noon"


agent = Agent(name="Guide", instructions="Answer.", model=MODEL, tools=[weather, clock])


@scenario
async def session():
    """One scenario, as the client that they share keeps its connections to one loop."""
    notes = SQLiteSession("trip")
    first = await Runner.run(agent, "tools", session=notes)
    second = await Runner.run(agent, "plain", session=notes)
    kept = len(await notes.get_items())
    run = Runner.run_streamed(agent, "plain streamed")
    kinds = [event.data.type async for event in run.stream_events() if event.type == "raw_response_event"]
    outputs = [first.final_output, second.final_output, run.final_output]
    return {"calls": seen, "outputs": outputs, "kept": kept, "last": kinds[-1]}


main()
