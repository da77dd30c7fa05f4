"""Upstreams that speak Responses are called in those words (guarantee §10.4)."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from openai import OpenAI

from tests.support.answers import Json, assistant, function_tool, ok, stored, system, tool_result, user
from tests.support.command import gateway_command
from tests.support.factory import GatewayFactory, small_entry
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_responses import MockResponses, call, custom_call, refusal, thought, web_search, words
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply
from tests.support.strict_responses import create, events, read_events

BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
TOOL: Json = function_tool("look", parameters={"type": "object", "properties": {}})


@pytest.fixture(scope="module")
def module_codex(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    prices: Json = {"codex": {}, "priced": {"cache_read_input_token_cost": 1e-7}}
    models = [small_entry(module_upstream, name, mode="responses", **more) for name, more in prices.items()]
    return module_start_gateway({"model_list": models})


@pytest.fixture
def codex(module_codex: GatewayProcess, upstream: MockUpstream) -> Iterator[GatewayProcess]:
    """A gateway with `codex` and `priced`, which only Responses serve."""
    logged = len(module_codex.log_text())
    yield module_codex
    assert "Traceback" not in module_codex.log_text()[logged:]
    assert upstream.violations == []


@pytest.fixture
def mock(upstream: MockUpstream) -> MockResponses:
    return MockResponses(upstream)


@pytest.fixture
def client(codex: GatewayProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=codex.base_url, api_key="sk-test", max_retries=0, timeout=30) as made:
        yield made


def said(client: OpenAI, streamed: bool, **body: Any) -> tuple[Json, str]:
    """The message of an answer, and why it ended."""
    if not streamed:
        choice = client.chat.completions.create(**body).choices[0]
        return choice.message.to_dict(), str(choice.finish_reason)
    with client.chat.completions.stream(**body) as stream:
        final = stream.get_final_completion()
    return final.choices[0].message.to_dict(), str(final.choices[0].finish_reason)


@BOTH
def test_s10_4_a_chat_with_a_model_that_only_responses_serve(
    client: OpenAI, codex: GatewayProcess, mock: MockResponses, upstream: MockUpstream, streamed: bool
) -> None:
    mock.reply(thought("I see.", "sealed-1"), words("one two three"))
    found, reason = said(client, streamed, model="codex", messages=[system("be brief"), user("hi")])
    assert (found["content"], found["reasoning_content"], reason) == ("one two three", "I see.", "stop")
    assert upstream.chats == []
    sent = mock.last
    assert sent["input"] == [system("be brief"), user("hi")]
    assert (sent["store"], sent["include"]) == (False, ["reasoning.encrypted_content"])


@BOTH
def test_s10_4_a_tool_loop_gets_its_thoughts_back(client: OpenAI, mock: MockResponses, streamed: bool) -> None:
    """Also where the client, as chat clients do, sends none of them."""
    sealed = thought("look it up", "sealed-1")
    mock.reply(sealed, call("look", {"at": 1}, "call_a"), call("look", {"at": 2}, "call_b"))
    asked: list[Any] = [user("what is there?")]
    found, reason = said(client, streamed, model="codex", messages=asked, tools=[TOOL])
    assert reason == "tool_calls"
    assert [each["id"] for each in found["tool_calls"]] == ["call_a", "call_b"]
    assert [each["function"]["arguments"] for each in found["tool_calls"]] == ['{"at": 1}', '{"at": 2}']
    answer = assistant(None, tool_calls=[_bare(each) for each in found["tool_calls"]])
    results = [tool_result(f"call_{n}", f"result {n}") for n in "ab"]
    said(client, streamed, model="codex", messages=[*asked, answer, *results], tools=[TOOL])
    kinds = [item.get("type", item.get("role")) for item in mock.last["input"]]
    assert kinds == ["user", "reasoning", *["function_call"] * 2, *["function_call_output"] * 2]
    assert mock.last["input"][1] == sealed
    assert mock.last["tools"] == [
        {"type": "function", "name": "look", "parameters": TOOL["function"]["parameters"], "strict": False}
    ]


def _bare(each: Json) -> Json:
    return {"id": each["id"], "type": "function", "function": {k: each["function"][k] for k in ("name", "arguments")}}


@BOTH
def test_s10_4_what_an_answer_can_hold(client: OpenAI, mock: MockResponses, streamed: bool) -> None:
    """Several texts, citations, log probabilities, thoughts of several parts, calls of custom tools, a hosted call."""
    cited = {"type": "url_citation", "url": "http://x.invalid", "title": "X", "start_index": 0, "end_index": 3}
    token = {"token": "one", "logprob": -0.5, "bytes": [111], "top_logprobs": []}
    parts = [{"type": "summary_text", "text": f"part {each}"} for each in ("one", "two")]
    first = {**thought("part one"), "summary": parts}
    mock.reply(
        *(first, words("one two", [cited, cited], [token]), web_search("x"), thought("more", "s2"), words("three")),
        custom_call("shell", "ls -l", "call_c"),
    )
    tools = [{"type": "custom", "custom": {"name": "shell", "format": {"type": "text"}}}]
    asked = {"model": "codex", "messages": [user("hi")], "tools": tools, "logprobs": True}
    found, reason = answered(client, streamed, **asked)
    assert (found["content"], reason) == ("one two\n\nthree", "tool_calls")
    assert found["reasoning_content"] == "part one\n\npart two\n\nmore"
    named = {k: v for k, v in cited.items() if k != "type"}
    assert found["annotations"] == [{"type": "url_citation", "url_citation": named}] * 2
    assert found["tool_calls"] == [{"id": "call_c", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}]
    assert found["logprobs"]["content"][0]["token"] == "one"
    kinds = [each["type"] for name in ("reasoning_items", "output_items") for each in found.get(name, ())]
    assert sorted(kinds) == ["reasoning", "reasoning", "web_search_call"]
    assert set(mock.last["include"]) == {"reasoning.encrypted_content", "message.output_text.logprobs"}
    assert mock.last["tools"] == [{"type": "custom", "name": "shell", "format": {"type": "text"}}]


def answered(client: OpenAI, streamed: bool, **body: Any) -> tuple[Json, str]:
    """The answer's message with its log probabilities, as the gateway has stored it, and why it ended."""
    if streamed:
        chunks = [*client.chat.completions.create(stream=True, **body)]
        name, reason = chunks[0].id, next(c.choices[0].finish_reason for c in chunks[::-1] if c.choices)
        tokens = [t for c in chunks for p in c.choices if p.logprobs for t in p.logprobs.to_dict()["content"]]
        told = {"logprobs": {"content": tokens}}
    else:
        whole = client.chat.completions.create(**body)
        name, reason = whole.id, whole.choices[0].finish_reason
        told = {"logprobs": whole.choices[0].logprobs.to_dict()} if whole.choices[0].logprobs else {}
    found: Any = client.chat.completions.retrieve(name).to_dict()
    kept = found["choices"][0]["message"]
    return {**kept, **told}, str(reason)


