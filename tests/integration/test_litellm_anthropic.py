"""Anthropic's Messages API through litellm, on its wire format."""

import json
from typing import Any

import httpx
import pytest
import respx

from gateway.core import errors
from gateway.core.types.upstreams import UpstreamRequest
from gateway.upstream.litellm.provider import LitellmUpstream
from tests.integration.litellm_calls import (
    ASK,
    LIBRARY,
    TOOLS,
    Json,
    as_stream,
    asking,
    chunks,
    complete,
    deployment,
    sent,
    streamed,
)
from tests.support import anthropic_wire as wire
from tests.support.answers import assistant, image_part, system, text_part, tool_call, tool_result, user

URL = "https://api.anthropic.com/v1/messages"
SONNET = "anthropic/claude-sonnet-4-5"
WORDS = wire.message(wire.text("Rain."))
ask = asking(SONNET, wire.events)


@pytest.fixture
def provider() -> Any:
    """Anthropic; whatever else is asked for fails."""
    with respx.mock(assert_all_called=False) as router:
        yield router.post(URL)


@pytest.mark.parametrize("stream", [False, True])
async def test_s1_text(provider: respx.Route, stream: bool) -> None:
    """§1: a chat goes up in the provider's own protocol, with its key, and comes back in OpenAI's."""
    answer = wire.message(wire.text("Rain, 12 degrees."))
    choice, usage = await ask(provider, answer, stream, system("Be brief."), ASK, temperature=0.5, max_tokens=100)
    assert choice["message"] == {"role": "assistant", "content": "Rain, 12 degrees."}
    assert choice["finish_reason"] == "stop"
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (10, 5, 15)
    assert provider.calls.last.request.headers["x-api-key"] == "sk-operators-own"
    body = sent(provider)
    assert body["model"] == "claude-sonnet-4-5"
    assert body["system"] == [text_part("Be brief.")]
    assert body["messages"] == [user([text_part(ASK["content"])])]
    assert (body["temperature"], body["max_tokens"], body.get("stream", False)) == (0.5, 100, stream)
    assert provider.call_count == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_s1_parallel_tool_calls_and_thoughts(provider: respx.Route, stream: bool) -> None:
    """§1: thinking blocks keep their signature; parallel calls are whole, also where a call has no arguments."""
    choice, _ = await ask(provider, wire.CALLS, stream, tools=TOOLS)
    message = choice["message"]
    assert message["content"] == "Let me look."
    assert message["thinking_blocks"] == [wire.THOUGHT]
    assert message["reasoning_content"] == wire.THOUGHT["thinking"]
    assert "provider_specific_fields" not in message
    calls = [
        (c["id"], c["type"], c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in message["tool_calls"]
    ]
    assert calls == [
        ("toolu_1", "function", "weather", {"city": "Bern", "days": 2}),
        ("toolu_2", "function", "clock", {}),
    ]
    assert all("index" not in call for call in message["tool_calls"])
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
async def test_s1_9_a_call_that_the_provider_answered_is_none_of_the_clients(
    provider: respx.Route, stream: bool
) -> None:
    """§1.9: a client that got it would have to answer it, or could not send the conversation again."""
    hosted = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Bern"}}
    page = {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "E"}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [page]}
    own = {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {"zone": "CET"}}
    choice, _ = await ask(provider, wire.message(wire.text("Rain."), hosted, result), stream)
    assert "tool_calls" not in choice["message"]
    assert choice["message"]["content"] == "Rain."
    assert choice["message"]["provider_specific_fields"]["web_search_results"] == [result]
    choice, _ = await ask(provider, wire.message(hosted, result, own, stop="tool_use"), stream, tools=TOOLS)
    (call,) = choice["message"]["tool_calls"]
    assert (call["id"], json.loads(call["function"]["arguments"])) == ("toolu_1", {"zone": "CET"})


