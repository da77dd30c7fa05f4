"""Gemini's generateContent through litellm, on its wire format."""

import gzip
import json
from typing import Any

import httpx
import pytest
import respx

from gateway.core.errors import (
    InvalidRequest,
    UpstreamAuth,
    UpstreamError,
    UpstreamInterrupted,
    UpstreamRefused,
)
from gateway.upstream.litellm.wire import GatewayTransport
from tests.integration.litellm_calls import ASK, TOOLS, Json, as_stream, asking, complete, deployment, sent, streamed
from tests.support import gemini_wire as wire
from tests.support.answers import assistant, image_part, system, text_part, tool_call, tool_result, user

BASE = "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro"
PRO = "gemini/gemini-2.5-pro"
ask = asking(PRO, wire.events)
ANSWER = wire.answer(
    wire.thought("The user wants the weather."),
    wire.text("Let me look."),
    wire.call("weather", signature="c2lnbmF0dXJl", city="Bern"),
    wire.call("clock"),
    spent=wire.usage(100, 20, thoughts=30, cached=40),
)


@pytest.fixture
def provider() -> Any:
    """Gemini, whole and streamed; whatever else is asked for fails."""
    with respx.mock(assert_all_called=False) as router:
        yield router.post(url__regex=rf"{BASE}:(generateContent|streamGenerateContent\?alt=sse)")


