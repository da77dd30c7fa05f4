"""The size of a bill: an answer tells what its request decided, the stored bill tells everything (guarantee §6.2)."""

import json
from typing import Any

import pytest

from tests.support.answers import Json, all_used, chat, exact, read_stream, stored, used, user
from tests.support.documents import lamps, prose
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply

STEPS = 300
SMALL = 6 * 1024 + 256
WORDS = 40


def steps(count: int, words: int = WORDS) -> list[Json]:
    """An agent's tool loop: calls with their results."""
    found: list[Json] = []
    for number in range(count):
        function = {"name": "search", "arguments": json.dumps({"page": number})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"Page {number}. {prose(number, words)}"
        found.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    return found


def sent(gateway: GatewayProcess, body: Json) -> bytes:
    """The answer's body as it comes over the wire."""
    answer = gateway.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.content


@pytest.mark.parametrize("begun", [0, STEPS - 1], ids=["at once", "step by step"])
@pytest.mark.parametrize("streamed", [False, True])
def test_s6_2_an_answer_of_one_word_is_small_after_300_tool_steps(
    one_gateway: GatewayProcess, upstream: MockUpstream, begun: int, streamed: bool
) -> None:
    """Whole or streamed, with a usage chunk or without, in one request or as the last of a conversation."""
    messages = [user(f"Find the page, {begun} {streamed}."), *steps(STEPS)]
    more: Json = {}
    if begun:
        upstream.reply(text="on it")
        first = chat(one_gateway, model="gpt-4o", messages=messages[: 1 + 2 * begun])
        more = {"conversation": first["conversation"]}
    body: Json = {"model": "gpt-4o", "messages": messages, **more}
    if streamed:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    upstream.reply(text="yes")
    assert len(sent(one_gateway, body)) < SMALL


def test_s6_2_also_where_hundreds_of_steps_had_to_leave(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A pass over 300 steps: the largest is listed and the others are counted, the stored bill has each of them."""
    body: Json = {"model": "small", "messages": [user("Find the page."), *steps(STEPS)]}
    upstream.reply(text="yes")
    streamed = sent(one_gateway, {**body, "stream": True, "stream_options": {"include_usage": True}})
    upstream.reply(text="yes")
    raw = sent(one_gateway, body)
    assert max(len(raw), len(streamed)) < SMALL
    answer = exact(raw)
    told, whole = used(answer), all_used(one_gateway, answer)
    assert len(whole["artifacts_processed"]) == STEPS
    listed, omitted = len(told["artifacts_processed"]), told["artifacts_omitted"]["count"]
    assert listed + omitted + told["artifacts_standing"]["count"] == STEPS
    assert min(listed, omitted) > 0


def test_s6_2_a_bill_without_a_conversation_counts_what_stands(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Of a request that is not stored there is nothing that a list of it would explain."""
    messages = [user("Find the page."), *steps(STEPS)]
    upstream.reply(text="yes")
    answer = chat(one_gateway, model="gpt-4o", messages=messages, store=False)
    left = stored(one_gateway, answer["response_metadata"]["request_id"])
    assert len(json.dumps(left, default=str)) < SMALL
    chars = sum(len(message["content"]) for message in messages[2::2])
    assert used(left)["artifacts_standing"] == {"count": STEPS, "chars": chars}


def test_s6_2_what_a_request_decided_is_listed_and_what_stands_is_counted(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """§6.2, from turn to turn: a new result, the same standing, then reduced by a pass."""
    begin = [user("Find it."), *steps(3, 200)]
    tools: Json = {"tools": [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]}
    upstream.reply(text="found")
    first = chat(one_gateway, model="small", messages=begin, **tools)
    assert [r["source"] for r in used(first)["artifacts_processed"]] == [f"step_{n}:search" for n in (1, 2, 3)]
    assert used(first)["artifacts_standing"] == {"count": 0, "chars": 0}
    again = chat(one_gateway, model="small", messages=[user("Sure?")], conversation=first["conversation"], **tools)
    chars = sum(len(message["content"]) for message in begin[2::2])
    assert used(again)["artifacts_processed"] == []
    assert used(again)["artifacts_standing"] == {"count": 3, "chars": chars}
    records = all_used(one_gateway, again)["artifacts_processed"]
    assert [r["standing"] for r in records] == [True] * 3
    document = {"title": "Lamps", "content": lamps(40)}
    passed = chat(
        one_gateway,
        model="small",
        messages=[user("Who is the keeper of lamp 7?")],
        attachments=[document],
        conversation=first["conversation"],
        **tools,
    )
    told = used(passed)
    assert any(r["source"].startswith("attachment:0:Lamps") for r in told["artifacts_processed"])
    listed = {r["artifact_id"] for r in told["artifacts_processed"]}
    for record in all_used(one_gateway, passed)["artifacts_processed"]:
        assert (record["artifact_id"] in listed) != record.get("standing", False)


PLAN = every("rag_extract", extraction_query="keepers, namely", relevance_rationale="a rationale, namely")
SAID = ("keepers, namely", "a rationale, namely")


@pytest.fixture
def planning(start_gateway: GatewayFactory) -> GatewayProcess:
    """A gateway whose planner may be asked."""
    return start_gateway({"context": {"planning": "auto"}})


def test_s6_2_also_where_a_plan_decided_on_all_of_them(planning: GatewayProcess, upstream: MockUpstream) -> None:
    """With what planner and summarizer took and saved in each copy of the bill: the finish chunk's and the usage
    chunk's."""
    upstream.handler = models = InternalModels(every("summarize"), primary=lambda body: Reply(text="yes"))
    body: Json = {"model": "small", "messages": [user("Find the page."), *steps(STEPS, 3 * WORDS)]}
    raw = sent(planning, {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert len(models.planned) == 1
    assert b'"artifacts_omitted"' in raw
    assert len(raw) < SMALL


def test_s6_2_a_planners_reasons_are_stored_and_in_no_answer(planning: GatewayProcess, upstream: MockUpstream) -> None:
    """They stand in the stored completion, alone and listed; neither in an answer, nor in a stream, nor on the ledger
    once the conversation is deleted."""
    upstream.handler = models = InternalModels(PLAN)
    ask: dict[str, Any] = {"model": "small", "messages": [user("Who is the keeper of lamp 41?")]}
    ask["attachments"] = [{"title": "Lamps", "content": lamps(60)}]
    answer = chat(planning, **ask)
    wire = read_stream(planning, {**ask, "messages": [user("Who is the keeper of lamp 42?")]})
    assert len(models.planned) == 2
    for each in (answer, wire.chunks):
        assert not any(word in json.dumps(each, default=str) for word in SAID)
        assert "search_queries" not in json.dumps(each, default=str)
    page = planning.get("/chat/completions", params={"conversation": answer["conversation"]["id"]}).json()
    for found in (stored(planning, answer["id"]), page["data"][0]):
        plan = used(found)["plan"]
        (decided,) = plan["artifacts"]
        assert (decided["extraction_query"], decided["relevance_rationale"]) == SAID
        assert {"reasoning", "search_queries"} <= plan.keys()
        assert decided["artifact_id"] == used(answer)["artifacts_processed"][0]["artifact_id"]
    planning.delete(f"/conversations/{answer['conversation']['id']}")
    left = stored(planning, answer["id"])
    assert "plan" not in used(left)
    assert not any(word in json.dumps(left, default=str) for word in SAID)


def test_s6_2_a_dry_run_tells_the_planners_reasons(planning: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.handler = InternalModels(PLAN)
    body = {"model": "small", "messages": [user("Who is the keeper of lamp 41?")], "context": {"dry_run": True}}
    dry = chat(planning, **body, attachments=[{"title": "Lamps", "content": lamps(60)}])
    (decided,) = used(dry)["plan"]["artifacts"]
    assert (decided["extraction_query"], decided["relevance_rationale"]) == SAID


def test_s6_2_of_store_false_nothing_that_a_planner_said_is_kept(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    upstream.handler = InternalModels(PLAN)
    body = {"model": "small", "messages": [user("Who is the keeper of lamp 41?")], "store": False}
    answer = chat(planning, **body, attachments=[{"title": "Lamps", "content": lamps(60)}])
    left = stored(planning, answer["response_metadata"]["request_id"])
    assert not any(word in json.dumps(left, default=str) for word in SAID)