@pytest.mark.parametrize("stream", [False, True])
async def test_s1_thoughts_go_up_again_as_they_came(provider: respx.Route, stream: bool) -> None:
    """§1: what the model needs back is put back: thinking blocks, hidden ones too, before the calls they led to."""
    answer = {**wire.CALLS, "content": [wire.THOUGHT, wire.REDACTED, *wire.CALLS["content"][1:]]}
    choice, _ = await ask(provider, answer, stream, tools=TOOLS)
    results = [tool_result(i, "12 degrees") for i in ("toolu_1", "toolu_2")]
    final = wire.message(wire.text("12 degrees."))
    await ask(provider, final, stream, ASK, choice["message"], *results, tools=TOOLS)
    _, said, told = sent(provider)["messages"]
    assert said == assistant(answer["content"])
    assert [part["tool_use_id"] for part in told["content"]] == ["toolu_1", "toolu_2"]


def calling(*ids: str, **more: Any) -> Json:
    """An answer that calls a tool by these ids, as a local server may have given them."""
    return assistant(None, tool_calls=[tool_call(i, "clock") for i in ids]) | more


def results(*ids: str) -> list[Json]:
    return [tool_result(call_id, f"{n} o'clock") for n, call_id in enumerate(ids)]


@pytest.mark.parametrize(
    "steps",
    [(("0",), ("0",)), (("0", "0"),), (("a|b", "a?b"), ("a_b",)), (("a" * 99,), ("a" * 99,))],
    ids=["in two steps", "in one answer", "that are one where Anthropic's rules leave no other sign", "too long"],
)
async def test_s4_i3_calls_of_other_servers_that_share_an_id_stay_pairs(
    provider: respx.Route, steps: tuple[tuple[str, ...], ...]
) -> None:
    """Anthropic refuses an id that two calls have; each result belongs to its own call."""
    said = [each for ids in steps for each in (calling(*ids), *results(*ids))]
    await ask(provider, WORDS, False, ASK, *said, tools=TOOLS)
    _, *turns = sent(provider)["messages"]
    called = [block["id"] for turn in turns[::2] for block in turn["content"]]
    answered = [block["tool_use_id"] for turn in turns[1::2] for block in turn["content"]]
    assert len(set(called)) == sum(map(len, steps))
    assert max(map(len, called)) <= 64
    assert answered == called
    assert [len(turn["content"]) for turn in turns] == [len(ids) for ids in steps for _ in "ab"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"content": None, "refusal": "No."}, ["No."]),
        ({"content": [{"type": "refusal", "refusal": "No."}]}, ["No."]),
        ({"content": "So. ", "refusal": "No."}, ["So. ", "No."]),
        ({"content": [text_part(" "), text_part("Yes.")]}, ["Yes."]),
    ],
)
async def test_s1_refusals_of_other_models_go_up_as_what_they_said(
    provider: respx.Route, answer: Json, expected: list[str]
) -> None:
    """Anthropic has no field for them."""
    said = {"role": "assistant", **answer}
    await ask(provider, WORDS, False, ASK, said, user("Why?"))
    assert [block["text"] for block in sent(provider)["messages"][1]["content"]] == expected


async def test_s1_nothing_is_put_in_the_place_of_blank_texts(provider: respx.Route) -> None:
    """Nobody said what litellm would put there."""
    blank, parts = text_part(""), [text_part("And now?")]
    said = [assistant(""), user([blank, *parts]), calling("c", content=" ")]
    for told, meant in (([blank, *parts], parts), ([blank], [])):
        await ask(provider, WORDS, False, ASK, *said, tool_result("c", told), tools=TOOLS)
        asked, answer, results = sent(provider)["messages"]
        assert asked["content"] == [text_part(ASK["content"]), *parts]
        assert [block["type"] for block in answer["content"]] == ["tool_use"]
        assert (results["content"][0]["content"] or []) == meant


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "https://e.org/a.mp4"}},
        {"type": "hologram", "hologram": "AA"},
    ],
)
@pytest.mark.parametrize("in_result", [False, True])
async def test_s1_what_the_model_cannot_take_is_refused_and_not_left_out(
    provider: respx.Route, part: Json, in_result: bool
) -> None:
    content = [part, text_part("What is said there?")]
    asked = [ASK, calling("c"), {**results("c")[0], "content": content}]
    with pytest.raises(errors.InvalidRequest) as caught:
        await complete(deployment(SONNET), *(asked if in_result else [user(content)]))
    assert caught.value.code == "unsupported_parameter"
    assert caught.value.param == ("messages[2].content[0]" if in_result else "messages[0].content[0]")
    assert not provider.called