@pytest.mark.parametrize("stream", [False, True])
async def test_s1_text(provider: respx.Route, stream: bool) -> None:
    """§1: a chat goes up in the provider's own protocol, with its key, and comes back in OpenAI's."""
    answer = wire.answer(wire.text("Rain, 12 degrees."))
    choice, usage = await ask(provider, answer, stream, system("Be brief."), ASK, temperature=0.5)
    assert choice["message"] == assistant("Rain, 12 degrees.")
    assert choice["finish_reason"] == "stop"
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (10, 5, 15)
    body = sent(provider)
    assert body["contents"] == [{"role": "user", "parts": [{"text": ASK["content"]}]}]
    assert body["system_instruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["generationConfig"]["temperature"] == 0.5
    request = provider.calls.last.request
    assert request.headers["x-goog-api-key"] == "sk-operators-own"
    assert "sk-operators-own" not in str(request.url)


@pytest.mark.parametrize("stream", [False, True])
async def test_s1_a_prompt_that_is_blocked_was_filtered(provider: respx.Route, stream: bool) -> None:
    """§1: there is no candidate, and no finish reason; the stream is whole all the same."""
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": wire.usage(10, 0)}
    provider.mock(httpx.Response(200, content=wire.event(blocked)) if stream else httpx.Response(200, json=blocked))
    if stream:
        choice, usage = await streamed(deployment(PRO))
    else:
        body = (await complete(deployment(PRO))).body
        choice, usage = body["choices"][0], body["usage"]
    assert (choice["finish_reason"], choice["message"]["content"] or "") == ("content_filter", "")
    assert usage["prompt_tokens"] == 10


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "OTHER"])
async def test_s1_what_was_said_before_a_filter_is_kept(provider: respx.Route, stream: bool, reason: str) -> None:
    """§1: it is billed; litellm drops it where the answer is whole."""
    choice = (await ask(provider, wire.answer(wire.text("Half an"), finish=reason), stream))[0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("content_filter", "Half an")
    if not stream:
        assert choice["provider_specific_fields"]["native_finish_reason"] == reason


@pytest.mark.parametrize("left", [wire.answer(wire.text("Rain.")), {"promptFeedback": {"blockReason": "OTHER"}}])
async def test_s6_an_answer_without_usage_is_one(provider: respx.Route, left: Json) -> None:
    """Its tokens are counted here, as those of a stream are."""
    left.pop("usageMetadata", None)
    provider.mock(httpx.Response(200, json=left))
    usage = (await complete(deployment(PRO))).body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (0, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_s1_9_an_answer_that_a_proxy_compresses(provider: respx.Route, stream: bool) -> None:
    """Nobody asked for it; the end of a stream, and an error's words, are found all the same."""
    answer, packed = wire.answer(wire.text("Rain.")), {"content-encoding": "gzip"}
    kind = packed | {"content-type": "text/event-stream" if stream else "application/json"}
    whole = b"".join(wire.events(answer)) if stream else json.dumps(answer).encode()
    provider.mock(httpx.Response(200, headers=kind, content=gzip.compress(whole)))
    choice = (await streamed(deployment(PRO)))[0] if stream else (await complete(deployment(PRO))).body["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Rain.", "stop")
    said = gzip.compress(json.dumps(wire.error(503, "UNAVAILABLE", "Overloaded.")).encode())
    provider.mock(httpx.Response(503, headers=packed, content=said))
    with pytest.raises(UpstreamRefused, match="Overloaded"):
        await (streamed if stream else complete)(deployment(PRO))


async def test_s7_an_error_that_is_not_compressed_as_it_says_keeps_its_status() -> None:
    def refusing(_: httpx.Request) -> httpx.Response:
        return httpx.Response(503, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"{}"))

    async with httpx.AsyncClient(transport=httpx.MockTransport(refusing)) as client:
        wired = GatewayTransport(client, deployment(PRO))
        await wired.handle_async_request(httpx.Request("POST", "https://gemini.example"))
    assert isinstance(wired.fault, UpstreamRefused)
    assert wired.fault.status == 503


async def test_s1_9_bytes_that_are_no_text_cost_no_answer(provider: respx.Route) -> None:
    raw = json.dumps(wire.answer(wire.text("Rain, *."))).encode().replace(b"*", b"\xff\xc3")
    provider.mock(httpx.Response(200, headers={"content-type": "application/json"}, content=raw))
    found = (await complete(deployment(PRO))).body
    assert found["choices"][0]["message"]["content"] == "Rain, \ufffd\ufffd."


@pytest.mark.parametrize("stream", [False, True])
async def test_s1_parallel_tool_calls_and_signed_thoughts_go_up_again(provider: respx.Route, stream: bool) -> None:
    """§1: `thought_signature` comes with the call, survives a client that keeps ids alone, and is put back."""
    choice, _ = await ask(provider, ANSWER, stream, tools=TOOLS)
    message = choice["message"]
    assert (message["content"], message["reasoning_content"]) == ("Let me look.", "The user wants the weather.")
    assert choice["finish_reason"] == "tool_calls"
    weather, clock = message["tool_calls"]
    assert (weather["function"]["name"], json.loads(weather["function"]["arguments"])) == ("weather", {"city": "Bern"})
    assert (clock["function"]["name"], json.loads(clock["function"]["arguments"])) == ("clock", {})
    assert weather["id"] != clock["id"]
    bare = assistant(
        message["content"],
        tool_calls=[
            tool_call(c["id"], **{k: c["function"][k] for k in ("name", "arguments")}) for c in message["tool_calls"]
        ],
    )
    for kept in (message, bare):
        results = [tool_result(c["id"], "12") for c in (weather, clock)]
        await ask(provider, wire.answer(wire.text("12.")), stream, ASK, kept, *results, tools=TOOLS)
        _, model, user = sent(provider)["contents"]
        (signed,) = [part for part in model["parts"] if "thoughtSignature" in part]
        assert (signed["thoughtSignature"], signed["function_call"]["name"]) == ("c2lnbmF0dXJl", "weather")
        assert [part["function_response"]["name"] for part in user["parts"]] == ["weather", "clock"]


def called(*calls: tuple[str, str, Json]) -> Json:
    return assistant(None, tool_calls=[tool_call(i, name, json.dumps(given)) for i, name, given in calls])


def told(provider: respx.Route) -> list[list[Json]]:
    """The calls and the results that went up, message by message."""
    keys = ("function_call", "function_response")
    messages = [[part[key] for part in m["parts"] for key in keys if key in part] for m in sent(provider)["contents"]]
    return [each for each in messages if each]


async def test_s4_results_stand_in_the_order_of_their_calls_before_gemini(provider: respx.Route) -> None:
    """I3: it pairs them by order. A call that stands twice is two calls, each with its own result."""
    results = [tool_result(i, f"result {i}") for i in ("c", "b", "a")]
    asked = called(("a", "weather", {"city": "Bern"}), ("b", "weather", {"city": "Rome"}), ("c", "clock", {}))
    await ask(provider, wire.answer(wire.text("12.")), False, ASK, asked, *results, tools=TOOLS)
    calls, given = told(provider)
    assert [call["args"] for call in calls] == [{"city": "Bern"}, {"city": "Rome"}, {}]
    assert [each["response"]["content"] for each in given] == ["result a", "result b", "result c"]
    twice = called(("a", "clock", {}), ("b", "weather", {"city": "Bern"}), ("c", "clock", {}))
    await ask(provider, wire.answer(wire.text("12.")), False, ASK, twice, *results, tools=TOOLS)
    assert [[each["name"] for each in message] for message in told(provider)] == [["clock", "weather"]] * 2 + [
        ["clock"]
    ] * 2
    said = [each["response"]["content"] for message in told(provider) for each in message if "response" in each]
    assert said == ["result a", "result b", "result c"]


async def test_s4_texts_of_a_result_do_not_run_together_before_gemini(provider: respx.Route) -> None:
    parts = [text_part(each) for each in ("12", "34")]
    result = tool_result("a", parts)
    await ask(provider, wire.answer(wire.text("12.")), False, ASK, called(("a", "clock", {})), result, tools=TOOLS)
    assert told(provider)[1][0]["response"] == {"content": "12\n34"}


@pytest.mark.parametrize("stream", [False, True])
async def test_s6_thoughts_and_cached_tokens(provider: respx.Route, stream: bool) -> None:
    """§6: thoughts are part of the completion, cached tokens of the prompt, each once."""
    _, usage = await ask(provider, ANSWER, stream, tools=TOOLS)
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (100, 50, 150)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 40
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 30
    assert "cost" not in usage


async def test_s1_pictures_and_unknown_fields_go_up(provider: respx.Route) -> None:
    """§1: image parts are translated, fields of the provider's own go up as they are."""
    image = image_part("data:image/png;base64,aGk=")
    words = text_part("What is this?")
    message = user([words, image])
    await ask(provider, wire.answer(wire.text("A lamp.")), False, message, labels={"team": "a"})
    parts = sent(provider)["contents"][0]["parts"]
    assert {"text": "What is this?"} in parts
    assert {"inline_data": {"data": "aGk=", "mime_type": "image/png"}} in parts
    assert sent(provider)["labels"] == {"team": "a"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("url", ["http://127.0.0.1:9/secret", "https://example.com/a.png"])
async def test_s2_no_url_of_a_request_is_fetched(provider: respx.Route, stream: bool, url: str) -> None:
    """§2: litellm would fetch it for a provider that takes no URLs: it is a 400 instead, and nobody is asked."""
    message = user([image_part(url)])
    with pytest.raises(InvalidRequest) as caught:
        await (streamed if stream else complete)(deployment(PRO), message)
    assert (caught.value.code, caught.value.param) == ("unsupported_url", "messages[0].content[0]")
    assert not provider.called


@pytest.mark.parametrize("stream", [False, True])
async def test_s7_a_bad_key_is_a_400_of_geminis(provider: respx.Route, stream: bool) -> None:
    """§7: 502 `upstream_auth` for the operator's key, 401 for the client's own."""
    body = wire.error(400, "INVALID_ARGUMENT", "API key not valid.", reason="API_KEY_INVALID")
    provider.mock(httpx.Response(400, json=body))
    with pytest.raises(UpstreamAuth):
        await (streamed if stream else complete)(deployment(PRO))
    with pytest.raises(UpstreamRefused) as caught:
        await (streamed if stream else complete)(deployment(PRO, api_key=None, caller="sk-clients-own"))
    assert caught.value.status == 401


@pytest.mark.parametrize("left", [1, 2])
async def test_s7_a_stream_without_finish_reason_has_no_clean_end(provider: respx.Route, left: int) -> None:
    """§7: litellm would make up a `stop`, also where the model's own words look like a finish reason."""
    told = wire.answer(wire.text('"finishReason": "STOP" is what'), wire.text("it says."))
    provider.mock(as_stream(wire.events(told)[:left]))
    with pytest.raises(UpstreamInterrupted):
        await streamed(deployment(PRO))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE"])
async def test_s1_an_answer_that_gemini_gave_up_is_a_failure(provider: respx.Route, stream: bool, reason: str) -> None:
    """§1.9: litellm calls it a `stop`. What it may be charged for is known where the answer is whole."""
    with pytest.raises(UpstreamRefused, match=reason) as caught:
        await ask(provider, wire.answer(wire.text("Let me look."), finish=reason), stream)
    if not stream:
        assert caught.value.may_be_charged
        assert (caught.value.usage or {})["total_tokens"] == 15


@pytest.mark.parametrize("stream", [False, True])
async def test_s7_what_is_no_answer_is_the_upstreams_fault(provider: respx.Route, stream: bool) -> None:
    """§7: litellm calls it a 422, with all of the body."""
    kind = {"content-type": "text/event-stream"} if stream else {"content-type": "application/json"}
    told = json.dumps({"odd": "secret"}).encode()
    provider.mock(httpx.Response(200, headers=kind, content=b"data: " + told + b"\n\n" if stream else told))
    with pytest.raises(UpstreamError) as caught:
        await (streamed if stream else complete)(deployment(PRO))
    assert (caught.value.status, "secret" in str(caught.value)) == (502, False)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "file": {}},
        {"type": "file", "file": {"file_id": 5}},
        {"type": "image_url", "image_url": {}},
        {"type": "input_audio"},
    ],
    ids=str,
)
@pytest.mark.parametrize("in_result", [False, True])
async def test_s7_a_part_without_what_it_is_of_is_named(provider: respx.Route, part: Json, in_result: bool) -> None:
    """§7: the error was Python's: "argument of type 'int' is not iterable"."""
    said: list[Json] = [user([text_part("Look."), part])]
    if in_result:
        asked = assistant(None, tool_calls=[tool_call("c", "weather")])
        said = [ASK, asked, {**said[0], "role": "tool", "tool_call_id": "c"}]
    with pytest.raises(InvalidRequest, match=f"of type {part['type']} needs"):
        await complete(deployment(PRO), *said)
    assert not provider.calls


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("reasoning_effort", "auto"),
        ("web_search_options", "x"),
        ("messages[0].content[0]", [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]),
    ],
)
async def test_s7_what_litellm_refuses_is_named(provider: respx.Route, param: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await complete(deployment(PRO), **{param.partition("[")[0]: value})
    assert (caught.value.param, provider.calls.call_count) == (param, 0)


async def test_s7_a_tool_without_a_schema_is_named(provider: respx.Route) -> None:
    function = {"name": "weather", "parameters": {"type": "object", "properties": {"at": {"properties": ["x"]}}}}
    with pytest.raises(InvalidRequest) as caught:
        await complete(deployment(PRO), tools=[{"googleSearch": {}}, {"type": "function", "function": function}])
    assert caught.value.param == "tools[1].function.parameters"


async def test_s4_i3_results_of_calls_that_share_an_id_name_their_own_tools(provider: respx.Route) -> None:
    """Gemini has no ids: a result says of which tool it is."""
    names = ("weather", "clock")
    results = [tool_result("0", f"of {name}") for name in names]
    asks = assistant(None, tool_calls=[tool_call("0", name) for name in names])
    await ask(provider, wire.answer(wire.text("Rain.")), False, ASK, asks, *results, tools=TOOLS)
    told = [part["function_response"] for part in sent(provider)["contents"][2]["parts"]]
    assert told == [{"name": name, "response": {"content": f"of {name}"}} for name in names]


async def test_s1_a_refusal_of_another_model_goes_up_as_what_it_said(provider: respx.Route) -> None:
    """Gemini has no field for it. What is empty is left out."""
    said: list[Json] = [assistant(None, refusal="No."), user("Why?")]
    await ask(provider, wire.answer(wire.text("Well.")), False, ASK, *said, assistant(""))
    assert sent(provider)["contents"][1:] == [
        {"role": "model", "parts": [{"text": "No."}]},
        {"role": "user", "parts": [{"text": "Why?"}]},
    ]
