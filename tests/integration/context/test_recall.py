"""The tool `recall`: a model reads what its window leaves out, within one request (guarantee §10.11)."""

import json
import re
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from openai import OpenAI

from tests.support import o200k
from tests.support.answers import Json, chat, read_stream, stored, stored_of, used, user
from tests.support.command import gateway_command
from tests.support.documents import file_part, keeper, lamps, prose
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.tool_loop import recalls

pytestmark = pytest.mark.in_turn("stream")

BUDGET = 3200
ROOM = BUDGET // 4
LOG = lamps(400)
ASK = {"question": "Who keeps lamp 77?"}
OWN = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object", "properties": {}}}}
EITHER = pytest.mark.parametrize("stream", [False, True])


def body(*messages: Json, **more: Any) -> Json:
    """A request that has the tool, over a document of which hardly anything fits."""
    context = {"recall": True, "max_input_tokens": BUDGET, **more.pop("context", {})}
    return {"model": "small", "messages": list(messages), "context": context, **more}


def first(question: str = "Say hello.", **more: Any) -> Json:
    return body(user(question), attachments=[{"content": LOG, "title": "log"}], **more)


def asked(gateway: GatewayProcess, request: Json, *, stream: bool) -> Json:
    """The answer, put together where it is streamed."""
    if not stream:
        return chat(gateway, **request)
    wire = read_stream(gateway, {**request, "stream_options": {"include_usage": True}})
    assert wire.error is None, wire.error
    assert wire.done
    roles = [c["delta"]["role"] for chunk in wire.chunks for c in chunk["choices"] if "role" in c["delta"]]
    assert len(roles) == 1
    calls: dict[int, Json] = {}
    for fragment in (f for chunk in wire.chunks for c in chunk["choices"] for f in c["delta"].get("tool_calls", [])):
        call = calls.setdefault(fragment["index"], {"id": fragment.get("id"), "name": "", "arguments": ""})
        call["name"] += fragment["function"].get("name") or ""
        call["arguments"] += fragment["function"].get("arguments") or ""
    assert sorted(calls) == list(range(len(calls)))
    made = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
        for c in calls.values()
    ]
    message = {"content": wire.text or None, **({"tool_calls": made} if made else {})}
    reason = wire.finish["choices"][0]["finish_reason"]
    return {
        **wire.finish,
        "usage": wire.chunks[-1]["usage"],
        "choices": [{"message": message, "finish_reason": reason}],
    }


def counted(sent: Json) -> int:
    """The tokens of a prompt with its tools."""
    return o200k.prompt_tokens(sent["messages"], sent)


def said(answer: Json) -> Any:
    return answer["choices"][0]["message"]["content"]


def results(upstream: MockUpstream, number: int = -1) -> list[str]:
    """What the tool told the model before its request with this number."""
    return [m["content"] for m in upstream.chats[number].body["messages"] if m["role"] == "tool"]


def audited(gateway: GatewayProcess) -> None:
    report = gateway_command("audit", "--config", str(gateway.config_path), directory=gateway.directory)
    assert report.returncode == 0, report.stdout


@EITHER
def test_s10_11_a_model_reads_what_is_left_out(gateway: GatewayProcess, upstream: MockUpstream, stream: bool) -> None:
    """The client sees the last round alone; the bill has both, and adds up."""
    upstream.reply(**recalls(ASK, text="Let me look."))
    upstream.reply(text="It is Name539x.")
    answer = asked(gateway, first(), stream=stream)
    before, after = (each.body for each in upstream.chats)
    assert keeper(77) not in json.dumps(before)
    assert after["messages"][: len(before["messages"])] == before["messages"]
    assert after["tools"] == before["tools"]
    assert after["messages"][-2]["tool_calls"][0]["id"] == after["messages"][-1]["tool_call_id"]
    assert keeper(77) in results(upstream)[0]
    assert counted(before) <= BUDGET - ROOM
    assert counted(after) <= BUDGET
    assert said(answer) == "It is Name539x."
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert "tool_calls" not in answer["choices"][0]["message"]
    usage = answer["usage"]
    assert usage["prompt_tokens"] == sum(upstream.count_prompt(each) for each in (before, after))
    assert answer["response_metadata"]["usage"]["prompt_tokens"] == usage["prompt_tokens"]
    assert used(answer)["recall"]["rounds"] == 1
    assert usage["cost"] == usage["cost_details"]["upstream_inference_cost"] == _priced(usage)
    kept = stored(gateway, answer["id"])
    assert kept["response_metadata"] == answer["response_metadata"]
    assert kept["usage"]["prompt_tokens"] == usage["prompt_tokens"]
    assert kept["usage"]["cost"] == usage["cost"]
    audited(gateway)


