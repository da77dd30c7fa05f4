"""`context_management.edits` of `/v1/messages`, for a model that knows nothing of them (guarantee §10.15)."""

import json
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import TypeAdapter

from tests.support.answers import Json
from tests.support.gateway_process import GatewayProcess
from tests.support.messages import TOOL, asked, events_of, post, sdk
from tests.support.mock_upstream import MockUpstream

MESSAGE, EVENT = TypeAdapter(BetaMessage), TypeAdapter[Any](BetaRawMessageStreamEvent)
FILLER = "The harbour master wrote of tides and cranes and the price of rope. " * 40
BOTH = pytest.mark.parametrize("stream", [False, True])
CLEARED = "[Cleared to make room, as the client asked.]"


def steps(count: int, tool: str = "weather") -> list[Json]:
    """A question and so many tool steps, each with a long result."""
    turns: list[Json] = [{"role": "user", "content": "How is the weather?"}]
    for number in range(count):
        call = {"type": "tool_use", "id": f"{tool}{number}", "name": tool, "input": {"city": f"City {number}"}}
        result = {"type": "tool_result", "tool_use_id": f"{tool}{number}", "content": f"Result {number}: {FILLER}"}
        turns += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return turns


def talk(count: int) -> list[Json]:
    """A long talk, and a question behind it."""
    found: list[Json] = []
    for number in range(count):
        found.append({"role": "user", "content": f"Question {number}"})
        found.append({"role": "assistant", "content": f"Answer {number}: {FILLER}"})
    return [*found, {"role": "user", "content": "And the last one?"}]


def ask(gateway: GatewayProcess, body: Json, *, stream: bool) -> Json:
    """A message, whole or put together from its events, each judged by the SDK's own beta models."""
    response = post(gateway, {**body, "stream": stream})
    assert response.status_code == 200, response.text
    if not stream:
        MESSAGE.validate_json(response.content, strict=True)
        return dict(response.json())
    events = events_of(response.text)
    message: Json = {}
    for each in events:
        if each["type"] == "ping":
            continue
        EVENT.validate_json(json.dumps(each), strict=True)
        if each["type"] == "message_start":
            message = dict(each["message"])
        elif each["type"] == "content_block_start":
            assert each["index"] == len(message["content"])
            message["content"].append(dict(each["content_block"]))
        elif each["type"] == "content_block_delta":
            delta = {k: v for k, v in each["delta"].items() if k != "type"}
            block = message["content"][each["index"]]
            block.update({k: (block.get(k) or "") + v for k, v in delta.items()})
        elif each["type"] == "message_delta":
            message |= {k: v for k, v in each.items() if k not in ("type", "delta")} | each["delta"]
    assert events[-1]["type"] == "message_stop"
    return message


def results(upstream: MockUpstream) -> list[bool]:
    """Of each tool result that went up, whether it was cleared."""
    return [each["content"] == CLEARED for each in upstream.last.body["messages"] if each["role"] == "tool"]


def tokens(value: int) -> Json:
    return {"type": "input_tokens", "value": value}


def clear(**fields: Any) -> Json:
    return {"context_management": {"edits": [{"type": "clear_tool_uses_20250919", **fields}]}}