@pytest.mark.parametrize("words", [[], ["lit"]])
async def test_s1_a_streams_first_chunk_alone_has_the_role(provider: respx.Route, words: list[str]) -> None:
    """Also where Claude has nothing to add to a tool's result: SDKs take the message's role from there."""
    provider.mock(as_stream(wire.events(wire.message(*map(wire.text, words)))))
    parts = [part async for part in chunks(deployment(SONNET), ASK)]
    first, *others = [choice["delta"].get("role") for part in parts for choice in part["choices"]]
    assert (first, any(others)) == ("assistant", False)


async def test_s1_9_a_streamed_call_without_a_piece_of_arguments_has_an_empty_object(provider: respx.Route) -> None:
    """Anthropic sends an empty piece of them; servers that speak its API send none."""
    bare = wire.events(wire.message(wire.tool_use("toolu_1", "clock"), stop="tool_use"))
    pieces = [each for each in bare if b"content_block_delta" not in each]
    assert len(pieces) < len(bare)
    provider.mock(as_stream(pieces))
    choice, _ = await streamed(deployment(SONNET), tools=TOOLS)
    assert [call["function"]["arguments"] for call in choice["message"]["tool_calls"]] == ["{}"]


@pytest.mark.parametrize("stream", [False, True])
async def test_s1_9_a_call_that_was_cut_off_goes_up_again(provider: respx.Route, stream: bool) -> None:
    """§1.9: what was handed out is taken back; what is no object stands in one. The reason is that of a cut."""
    cut = wire.message(wire.tool_use("toolu_1", "weather"), stop="model_context_window_exceeded")
    choice, _ = await ask(provider, cut, stream, tools=TOOLS)
    assert choice["finish_reason"] == "length"
    for arguments, meant in (
        ('{"city": "Be', {"arguments": '{"city": "Be'}),
        ("", {}),
        (" ", {}),
        ('{"a":1}', {"a": 1}),
    ):
        call = tool_call("toolu_1", "weather", arguments)
        told = tool_result("toolu_1", "no such city")
        said = assistant(None, tool_calls=[call])
        await ask(provider, wire.CALLS, stream, ASK, said, told, tools=TOOLS)
        (block,) = sent(provider)["messages"][1]["content"]
        assert (block["id"], block["input"]) == ("toolu_1", meant)


@pytest.mark.parametrize("stream", [False, True])
async def test_s6_cached_tokens_are_part_of_the_prompt_once(provider: respx.Route, stream: bool) -> None:
    """§6: reads from and writes to the cache are within `prompt_tokens`, told apart as the bill needs them."""
    _, usage = await ask(provider, wire.CALLS, stream, tools=TOOLS)
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (22, 42)
    details = usage["prompt_tokens_details"]
    assert (details["cached_tokens"], details["cache_creation_tokens"]) == (7, 5)
    split = {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3}
    assert details["cache_creation_token_details"] == split
    assert "cost" not in usage