@BOTH
@pytest.mark.parametrize(
    ("reason", "finish"), [("max_output_tokens", "length"), ("content_filter", "content_filter"), ("new", "length")]
)
def test_s10_4_an_answer_that_is_incomplete(
    client: OpenAI, mock: MockResponses, reason: str, finish: str, streamed: bool
) -> None:
    mock.reply(words("one"), status="incomplete", incomplete=reason)
    found, told = answered(client, streamed, model="codex", messages=[user("hi")], max_tokens=16)
    assert (found["content"], told, mock.last["max_output_tokens"]) == ("one", finish, 16)


@BOTH
def test_s10_4_a_refusal(client: OpenAI, mock: MockResponses, streamed: bool) -> None:
    mock.reply(refusal("I will not."))
    found, told = answered(client, streamed, model="codex", messages=[user("hi")])
    assert (found["content"] or None, found["refusal"], told) == (None, "I will not.", "stop")


FAULTS: dict[str, tuple[Json | None, int, str | None]] = {
    "a rate": ({"code": "rate_limit_exceeded", "message": "Slow down."}, 429, "rate_limit_exceeded"),
    "a fault of the server": ({"code": "server_error", "message": "Oh."}, 500, "server_error"),
    "a prompt that is none": ({"code": "invalid_prompt", "message": "No."}, 400, "invalid_prompt"),
    "a picture": ({"code": "invalid_image", "message": "No."}, 400, "invalid_image"),
    "too many": ({"type": "overloaded_error", "message": "Later."}, 503, None),
    "a status": ({"code": "503", "message": "Later."}, 503, "503"),
    "what nobody knows": ({"code": "new_code", "message": "Oh."}, 500, "new_code"),
    "no reason": (None, 500, "server_error"),
}