@BOTH
def test_s10_15_tool_uses_are_cleared_as_the_edit_says(
    one_gateway: GatewayProcess, upstream: MockUpstream, stream: bool
) -> None:
    """`trigger` by uses and by tokens, `keep`, `exclude_tools`, `clear_at_least`, `clear_tool_inputs`; the figures."""
    uses: Json = {"trigger": {"type": "tool_uses", "value": 3}}
    turns = steps(6)
    body = asked(messages=turns, tools=[TOOL])
    told = ask(one_gateway, {**body, **clear(**uses)}, stream=stream)
    assert results(upstream) == [True] * 3 + [False] * 3
    (edit,) = told["context_management"]["applied_edits"]
    assert (edit["type"], edit["cleared_tool_uses"]) == ("clear_tool_uses_20250919", 3)
    assert 3 * len(FILLER) // 5 < edit["cleared_input_tokens"] < 3 * len(FILLER) // 3
    assert told["response_metadata"]["context_utilization"]["tokens_estimated"] is True
    for fields, expected in (
        ({**uses, "keep": {"type": "tool_uses", "value": 1}}, [True] * 5 + [False]),
        ({**uses, "keep": {"type": "tool_uses", "value": 0}}, [True] * 6),
        ({**uses, "keep": {"type": "tool_uses", "value": 8}}, [False] * 6),
        ({"trigger": {"type": "tool_uses", "value": 6}}, [False] * 6),
        ({**uses, "clear_at_least": tokens(100_000)}, [False] * 6),
        ({**uses, "clear_at_least": tokens(1000)}, [True] * 3 + [False] * 3),
        ({**uses, "exclude_tools": ["weather"]}, [False] * 6),
        ({"trigger": tokens(500), "keep": {"type": "tool_uses", "value": 2}}, [True] * 4 + [False] * 2),
        ({"trigger": tokens(90_000), "keep": {"type": "tool_uses", "value": 2}}, [False] * 6),
    ):
        told = ask(one_gateway, {**body, **clear(**fields)}, stream=stream)
        assert results(upstream) == expected, fields
        assert bool(told["context_management"]["applied_edits"]) == any(expected)
    for inputs, gone in ((True, 3), (["weather"], 3), (["other"], 0), (False, 0)):
        ask(one_gateway, {**body, **clear(**uses, clear_tool_inputs=inputs)}, stream=stream)
        calls = [call for each in upstream.last.body["messages"] for call in each.get("tool_calls") or ()]
        assert [call["function"]["arguments"] for call in calls].count("{}") == gone, inputs


def test_s10_15_tokens_are_counted_without_what_an_edit_clears(one_gateway: GatewayProcess) -> None:
    """As Anthropic counts them: with edits, and beside it without them. The bill of a request says no other."""
    turns = steps(6)
    cleared = json.loads(json.dumps(turns))
    for turn in cleared[2:10:2]:
        turn["content"][0]["content"] = CLEARED

    def counted(messages: list[Json], **more: Any) -> Json:
        body = {"model": "gpt-4o", "messages": messages, "tools": [TOOL], **more}
        return dict(post(one_gateway, body, "messages/count_tokens").json())

    whole, left = counted(turns), counted(cleared)["input_tokens"]
    edit = clear(trigger={"type": "tool_uses", "value": 3}, keep={"type": "tool_uses", "value": 2})
    told = {"input_tokens": left, "context_management": {"original_input_tokens": whole["input_tokens"]}}
    assert counted(turns, **edit) == told
    assert left < whole["input_tokens"]
    sent = ask(one_gateway, {**asked(messages=turns, tools=[TOOL]), **edit}, stream=False)
    used = sent["response_metadata"]["context_utilization"]
    assert abs(used["tokens_used"] - left) < 0.15 * left
    (told_of,) = sent["context_management"]["applied_edits"]
    assert abs(told_of["cleared_input_tokens"] - (whole["input_tokens"] - left)) < 0.15 * left
    nothing = {"context_management": {"original_input_tokens": whole["input_tokens"]}}
    assert counted(turns, **clear(trigger=tokens(90_000), keep={"type": "tool_uses", "value": 2})) == whole | nothing


def test_s10_15_what_is_cleared_stays_in_the_history(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """It is cleared of what goes up alone; wrong fields are named."""
    edit = clear(trigger={"type": "tool_uses", "value": 1}, keep={"type": "tool_uses", "value": 0})
    told = ask(one_gateway, {**asked(messages=steps(3), tools=[TOOL]), **edit}, stream=False)
    assert results(upstream) == [True] * 3
    path = f"/conversations/{told['conversation']['id']}/items"
    kept = one_gateway.get(path, params={"limit": 100}).json()["data"]
    assert str([each for each in kept if each["type"] == "function_call_output"]).count(FILLER) == 3
    for wrong, name in (
        ({"keep": {"value": "x"}}, "keep.value"),
        ({"clear_at_least": 5}, "clear_at_least.value"),
        ({"exclude_tools": "weather"}, "exclude_tools"),
        ({"clear_tool_inputs": 7}, "clear_tool_inputs"),
    ):
        refused = post(one_gateway, {**asked(messages=steps(1), tools=[TOOL]), **clear(**wrong)})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, f"context_management.edits[0].{name}")