async def test_s1_pictures_and_cache_control_go_up(provider: respx.Route) -> None:
    """§1, §4 I7: image parts and the client's `cache_control` survive the translation."""
    marked = text_part("What is this?", cache_control={"type": "ephemeral"})
    await ask(provider, WORDS, False, user([image_part("data:image/png;base64,aGk="), marked]))
    picture, words = sent(provider)["messages"][0]["content"]
    assert picture["source"] == {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert words == marked


async def test_s1_unknown_fields_go_up(provider: respx.Route) -> None:
    """§1: what litellm does not know is the provider's to judge."""
    await ask(provider, WORDS, False, top_k=5, context_management={"edits": []})
    assert (sent(provider)["top_k"], sent(provider)["context_management"]) == (5, {"edits": []})


@pytest.mark.parametrize(
    "field", ["api_base", "base_url", "aws_region_name", "vertex_credentials", "mock_response", "custom_llm_provider"]
)
async def test_s8_a_client_cannot_set_what_is_the_operators(provider: respx.Route, field: str) -> None:
    """§8: no field of a request chooses where a key goes, or turns litellm's own knobs."""
    with pytest.raises(errors.InvalidRequest) as caught:
        await complete(deployment(SONNET), **{field: "http://127.0.0.1:9"})
    assert (caught.value.param, caught.value.status) == (field, 400)
    assert not provider.called


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": 5, "tools": TOOLS}, "tool_choice"),
        ({"tool_choice": {"type": "function"}, "tools": TOOLS}, "tool_choice"),
        ({"tools": [{"type": "code_interpreter"}]}, "tools"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": "x"}, "response_format"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
        ({"messages": [user([{"type": "odd"}])]}, "messages[0].content[0]"),
        ({"messages": [user([{"type": "image_url", "image_url": None}])]}, "messages[0].content[0]"),
        ({"messages": [user([image_part("x")])]}, "messages[0].content[0]"),
    ],
)
async def test_s7_1_what_litellm_cannot_translate_is_a_400_that_names_the_field(
    provider: respx.Route, fields: dict[str, Any], param: str
) -> None:
    """Some of its own errors are a key in quotation marks, and none says where."""
    with pytest.raises(errors.InvalidRequest) as caught:
        await complete(deployment(SONNET), **fields)
    assert caught.value.param == param
    assert len(caught.value.message.split()) > 2
    assert "litellm" not in caught.value.message
    assert not provider.called


@pytest.mark.parametrize("hint", ["safety_identifier", "prompt_cache_key", "prompt_cache_retention"])
async def test_s1_hints_that_change_no_answer_do_not_go_to_a_provider_that_lacks_them(
    provider: respx.Route, hint: str
) -> None:
    """They name the user and the cache here, too, and Codex sends one with every request."""
    await ask(provider, WORDS, False, **{hint: "24h"})
    assert hint not in sent(provider)


@pytest.mark.parametrize(
    ("asked", "fitting"),
    [({"temperature": 1.7}, {"temperature": 1}), ({"temperature": 0.3, "top_p": 1}, {"temperature": 0.3})],
)
async def test_s12_7_sampling_that_openai_takes_is_fitted(provider: respx.Route, asked: Json, fitting: Json) -> None:
    """Else Claude's 400 would be what a client gets whose own model failed."""
    await ask(provider, WORDS, False, **asked)
    assert {name: sent(provider).get(name) for name in ("temperature", "top_p") if name in sent(provider)} == fitting


async def test_s7_a_parameter_that_the_provider_lacks_is_a_400(provider: respx.Route) -> None:
    """§7: bad input is a 4xx that names the field; `drop_params` in the configuration drops it instead."""
    with pytest.raises(errors.InvalidRequest) as caught:
        await complete(deployment(SONNET), n=2)
    assert (caught.value.param, caught.value.code) == ("n", "unsupported_parameter")
    assert "litellm" not in caught.value.message.lower()
    provider.mock(httpx.Response(200, json=wire.message(wire.text("x"))))
    await complete(deployment(SONNET, drop_params=True), n=2)
    assert "n" not in sent(provider)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "kind", "raised", "shown"),
    [
        (400, "invalid_request_error", errors.UpstreamRefused, 400),
        (404, "not_found_error", errors.UpstreamRefused, 404),
        (413, "request_too_large", errors.UpstreamRefused, 413),
        (429, "rate_limit_error", errors.UpstreamRefused, 429),
        (500, "api_error", errors.UpstreamRefused, 500),
        (529, "overloaded_error", errors.UpstreamRefused, 529),
        (401, "authentication_error", errors.UpstreamAuth, 502),
        (403, "permission_error", errors.UpstreamAuth, 502),
    ],
)
async def test_s7_errors_keep_status_words_and_retry_after(
    provider: respx.Route, stream: bool, status: int, kind: str, raised: type[errors.GatewayError], shown: int
) -> None:
    """§7: status, `Retry-After` and the original body stay; an operator's refused key is a 502 without the body."""
    body = wire.error(kind, "not now: sk-operators-own")
    provider.mock(httpx.Response(status, json=body, headers={"retry-after": "7", "x-secret": "1"}))
    with pytest.raises(raised) as caught:
        await (streamed if stream else complete)(deployment(SONNET))
    error = caught.value
    assert error.status == shown
    assert provider.call_count == 1, "nothing is tried again"
    told = json.dumps(error.body())
    assert "sk-operators-own" not in told
    if raised is errors.UpstreamRefused:
        assert error.headers == {"retry-after": "7"}
        shape = error.body()["error"]
        assert (shape["message"], shape["code"]) == ("not now: ***", kind)
        assert shape["upstream"]["error"]["type"] == kind
    else:
        assert "not now" not in told