@BOTH
@pytest.mark.parametrize("name", FAULTS)
def test_s10_4_a_response_that_failed(codex: GatewayProcess, mock: MockResponses, name: str, streamed: bool) -> None:
    """§7: the status can still say it, as nothing has been sent."""
    error, status, code = FAULTS[name]
    mock.reply(status="failed", error=error, usage=None)
    answer = codex.post("/chat/completions", json={"model": "codex", "messages": [user("a")], "stream": streamed})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert stored(codex, answer.headers["x-request-id"])["status"] == "failed"


def test_s10_4_overflow_is_fitted_once_more(codex: GatewayProcess, mock: MockResponses) -> None:
    """§4 I1: as from any provider."""
    text = "Your input exceeds the context window of this model. Please adjust your input and try again."
    mock.reply(status="failed", error={"code": "context_length_exceeded", "message": text}, usage=None)
    history = [message for n in range(30) for message in (user(f"{n} " + "a b c " * 20), said_by_model(f"{n}"))]
    answer = ok(codex.post("/chat/completions", json={"model": "codex", "messages": [*history, user("now")]}))
    assert len(mock.requests[1]["input"]) < len(mock.requests[0]["input"])
    warnings = answer["response_metadata"]["context_utilization"]["warnings"]
    assert "refitted_after_upstream_overflow" in warnings


def said_by_model(text: str) -> Json:
    return assistant(text)