@BOTH
def test_s10_15_old_thoughts_are_cleared(one_gateway: GatewayProcess, upstream: MockUpstream, stream: bool) -> None:
    """Those of all answers but the latest; how many, and by about how much."""
    thought = {"type": "thinking", "thinking": "I think of it. " * 50, "signature": ""}
    turns: list[Json] = []
    for number in range(3):
        turns.append({"role": "user", "content": f"Question {number}"})
        turns.append({"role": "assistant", "content": [thought, {"type": "text", "text": "x"}]})
    body = asked(messages=[*turns, {"role": "user", "content": "And now?"}])
    edit = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}
    told = ask(one_gateway, {**body, "context_management": {"edits": [edit]}}, stream=stream)
    (found,) = told["context_management"]["applied_edits"]
    assert (found["type"], found["cleared_thinking_turns"]) == (edit["type"], 2)
    assert found["cleared_input_tokens"] > 200
    assert ["reasoning_content" in each for each in upstream.last.body["messages"][1::2]] == [False, False, True]
    every = {"context_management": {"edits": [{**edit, "keep": "all"}]}}
    assert ask(one_gateway, {**body, **every}, stream=stream)["context_management"] == {"applied_edits": []}


def compact(limit: int = 1500, **fields: Any) -> Json:
    edit = {"type": "compact_20260112", "trigger": tokens(limit), **fields}
    return {"context_management": {"edits": [edit]}}


@BOTH
@pytest.mark.parametrize("store", [True, False])
def test_s10_15_a_compaction_block_takes_the_place_of_what_stood_before_it(
    one_gateway: GatewayProcess, upstream: MockUpstream, stream: bool, store: bool
) -> None:
    """In the answer, its usage in parts; sent on with or without what stood before it, it stands for that."""
    upstream.reply(text="So it is.")
    body = {**asked(messages=talk(8), store=store, model="small"), **compact()}
    told = ask(one_gateway, body, stream=stream)
    block, words = told["content"]
    assert (block["type"], words["text"], told["stop_reason"]) == ("compaction", "So it is.", "end_turn")
    assert "Question 0" in block["content"]
    parts = told["usage"]["iterations"]
    assert [each["type"] for each in parts] == ["compaction", "message"]
    assert parts[1]["input_tokens"] == told["usage"]["input_tokens"] > parts[0]["input_tokens"] == 0
    answer = {"role": "assistant", "content": told["content"]}
    question = {"role": "user", "content": "And what of Question 3?"}
    for before in ([], talk(8)):
        again = ask(one_gateway, {**body, "messages": [*before, answer, question]}, stream=stream)
        assert [each["type"] for each in again["content"]] == ["text"]
        sent = upstream.last.body["messages"]
        assert [each["role"] for each in sent][-3:] == ["user", "assistant", "user"]
        assert len(str(sent)) < 3 * len(FILLER)
        assert "And the last one?" in str(sent[:-2])
        if store:
            assert again["conversation"] == told["conversation"]


@BOTH
def test_s10_15_a_pause_behind_the_compaction(
    one_gateway: GatewayProcess, upstream: MockUpstream, stream: bool
) -> None:
    """The block alone, no model asked; the next request goes on from it."""
    calls = len(upstream.chats)
    body = {**asked(messages=talk(8), model="small"), **compact(pause_after_compaction=True)}
    told = ask(one_gateway, body, stream=stream)
    assert ([each["type"] for each in told["content"]], told["stop_reason"]) == (["compaction"], "compaction")
    assert len(upstream.chats) == calls
    turns = [*talk(8), {"role": "assistant", "content": told["content"]}, {"role": "user", "content": "Go on."}]
    assert ask(one_gateway, {**body, "messages": turns}, stream=stream)["content"][0]["type"] == "text"
    assert "And the last one?" in str(upstream.last.body["messages"])


def test_s10_15_the_sdk_puts_a_compaction_together(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """`beta.messages.stream`; another's block, or a changed one, is what it says and no more."""
    with sdk(one_gateway) as client:
        fields: Any = {**asked(messages=talk(8), model="small"), **compact(), "betas": ["compact-2026-01-12"]}
        with client.beta.messages.stream(**fields) as stream:
            final = stream.get_final_message()
    (block, _) = final.content
    assert block.type == "compaction"
    assert block.content is not None
    assert "Question 0" in block.content
    sent = [{"role": "assistant", "content": final.to_dict()["content"]}, {"role": "user", "content": "And now?"}]
    other = post(one_gateway, asked(messages=sent, model="small"), x_api_key="sk-other")
    assert other.status_code == 200
    assert "Answer 7" not in str(upstream.last.body["messages"])