@pytest.mark.parametrize("stream", [False, True])
async def test_s7_overflow(provider: respx.Route, stream: bool) -> None:
    """§7: every provider's overflow is `context_length_exceeded`, with the figures that a refit needs."""
    body = wire.error("invalid_request_error", "prompt is too long: 200100 tokens > 200000 maximum")
    provider.mock(httpx.Response(400, json=body))
    with pytest.raises(errors.UpstreamOverflow) as caught:
        await (streamed if stream else complete)(deployment(SONNET))
    assert (caught.value.reported, caught.value.limit) == (200_100, 200_000)
    assert caught.value.body()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("stream", [False, True])
async def test_s7_a_connection_that_failed_is_tried_once_more(provider: respx.Route, stream: bool) -> None:
    """§7: before any byte, and once; then it is a 502 `upstream_unreachable`."""
    answer = wire.message(wire.text("x"))
    provider.side_effect = [
        httpx.ConnectError("refused"),
        as_stream(wire.events(answer)) if stream else httpx.Response(200, json=answer),
    ]
    await (streamed if stream else complete)(deployment(SONNET))
    assert provider.call_count == 2
    provider.side_effect = httpx.ConnectError("refused")
    with pytest.raises(errors.UpstreamUnreachable):
        await (streamed if stream else complete)(deployment(SONNET))
    assert provider.call_count == 4


@pytest.mark.parametrize("left_out", range(1, 8))
async def test_s7_a_stream_that_breaks_off_has_no_clean_end(provider: respx.Route, left_out: int) -> None:
    """§7: litellm would make up a `stop`; without the provider's own reason the stream was interrupted."""
    events = wire.events(wire.message(wire.THOUGHT, wire.text("Let me look.")))
    provider.mock(as_stream(events[:-left_out]))
    if left_out == 1:  # `message_stop` says nothing new
        choice, _ = await streamed(deployment(SONNET))
        assert choice["finish_reason"] == "stop"
        return
    with pytest.raises(errors.UpstreamInterrupted):
        await streamed(deployment(SONNET))


async def test_s12_2_a_stream_that_breaks_off_at_once_is_a_fault_of_the_call(provider: respx.Route) -> None:
    """§12.2: nothing has reached the client, so that another target may still be asked."""
    begun = wire.events(wire.message(wire.text("Let me look.")))[0]
    provider.mock(as_stream([begun]))
    at = deployment(SONNET)
    async with httpx.AsyncClient() as client:
        asked = UpstreamRequest({"model": at.provider_model, "messages": [ASK]})
        with pytest.raises(errors.UpstreamInterrupted):
            async with LitellmUpstream(client, LIBRARY).stream(at, asked):
                pytest.fail("it has begun")


async def test_s7_an_error_event_in_a_stream(provider: respx.Route) -> None:
    """§7: what the provider says in the middle of a stream is told with its own words."""
    events = wire.events(wire.message(wire.text("Let me look.")))
    broken = [*events[:3], wire.event(wire.error("overloaded_error", "Overloaded"))]
    provider.mock(as_stream(broken))
    with pytest.raises(errors.UpstreamRefused, match="Overloaded") as caught:
        await streamed(deployment(SONNET))
    assert caught.value.status >= 500


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("content", [b"<html>busy</html>", b"", b'{"type": "message"', b"[]"])
async def test_s7_an_answer_that_is_none(provider: respx.Route, stream: bool, content: bytes) -> None:
    """§7: HTML, nothing, or half an object with status 200 is an upstream fault, not a 500."""
    kind = "text/event-stream" if stream else "application/json"
    provider.mock(as_stream([content], kind))
    with pytest.raises((errors.UpstreamInvalidResponse, errors.UpstreamInterrupted)) as caught:
        await (streamed if stream else complete)(deployment(SONNET))
    assert caught.value.status == 502