@BOTH
def test_s10_4_the_bill_of_an_answer(codex: GatewayProcess, mock: MockResponses, streamed: bool) -> None:
    """§6: usage by a chat's names; cached input at its own price; thoughts are part of the completion."""
    usage = {
        "input_tokens": 1000,
        "output_tokens": 100,
        "total_tokens": 1100,
        "input_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 90},
    }
    mock.reply(thought("", "s"), words("one"), usage=usage)
    answer = codex.post("/chat/completions", json={"model": "priced", "messages": [user("a")], "stream": streamed})
    bill = stored(codex, answer.headers["x-request-id"])["response_metadata"]
    assert bill["usage"] == {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    cost = bill["cost"]
    assert (cost["prompt_cost"], cost["completion_cost"]) == (Decimal("0.00046"), Decimal("0.0002"))
    assert (cost["priced"], cost["estimated"]) == (True, False)


def test_s10_4_all_bills_balance(codex: GatewayProcess, mock: MockResponses) -> None:
    """§6: whole, streamed, refused and failed: the audit finds no difference."""
    mock.reply(thought("", "s"), words("one"))
    mock.reply(words("one"), status="incomplete", incomplete="max_output_tokens")
    mock.reply(status="failed", error={"code": "server_error", "message": "Oh."}, usage=None)
    for streamed in (False, True, False, True):
        codex.post("/chat/completions", json={"model": "priced", "messages": [user("a")], "stream": streamed})
    done = gateway_command("audit", "--config", str(codex.config_path), directory=codex.directory)
    assert done.returncode == 0, done.stdout + done.stderr


@BOTH
def test_s10_4_usage_that_is_missing_is_counted(codex: GatewayProcess, mock: MockResponses, streamed: bool) -> None:
    mock.reply(words("one two"), usage=None)
    answer = codex.post("/chat/completions", json={"model": "codex", "messages": [user("a")], "stream": streamed})
    bill = stored(codex, answer.headers["x-request-id"])["response_metadata"]
    assert (bill["cost"]["estimated"], bill["usage"]["completion_tokens"]) == (True, 2)


def whole_alone(events: list[Json]) -> list[Json]:
    return events[-1:]


def without_numbers(events: list[Json]) -> list[Json]:
    return [{k: v for k, v in each.items() if k not in ("output_index", "sequence_number")} for each in events]


def with_other_ids(events: list[Json]) -> list[Json]:
    """As GitHub's Copilot sends them: each event has an id of its own."""
    return [{**each, "item_id": f"other{n}"} if "item_id" in each else each for n, each in enumerate(events)]


def only_done(events: list[Json]) -> list[Json]:
    return [each for each in events if not each["type"].endswith((".delta", ".added"))]


def with_unknown(events: list[Json]) -> list[Json]:
    odd: list[Json] = [
        {"type": "response.new_thing.delta", "delta": {"x": [1]}},
        {"type": "keepalive"},
        {},
        {"type": 7},
    ]
    return [each for event in events for each in (event, *odd)]


def twice(events: list[Json]) -> list[Json]:
    done = [n for n, each in enumerate(events) if each["type"] == "response.output_item.done"]
    return [each for n, event in enumerate(events) for each in ([event] * 2 if n in done else [event])]


@pytest.mark.parametrize("changed", [whole_alone, without_numbers, with_other_ids, only_done, with_unknown, twice])
def test_s10_4_streams_of_other_servers(client: OpenAI, mock: MockResponses, changed: Any) -> None:
    """What they leave out is made up for from what comes later, what they say twice counts once."""
    made = (thought("hm", "s1"), words("one two"), call("look", {"at": 1}, "call_a"), call("look", {"at": 2}, "call_b"))
    mock.reply(*made, events=changed)
    found, reason = answered(client, True, model="codex", messages=[user("hi")], tools=[TOOL])
    assert (found["content"], found["reasoning_content"], reason) == ("one two", "hm", "tool_calls")
    assert found["reasoning_items"] == [made[0]]
    assert [(each["id"], each["function"]["arguments"]) for each in found["tool_calls"]] == [
        ("call_a", '{"at": 1}'),
        ("call_b", '{"at": 2}'),
    ]


RUBBISH: list[Any] = [
    *({}, [], 7, {"output": "x"}, {"output": {}}, {"status": "completed"}, {"choices": [{"message": {}}]}),
    *({"output": [], "status": status} for status in ("queued", "in_progress", "cancelled")),
]


@pytest.mark.parametrize("body", RUBBISH, ids=repr)
def test_s10_4_what_is_no_response(codex: GatewayProcess, upstream: MockUpstream, body: Any) -> None:
    """§7: 502."""
    upstream.routes["POST /v1/responses"] = Reply(json=body)
    answer = codex.post("/chat/completions", json={"model": "codex", "messages": [user("a")]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid_response")


@BOTH
@pytest.mark.parametrize(
    "item",
    [
        *({"type": "message"}, {"type": "message", "content": "x"}, {"type": "message", "content": [1, None, {}]}),
        *({"type": "reasoning", "summary": "x", "content": 7}, {"type": "function_call", "arguments": {"a": 1}}, {}),
        *({"type": ["x"]}, {"type": "message", "content": [{"type": "output_text", "text": 7, "annotations": 7}]}),
    ],
    ids=repr,
)
def test_s10_4_odd_items_are_no_fault_of_ours(
    codex: GatewayProcess, upstream: MockUpstream, item: Json, streamed: bool
) -> None:
    response = {"output": [item, 7, None], "usage": 7, "incomplete_details": 7, "created_at": "now"}
    events: list[Json] = [
        {"type": "response.output_item.added", "output_index": [0], "item": item},
        {"type": "response.output_text.delta", "output_index": None, "delta": 7, "logprobs": 7},
        {"type": "response.output_item.done", "output_index": {}, "item": item},
        {"type": "response.completed", "response": response},
    ]
    framed = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in events)
    upstream.routes["POST /v1/responses"] = Reply(raw_sse=framed) if streamed else Reply(json=response)
    answer = codex.post("/chat/completions", json={"model": "codex", "messages": [user("a")], "stream": streamed})
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n") is streamed


@BOTH
def test_s10_4_from_edge_to_upstream_in_its_own_words(client: OpenAI, mock: MockResponses, streamed: bool) -> None:
    """Hosted tools and unknown fields go up as they came; each item comes back in its place."""
    made = [thought("hm", "s1"), web_search("x"), words("found")]
    mock.reply(*made)
    body: Json = {"model": "codex", "input": "q", "tools": [{"type": "web_search"}], "max_tool_calls": 2}
    more: Json = {"extra_body": {"brand_new": 1}, "include": ["reasoning.encrypted_content"]}
    if streamed:
        with client.responses.stream(**body, **more) as stream:
            answer: Any = stream.get_final_response()
    else:
        answer = client.responses.create(**body, **more)
    assert (mock.last["tools"], mock.last["max_tool_calls"], mock.last["brand_new"]) == (body["tools"], 2, 1)
    assert [item.type for item in answer.output] == ["reasoning", "web_search_call", "message"]
    assert answer.output_text == "found"
    assert answer.output[0].to_dict()["encrypted_content"] == "s1"


def shape(items: Any) -> list[Any]:
    """What each item is and says, with its phase."""
    names = ("encrypted_content", "call_id", "action", "phase", "content", "arguments")
    return [(item.get("type"), *(item.get(name) for name in names)) for item in items]


def bare(items: Any) -> list[Any]:
    """The same of what goes up: without log probabilities."""
    for item in (items := json.loads(json.dumps(items))):
        for part in item.get("content") or () if item.get("type") == "message" else ():
            part.pop("logprobs", None)
    return shape(items)


@BOTH
@pytest.mark.parametrize("calls", [True, False], ids=["a step", "an answer"])
def test_s10_18_items_keep_their_order_and_messages_stay_two(
    codex: GatewayProcess, mock: MockResponses, streamed: bool, calls: bool
) -> None:
    """To the client, in what is stored, and in the next request, whichever way it goes on."""
    begins = [thought("", "s1"), {**words("I look."), "phase": "commentary"}, thought("hm", "s2"), web_search("x")]
    last = [
        {**words("Found."), "phase": "commentary"},
        call("look", {}, "c1"),
        thought("", "s3"),
        call("look", {}, "c2"),
    ]
    made = [*begins, *(last if calls else [{**words('{"price": 1}'), "phase": "final_answer"}])]
    mock.reply(*made)
    first: Json = user(f"Look. {streamed} {calls}")
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}, {"type": "web_search"}]
    body: Json = {"model": "codex", "tools": tools, "include": ["reasoning.encrypted_content"]}
    asked = {**body, "input": [first]}
    told = events(codex, asked) if streamed else []
    answer = told[-1]["response"] if streamed else create(codex, asked)
    assert bare(answer["output"]) == bare(made)
    ids = [item["id"] for item in answer["output"]]
    assert len({*ids}) == len(ids)
    for kind in ("added", "done") if streamed else ():
        found = [each for each in told if each["type"] == f"response.output_item.{kind}"]
        assert [(each["output_index"], each["item"]["id"]) for each in found] == [*enumerate(ids)]
    at = f"/responses/{answer['id']}?include=reasoning.encrypted_content"
    assert codex.get(at).json()["output"] == answer["output"]
    assert read_events(codex.get(f"{at}&stream=true").text)[-1]["response"]["output"] == answer["output"]
    outputs = [{"type": "function_call_output", "call_id": name, "output": "r"} for name in ("c1", "c2") if calls]
    rest = outputs or [user("next")]
    ways = [
        {"previous_response_id": answer["id"], "input": rest},
        {"conversation": answer["conversation"]["id"], "input": [first, *answer["output"], *rest]},
        {"input": [first, *answer["output"], *rest]},
        {"input": [first, *[{k: v for k, v in item.items() if k != "id"} for item in answer["output"]], *rest]},
        {"input": [first, *answer["output"], *rest], "store": False},
    ]
    for number, way in enumerate(ways):
        after = create(codex, {**body, **way})
        sent = mock.last["input"]
        assert bare(sent[1 : -len(rest)]) == bare(made), number
        assert sent[0] == first
        if number < 4:
            assert after["conversation"] == answer["conversation"], number
    brought = codex.get(f"/responses/{after['id']}/input_items?order=asc").status_code
    assert brought == 404  # of `store: false` nothing is kept
    items = codex.get(f"/conversations/{answer['conversation']['id']}/items?order=asc&limit=100").json()["data"]
    assert [item["id"] for item in items][1 : 1 + len(ids)] == ids