def _priced(usage: Json) -> Any:
    """By the prices of `small`."""
    return usage["prompt_tokens"] * Decimal("1e-06") + usage["completion_tokens"] * Decimal("2e-06")


WAYS = [("stored", False), ("stored", True), ("unstored", False), ("by name", False)]


@pytest.mark.parametrize(("kept", "stream"), WAYS)
def test_s10_11_by_itself_from_the_pass_on_that_leaves_something_out(
    gateway: GatewayProcess, upstream: MockUpstream, kept: str, stream: bool
) -> None:
    """`auto`: an agent's model gets the tool where something leaves, and keeps it. Tools stand before all messages, so
    that at no other step they change: else the provider's cache would break at its very beginning (§4 I7)."""
    named = {"session": f"auto {stream}"} if kept == "by name" else {}
    context = {"recall": "auto", "max_input_tokens": BUDGET} | named
    more = {"model": "small", "context": context, "store": kept != "unstored", "tools": [OWN], "stream": stream}
    messages: list[Json] = [user("Who keeps lamp 77?")]
    sent: list[Json] = []
    for number in range(24):
        function = {"name": "lookup", "arguments": json.dumps({"page": number})}
        call = {"id": f"call_{kept}_{stream}_{number}", "type": "function", "function": function}
        upstream.reply(message={"role": "assistant", "content": None, "tool_calls": [call]})
        asked(gateway, {**more, "messages": messages}, stream=stream)
        sent.append(upstream.last.body)
        result = {"role": "tool", "tool_call_id": call["id"], "content": f"Page {number}. {prose(number, 150)}"}
        messages = [*messages, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    offers = [names_of(each["tools"]) for each in sent]
    since = offers.index(["lookup", "recall"])
    assert 3 < since < 20
    assert offers == [["lookup"]] * since + [["lookup", "recall"]] * (len(sent) - since)
    pairs = [(one["messages"], two["messages"]) for one, two in pairwise(sent)]
    broken = [number for number, (one, two) in enumerate(pairs, 1) if two[: len(one)] != one]
    assert broken[0] == since, "it came with the pass"
    assert len(broken) < (len(sent) - since) / 2
    assert all(counted(each) <= BUDGET for each in sent[:since])
    assert all(counted(each) <= BUDGET - ROOM for each in sent[since:])
    upstream.reply(**recalls({"question": "What does Page 0 say?"}))
    upstream.reply(text="Much.")
    answer = asked(gateway, {**more, "messages": messages}, stream=stream)
    assert used(answer)["recall"]["rounds"] == 1
    before, after = (each.body["messages"] for each in upstream.chats[-2:])
    assert "Page 0." not in json.dumps(before)
    assert "Page 0." in after[-1]["content"]


def names_of(tools: list[Json]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


@pytest.mark.parametrize("more", [{}, {"tools": [OWN]}], ids=["no tools", "nothing left out"])
def test_s10_11_by_itself_it_is_not_offered_where_nobody_needs_it(
    gateway: GatewayProcess, upstream: MockUpstream, more: Json
) -> None:
    attached = [] if more else [{"content": LOG, "title": "log"}]
    request = body(user("Say hello."), context={"recall": "auto"}, attachments=attached, **more)
    answer = chat(gateway, **request)
    assert upstream.last.body.get("tools") == more.get("tools")
    assert "recall" not in used(answer)


def test_s10_11_by_itself_in_the_first_request_that_leaves_something_out(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Nothing was forwarded before it; and it is there in the next, in which nothing has to leave anew."""
    upstream.reply(**recalls(ASK))
    upstream.reply(text="It is Name539x.")
    answer = chat(gateway, **first(context={"recall": "auto"}, tools=[OWN]))
    assert keeper(77) in results(upstream)[0]
    before = upstream.last.body["tools"]
    assert names_of(before) == ["lookup", "recall"]
    more = body(user("Thanks."), context={"recall": "auto"}, tools=[OWN], conversation=answer["conversation"]["id"])
    chat(gateway, **more)
    assert upstream.last.body["tools"] == before


@EITHER
def test_s10_11_rounds_are_no_part_of_the_conversation(
    gateway: GatewayProcess, upstream: MockUpstream, stream: bool
) -> None:
    """Later requests begin with what the first one forwarded, without the rounds; nothing of them is stored."""
    upstream.reply(**recalls(ASK))
    upstream.reply(text="Hello.")
    answer = asked(gateway, first(), stream=stream)
    conversation = answer["conversation"]["id"]
    begun = upstream.chats[0].body["messages"]
    upstream.reply(text="Bye.")
    asked(gateway, body(user("Say bye."), conversation=conversation), stream=stream)
    later = upstream.last.body["messages"]
    assert later == [*begun, {"role": "assistant", "content": "Hello."}, user("Say bye.")]
    items = gateway.get(f"/conversations/{conversation}/items", params={"order": "asc"}).json()["data"]
    assert [item["type"] for item in items] == ["message"] * 4
    assert len(stored_of(gateway, conversation)) == 2


def test_s10_11_an_artifact_is_read_on_by_its_id(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Each call gives what was not shown yet, in its order; a small one is given whole."""
    upstream.reply(**recalls({"artifact_id": "art_none"}))
    upstream.reply(text="Hello.")
    answer = chat(gateway, **first())
    (named,) = results(upstream)
    name = named.split("in full: ")[1].rstrip(".")
    assert name.startswith("art_")
    upstream.reply(**recalls({"artifact_id": name}))
    upstream.reply(**recalls({"artifact_id": name}))
    upstream.reply(text="Done.")
    chat(
        gateway, **body(user("Read on."), conversation=answer["conversation"]["id"], context={"max_input_tokens": 4000})
    )
    one, two = results(upstream)
    shown = [[n for n in range(400) if keeper(n) in text] for text in (one, two)]
    assert shown[0]
    assert shown[1]
    assert max(shown[0]) < min(shown[1])


def test_s10_11_old_turns_are_found_by_question(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """With `store: false` as well: what the request itself brings is read within it."""
    old = [each for n in range(120) for each in (user(f"{keeper(n)} {lamps(1, 60)}"), _answer(f"Noted {n}."))]
    upstream.reply(**recalls({"question": "Who keeps lamp 23?"}))
    upstream.reply(text="Name161x.")
    answer = chat(gateway, **body(*old, user("Say hello."), store=False))
    assert said(answer) == "Name161x."
    assert keeper(23) not in json.dumps(upstream.chats[0].body)
    assert keeper(23) in results(upstream)[0]


def _answer(text: str) -> Json:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function", "function": {"name": "recall", "parameters": {"type": "object"}}}]},
        {"tools": [OWN], "tool_choice": "required"},
        {"n": 2},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"context": {"mode": "off"}},
        {"context": {"recall": False}},
        {"model": "bench", "context": {"max_input_tokens": None}},
    ],
    ids=["own name", "forced", "two answers", "signed thoughts", "off", "not wanted", "unknown window"],
)
def test_s10_11_it_is_not_there_where_it_may_not_be(
    gateway: GatewayProcess, upstream: MockUpstream, more: Json
) -> None:
    request = body(user("Hello."), **more)
    request["context"] = {name: value for name, value in request["context"].items() if value is not None}
    if request["context"].get("mode") == "off":
        del request["context"]["max_input_tokens"]
    answer = chat(gateway, **request)
    assert upstream.last.body.get("tools") == more.get("tools")
    assert "recall" not in used(answer)


@EITHER
def test_s10_11_rounds_come_to_an_end(gateway: GatewayProcess, upstream: MockUpstream, stream: bool) -> None:
    """A model that does not stop calling is asked once more with `tool_choice: none`; if it calls all the same, as if
    the tool had never been there."""
    for _ in range(4):
        upstream.reply(**recalls({"question": "lamp 5"}))
    upstream.reply(text="Hello.")
    answer = asked(gateway, first(context={"max_input_tokens": 2 * BUDGET}), stream=stream)
    assert said(answer) == "Hello."
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert [each.body.get("tool_choice") for each in upstream.chats] == [None, None, None, "none", None]
    assert "tools" not in upstream.chats[-1].body
    assert upstream.chats[-1].body["messages"] == upstream.chats[0].body["messages"]
    assert all(counted(each.body) <= 2 * BUDGET for each in upstream.chats)
    assert used(answer)["recall"]["rounds"] == 3
    assert used(answer)["recall"]["tokens"] <= 2 * ROOM


@EITHER
def test_s10_11_a_round_that_is_refused_costs_what_it_read_alone(
    gateway: GatewayProcess, upstream: MockUpstream, stream: bool
) -> None:
    upstream.reply(**recalls(ASK))
    upstream.reply(status=400, json={"error": {"message": "no messages of the role tool"}})
    upstream.reply(text="Hello.")
    answer = asked(gateway, first(), stream=stream)
    assert said(answer) == "Hello."
    assert upstream.chats[-1].body["messages"] == upstream.chats[0].body["messages"]
    assert used(answer)["recall"]["rounds"] == 1


@EITHER
def test_s10_11_calls_of_the_clients_own_tools_are_the_answer(
    gateway: GatewayProcess, upstream: MockUpstream, stream: bool
) -> None:
    """A call of the tool beside them is taken out: the model can call it again in the next step."""
    reply = recalls(ASK)
    own = {"id": "own_1", "type": "function", "function": {"name": "lookup", "arguments": '{"x": 1}'}}
    reply["message"]["tool_calls"].append(own)
    upstream.reply(**reply)
    answer = asked(gateway, first(tools=[OWN]), stream=stream)
    assert answer["choices"][0]["message"]["tool_calls"] == [own]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert len(upstream.chats) == 1
    step = {"role": "tool", "tool_call_id": "own_1", "content": "found"}
    upstream.reply(**recalls(ASK))
    upstream.reply(text="Done.")
    done = asked(gateway, body(step, conversation=answer["conversation"]["id"], tools=[OWN]), stream=stream)
    assert said(done) == "Done."
    assert keeper(77) in results(upstream)[-1]


def test_s10_11_long_text_before_a_call_is_a_part_of_the_answer(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """A stream has shown it by then; so it stands in an answer that is not streamed, too."""
    long = "A long word before. " * 40
    found = []
    for stream in (False, True):
        upstream.reply(**recalls(ASK, text=long))
        upstream.reply(text="It is Name539x.")
        found.append(said(asked(gateway, first(), stream=stream)))
    assert found == [f"{long}\n\nIt is Name539x."] * 2


@pytest.mark.parametrize("given", ["no JSON", [], {"question": 3}, {}])
def test_s10_11_a_wrong_call_is_told_the_model(gateway: GatewayProcess, upstream: MockUpstream, given: Any) -> None:
    upstream.reply(**recalls(given))
    upstream.reply(text="Hello.")
    assert said(chat(gateway, **first())) == "Hello."
    (text,) = results(upstream)
    assert "context_data" not in text
    assert len(text) < 300


@EITHER
def test_s10_11_a_call_that_has_no_room_is_as_if_not_made(
    gateway: GatewayProcess, upstream: MockUpstream, stream: bool
) -> None:
    upstream.reply(**recalls({"question": "which " * 5000}))
    upstream.reply(text="Hello.")
    assert said(asked(gateway, first(), stream=stream)) == "Hello."
    before, after = (each.body for each in upstream.chats)
    assert after["messages"] == before["messages"]
    assert after["tool_choice"] == "none"


@EITHER
def test_s10_11_by_the_words_of_responses(upstream: MockUpstream, client: OpenAI, stream: bool) -> None:
    """The same through another API: one answer, one bill."""
    upstream.reply(**recalls(ASK, text="Let me look."))
    upstream.reply(text="It is Name539x.")
    extra = {"context": first()["context"], "attachments": first()["attachments"]}
    answer: Any
    if stream:
        events: list[Any] = list(client.responses.create(model="small", input="Hello.", stream=True, extra_body=extra))
        assert "".join(each.delta for each in events if each.type == "response.output_text.delta") == "It is Name539x."
        answer = events[-1].response
    else:
        answer = client.responses.create(model="small", input="Hello.", extra_body=extra)
    assert answer.output_text == "It is Name539x."
    assert [each.type for each in answer.output] == ["message"]
    assert keeper(77) in results(upstream)[0]
    assert answer.usage.input_tokens == sum(upstream.count_prompt(each.body) for each in upstream.chats)


def test_s10_11_money_and_a_model_without_tools(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """Configured for all; a round that costs as much as they may is the last; a refusal of tools costs the tool."""
    gateway = start_gateway({"context": {"recall": True, "recall_max_cost": 1e-09}})
    request = {**first(), "context": {"max_input_tokens": BUDGET}}
    upstream.reply(**recalls(ASK))
    upstream.reply(text="Hello.")
    assert said(chat(gateway, **request)) == "Hello."
    assert [each.body.get("tool_choice") for each in upstream.chats] == [None, "none"]
    upstream.reply(status=400, json={"error": {"message": "small does not support tools"}})
    upstream.reply(text="Hello again.")
    assert said(chat(gateway, **request)) == "Hello again."
    assert "tools" not in upstream.last.body
    assert chat(gateway, **{**request, "model": "bench"})["choices"]
    assert "tools" not in upstream.last.body


def test_s10_11_calls_that_share_an_index_are_told_apart(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Some providers send all calls with one index; a new id begins a new call."""

    def piece(finish: str | None = None, **delta: Any) -> Json:
        return {"id": "x", "object": "chat.completion.chunk", "choices": [_choice(delta, finish)]}

    def call(identity: str, name: str, arguments: str) -> Json:
        function = {"name": name, "arguments": arguments}
        return {"index": 0, "id": identity, "type": "function", "function": function}

    upstream.reply(
        chunks=[
            piece(role="assistant", content=None),
            piece(tool_calls=[call("r1", "recall", json.dumps(ASK))]),
            piece(tool_calls=[call("o1", "lookup", '{"x"')]),
            piece(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
            piece(tool_calls=[call("r2", "recall", json.dumps(ASK))]),
            piece(tool_calls=[call("o2", "lookup", "{}")]),
            piece("tool_calls"),
        ]
    )
    answer = asked(gateway, first(tools=[OWN]), stream=True)
    made = answer["choices"][0]["message"]["tool_calls"]
    assert [(each["id"], each["function"]["arguments"]) for each in made] == [("o1", '{"x": 1}'), ("o2", "{}")]
    (kept,) = stored_of(gateway, answer["conversation"]["id"])
    assert [each["id"] for each in kept["choices"][0]["message"]["tool_calls"]] == ["o1", "o2"]


def _choice(delta: Json, finish: str | None) -> Json:
    return {"index": 0, "delta": delta, "finish_reason": finish}


CALL: Json = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
STEP: list[Json] = [{"role": "assistant", "content": None, "tool_calls": [CALL]}]
RESULT: Json = {"role": "tool", "tool_call_id": "c1", "content": LOG}
LATER: list[Json] = [{"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": "c2"}]}]
READ = {"type": "text", "text": "Read:"}
CUT: dict[str, list[Json]] = {
    "result": [user("Say hello."), *STEP, RESULT],
    "result of an earlier step": [
        user("Say hello."),
        *STEP,
        RESULT,
        *LATER,
        {**RESULT, "tool_call_id": "c2", "content": "x"},
    ],
    "document in a result": [
        user("Say hello."),
        *STEP,
        {**RESULT, "content": [READ, file_part("a.md", LOG.encode(), "text/markdown")]},
    ],
    "pasted": [user(f"Look:\n\n```\n{LOG}\n```\n\nSay hello.")],
    "file": [user([file_part("a.md", LOG.encode(), "text/markdown"), {"type": "text", "text": "Say hello."}])],
}


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("what", CUT)
def test_s10_11_what_is_cut_in_the_current_turn_is_read_as_well(
    gateway: GatewayProcess, upstream: MockUpstream, what: str, by_id: bool
) -> None:
    """None of it is said to be shown in full."""

    request = body(*CUT[what], tools=[OWN])
    seen = chat(gateway, **{**request, "context": {**request["context"], "dry_run": True}})
    (name,) = set(re.findall(r"art_[0-9a-f]{16}", json.dumps(seen["messages"])))
    upstream.reply(**recalls({**ASK, **({"artifact_id": name} if by_id else {})}))
    upstream.reply(text="It is Name539x.")
    chat(gateway, **request)
    assert keeper(77) not in json.dumps(upstream.chats[0].body)
    assert keeper(77) in results(upstream)[-1]