async def test_s1_rate_limits_come_back(provider: respx.Route) -> None:
    """§1: `x-ratelimit-*` in OpenAI's names, where litellm knows them, and `retry-after`."""
    headers = {"anthropic-ratelimit-requests-remaining": "9", "retry-after": "3", "request-id": "req_1"}
    provider.mock(httpx.Response(200, json=wire.message(wire.text("x")), headers=headers))
    answer = await complete(deployment(SONNET))
    assert answer.headers == {"x-ratelimit-remaining-requests": "9", "retry-after": "3"}


async def test_s8_the_clients_own_key_goes_up(provider: respx.Route, monkeypatch: pytest.MonkeyPatch) -> None:
    """§8: an entry without a key is called with the client's; no key is taken from the environment."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-the-environment")
    provider.mock(httpx.Response(401, json=wire.error("authentication_error", "invalid x-api-key")))
    with pytest.raises(errors.UpstreamRefused) as caught:
        await complete(deployment(SONNET, api_key=None, caller="sk-clients-own"))
    assert caught.value.status == 401
    assert provider.calls.last.request.headers["x-api-key"] == "sk-clients-own"
    with pytest.raises(errors.Unauthorized):
        deployment(SONNET, api_key=None)


async def test_s1_a_field_of_null_says_nothing(provider: respx.Route) -> None:
    """Clients send it for what they leave out."""
    names = ("web_search_options", "tools", "tool_choice", "response_format", "stop", "temperature", "reasoning_effort")
    await ask(provider, WORDS, False, ASK, **dict.fromkeys(names))
    assert sent(provider).keys() == {"model", "messages", "max_tokens"}


@pytest.mark.parametrize(
    ("effort", "most", "budget"),
    [("high", 5000, 4096), ("high", 4096, 4095), ("max", 1500, 1499), ("low", 1025, 1024), ("low", 1024, None)],
)
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_s10_9_an_effort_fits_below_the_limit_of_the_answer(
    provider: respx.Route, field: str, effort: str, most: int, budget: int | None
) -> None:
    """§10.9: Anthropic refuses a budget of thinking that is not below it, or is less than 1,024."""
    await ask(provider, WORDS, False, ASK, **{field: most, "reasoning_effort": effort})
    assert sent(provider)["max_tokens"] == most
    assert sent(provider).get("thinking") == (budget and {"type": "enabled", "budget_tokens": budget})


async def test_s10_9_an_effort_of_a_model_that_thinks_as_it_likes_has_no_budget(provider: respx.Route) -> None:
    provider.mock(httpx.Response(200, json=wire.message(wire.text("Rain."))))
    await complete(deployment("anthropic/claude-opus-4-6"), ASK, max_tokens=500, reasoning_effort="high")
    assert sent(provider)["thinking"]["type"] == "adaptive"


async def test_s1_legacy_calls_and_their_results_stay_pairs(provider: respx.Route) -> None:
    """§1, §4 I3: in order, where a function is called again."""
    call = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    said = [ASK, call, {"role": "function", "name": "look", "content": "a boat"}]
    await ask(provider, WORDS, False, *said, *said)
    _, *turns = sent(provider)["messages"]
    named = [turn["content"][0].get("id") or turn["content"][0]["tool_use_id"] for turn in turns]
    assert named == ["look", "look", "look_2", "look_2"]


@pytest.mark.parametrize("options", ["near", [1], 0])
async def test_s7_a_field_that_litellm_cannot_read_is_a_400(provider: respx.Route, options: Any) -> None:
    with pytest.raises(errors.InvalidRequest):
        await complete(deployment(SONNET), ASK, web_search_options=options)
    assert not provider.called


async def test_s7_messages_that_cannot_be_translated_are_a_400(provider: respx.Route) -> None:
    """§7: bad input is never a 5xx."""
    with pytest.raises(errors.InvalidRequest) as caught:
        await complete(deployment(SONNET), user([image_part("data:image/png,nothing")]))
    assert caught.value.param == "messages[0].content[0]"
    assert not provider.called