def test_s10_18_a_deleted_thought_leaves_the_others_and_their_ids(codex: GatewayProcess, mock: MockResponses) -> None:
    """Nothing stands in its place, as items, in the response, and in the stored chat."""
    mock.reply(thought("one"), call("look", {}, "c9"), thought("two"), words("done"))
    answer = create(codex, {"model": "codex", "tools": [{"type": "function", "name": "look"}], "input": "Look twice."})
    first, looked, second, last = (item["id"] for item in answer["output"])
    chat, home = answer["id"].replace("resp_", "chatcmpl-"), f"/conversations/{answer['conversation']['id']}/items"
    result = {"type": "function_call_output", "call_id": "c9", "output": "7"}
    after = create(codex, {"model": "codex", "previous_response_id": answer["id"], "input": [result]})
    assert codex.delete(f"{home}/{first}").status_code == 200
    (choice,) = codex.get(f"/chat/completions/{chat}").json()["choices"]
    before = codex.get(f"/chat/completions/{after['id']}/messages").json()["data"]
    for message in (choice["message"], before[1]):
        assert [each["summary"][0]["text"] for each in message["reasoning_items"]] == ["two"]
    told = codex.get(f"/responses/{answer['id']}").json()["output"]
    listed = codex.get(home, params={"order": "asc"}).json()["data"][1:4]
    assert [item["id"] for item in told] == [item["id"] for item in listed] == [looked, second, last]


@pytest.mark.parametrize("calls", [True, False], ids=["a step", "an answer"])
@pytest.mark.parametrize("way", ["responses", "chat apart", "chat joined"])
def test_s3_13_an_answer_of_two_messages_is_known_joined_and_apart(
    codex: GatewayProcess, client: OpenAI, mock: MockResponses, calls: bool, way: str
) -> None:
    """Sent again without ids and phases, by the same API or as a chat's one or two messages of the assistant."""
    last = [call("look", {}, "c1")] if calls else []
    mock.reply({**words("I look."), "phase": "commentary"}, {**words("It is 7."), "phase": "final_answer"}, *last)
    first: Json = user(f"Look. {calls} {way}")
    answer = create(codex, {"model": "codex", "tools": [{"type": "function", "name": "look"}], "input": [first]})
    mock.reply(words("done"))
    if way == "responses":
        said = [assistant(text) for text in ("I look.", "It is 7.")]
        made = [{"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}] if calls else []
        rest = [{"type": "function_call_output", "call_id": "c1", "output": "r"}] if calls else [first]
        after = create(codex, {"model": "codex", "input": [first, *said, *made, *rest]})
        assert after["conversation"] == answer["conversation"]
        return
    texts = ["I look.", "It is 7."] if way == "chat apart" else ["I look.\n\nIt is 7."]
    messages: list[Any] = [first, *(assistant(text) for text in texts)]
    if calls:
        function: Json = {"name": "look", "arguments": "{}"}
        messages[-1]["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
    messages += [tool_result("c1", "r")] if calls else [user("next")]
    found = client.chat.completions.create(model="codex", messages=messages)
    assert found.model_dump()["conversation"] == answer["conversation"]


@pytest.mark.parametrize("value", ["x", 7, {"model": "other", "store": True}])
def test_s10_4_a_field_that_a_client_calls_untranslated_is_none_of_ours(
    client: OpenAI, mock: MockResponses, value: Any
) -> None:
    """§1: an operator's key asks for the models of `model_list` alone, whatever a client adds."""
    mock.reply(words("done"))
    client.chat.completions.create(model="codex", messages=[user("go")], extra_body={"untranslated": value})
    sent = mock.requests[-1]
    assert (sent["model"], sent["store"]) == ("codex", False)


@pytest.mark.parametrize("path", ["responses", "messages", "chat/completions"])
def test_s1_4_another_spelling_of_model_is_refused_by_each_api(codex: GatewayProcess, path: str) -> None:
    """§1: some upstreams would take it for the model."""
    body = {"model": "codex", "Model": "other", "max_tokens": 5, "messages": [user("go")], "input": "go"}
    if path == "responses":
        del body["messages"], body["max_tokens"]
    elif path != "responses":
        del body["input"]
    answer = codex.post(f"/{path}", json=body, key=None)
    assert answer.status_code == 400, answer.text
    assert "'model'" in answer.json()["error"]["message"]


def test_s10_17_instructions_go_up_as_such(client: OpenAI, mock: MockResponses) -> None:
    """Where nothing changed them; those of a chat stay its first message."""
    mock.reply(words("x"))
    client.responses.create(model="codex", instructions="Be brief.", input="hi")
    assert (mock.last["instructions"], mock.last["input"]) == ("Be brief.", [user("hi")])
    mock.reply(words("x"))
    client.chat.completions.create(model="codex", messages=[system("Be brief."), user("hi")])
    assert "instructions" not in mock.last
    assert mock.last["input"][0] == system("Be brief.")


def test_s10_17_thoughts_of_a_responses_model_do_not_go_to_another_by_chat(
    start_gateway: GatewayFactory, upstream: MockUpstream, mock: MockResponses
) -> None:
    """Of the same provider: their summary is bound to whoever sealed them, as they are."""
    models = [small_entry(upstream, "codex", mode="responses"), small_entry(upstream, "plain")]
    gateway = start_gateway({"model_list": models})
    mock.reply(thought("I see.", "sealed-1"), words("yes"))
    first = gateway.post("/responses", json={"model": "codex", "input": "hi"}).json()
    upstream.reply(text="x")
    body = {"model": "plain", "conversation": first["conversation"]["id"], "messages": [user("and now?")]}
    assert gateway.post("/chat/completions", json=body).status_code == 200
    assert upstream.chats[-1].body["messages"][1] == assistant("yes")
    mock.reply(words("x"))
    again = {"model": "codex", "previous_response_id": first["id"], "input": "and then?"}
    assert gateway.post("/responses", json=again).status_code == 200
    assert [each.get("type") for each in mock.last["input"]].count("reasoning") == 1
