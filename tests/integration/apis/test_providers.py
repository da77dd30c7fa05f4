"""Anthropic and Gemini through a running gateway (guarantee §1, §6, §7, §8)."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI

from gateway.core.types.upstreams import NOT_READ_BY_CLAUDE
from tests.chaos.audit import all_rows
from tests.support import anthropic_wire, gemini_wire
from tests.support.answers import Json, chat, conversation_of, function_tool, read_stream, user, wait_for_bill
from tests.support.command import config_file, gateway_command
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_provider import MockProvider
from tests.support.mock_upstream import MockUpstream
from tests.support.price_map import price_map, rounded
from tests.support.process import PATIENCE, wait_until

TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("weather", "clock")
]
ASK = user("What is the weather in Bern?")
THOUGHT = anthropic_wire.THOUGHT
CALLING = anthropic_wire.message(
    THOUGHT,
    anthropic_wire.text("Let me look."),
    anthropic_wire.tool_use("toolu_1", "weather", city="Bern"),
    anthropic_wire.tool_use("toolu_2", "clock"),
    stop="tool_use",
)
SIGNED = gemini_wire.answer(
    gemini_wire.thought("The user wants the weather."), gemini_wire.call("weather", signature="c2ln", city="Bern")
)
RESULTS = [{"role": "tool", "tool_call_id": i, "content": "12 degrees"} for i in ("toolu_1", "toolu_2")]


def models(mock: MockUpstream) -> list[Json]:
    def entry(name: str, model: str, base: str, **more: Any) -> Json:
        params = {"model": model, "api_base": base, **more}
        return {"model_name": name, "litellm_params": params}

    timeout = {"connect": 2, "first_byte": 5, "idle": 1.0}
    return [
        entry("claude", "anthropic/claude-sonnet-4-5", mock.url, api_key="sk-secret-ant"),
        entry("hasty", "anthropic/claude-sonnet-4-5", mock.url, api_key="sk-secret-ant", timeout=timeout),
        entry("own-key", "anthropic/claude-sonnet-4-5", mock.url),
        entry("gemini", "gemini/gemini-2.5-pro", mock.url, api_key="sk-secret-gem"),
        entry("gpt-4o", "openai/gpt-4o", mock.base_url, api_key="sk-upstream"),
        entry("groq", "groq/llama-3.3-70b", mock.base_url, api_key="sk-upstream"),
        entry("mistral", "mistral/devstral", mock.base_url, api_key="sk-upstream"),
        entry("gone", "anthropic/claude-sonnet-4-5", "http://127.0.0.1:9", api_key="sk-secret-ant"),
    ]


@pytest.fixture(scope="module")
def module_house(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    gateway = module_start_gateway({"model_list": models(module_upstream)})
    MockProvider(module_upstream)
    with gateway.http() as client:  # loads litellm
        client.post("/chat/completions", json={"model": "claude", "messages": [ASK]}, timeout=120)
    return gateway


@pytest.fixture
def house(module_house: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway before both providers and an OpenAI-compatible one."""
    return module_house


@pytest.fixture
def client(house: GatewayProcess, make_client: ClientFactory) -> OpenAI:
    return make_client(house)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("model", "known_as", "answer", "prompt", "completion"),
    [
        (
            "claude",
            "claude-sonnet-4-5",
            anthropic_wire.message(
                anthropic_wire.text("Rain."), spent=anthropic_wire.usage(1000, 333, read=701, written=503, hour=101)
            ),
            {
                "input_cost_per_token": 1000,
                "cache_read_input_token_cost": 701,
                "cache_creation_input_token_cost": 402,
                "cache_creation_input_token_cost_above_1hr": 101,
            },
            {"output_cost_per_token": 333},
        ),
        (
            "gemini",
            "gemini/gemini-2.5-pro",
            gemini_wire.answer(gemini_wire.text("Rain."), spent=gemini_wire.usage(1000, 333, thoughts=77, cached=401)),
            {"input_cost_per_token": 599, "cache_read_input_token_cost": 401},
            {"output_cost_per_token": 410},
        ),
    ],
)
def test_s6_the_bill_to_the_last_digit(
    house: GatewayProcess,
    provider: MockProvider,
    model: str,
    known_as: str,
    answer: Json,
    prompt: Json,
    completion: Json,
    streamed: bool,
) -> None:
    """§6: by the map's prices, each token once: read from the cache or written to it, thought or said."""
    provider.reply(answer)
    if streamed:
        wire = read_stream(house, {"model": model, "messages": [ASK]})
        assert wire.done
        said = "".join((c["delta"].get("content") or "") for chunk in wire.chunks for c in chunk["choices"])
        bill = wire.finish["response_metadata"]
    else:
        found = chat(house, model=model, messages=[ASK])
        said, bill = found["choices"][0]["message"]["content"], found["response_metadata"]
    assert said == "Rain."
    prices = price_map()[known_as]
    assert bill["cost"]["prompt_cost"] == rounded(prompt, prices)
    assert bill["cost"]["completion_cost"] == rounded(completion, prices)
    assert bill["cost"]["total_cost"] == bill["cost"]["prompt_cost"] + bill["cost"]["completion_cost"] > Decimal(0)
    assert bill["cost"]["estimated"] is False
    assert bill["usage"]["prompt_tokens"] == sum(prompt.values())
    assert bill["routing_path"][0] == model
    assert len(provider.calls) == 1


def put_together(client: OpenAI, **body: Any) -> tuple[Json, str]:
    """The message and the conversation of a stream, read with the SDK."""
    conversation, message = "", {"role": "assistant", "content": ""}
    calls: dict[int, Json] = {}
    for chunk in client.chat.completions.create(stream=True, **body):
        conversation = conversation or conversation_of(chunk)
        for choice in chunk.choices:
            message["content"] += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                function = {"name": "", "arguments": ""}
                known = calls.setdefault(call.index, {"id": call.id, "type": "function", "function": function})
                assert call.function is not None
                known["function"]["name"] += call.function.name or ""
                known["function"]["arguments"] += call.function.arguments or ""
    return {**message, "tool_calls": list(calls.values())}, conversation


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("resent", [None, "as it came", (", ", ": "), (",", ":")])
def test_s1_thoughts_are_put_back_in_a_tool_loop(
    client: OpenAI, provider: MockProvider, streamed: bool, resent: Any
) -> None:
    """§1: by delta, or when a client resends its loop without the thoughts, even with arguments that it parsed and
    wrote again with separators of its own: they go up again as they came."""
    provider.reply(CALLING)
    body: Json = {"model": "claude", "tools": TOOLS}
    if streamed:
        message, conversation = put_together(client, messages=[ASK], **body)
    else:
        found = client.chat.completions.create(messages=[ASK], **body)
        conversation = conversation_of(found)
        calls = [call.model_dump(exclude_none=True) for call in found.choices[0].message.tool_calls or ()]
        message = {"role": "assistant", "content": found.choices[0].message.content, "tool_calls": calls}
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message["tool_calls"]] == [
        ("weather", {"city": "Bern"}),
        ("clock", {}),
    ]
    if isinstance(resent, tuple):
        for call in message["tool_calls"]:
            given = json.loads(call["function"]["arguments"] or "{}")
            call["function"]["arguments"] = json.dumps(given, separators=resent)
    new: Any = [ASK, message, *RESULTS] if resent else RESULTS
    client.chat.completions.create(messages=new, extra_body={"conversation": conversation}, **body)
    _, assistant, results = provider.last.body["messages"]
    assert assistant == {"role": "assistant", "content": CALLING["content"]}
    assert [part["tool_use_id"] for part in results["content"]] == ["toolu_1", "toolu_2"]


@pytest.mark.parametrize("streamed", [False, True])
def test_s1_an_answer_that_was_spoken_is_told_as_each_upstream_takes_it(
    client: OpenAI, provider: MockProvider, upstream: MockUpstream, streamed: bool
) -> None:
    """By its id while that is valid and audio is asked for, else by its transcript: never with its data."""
    aloud: Json = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
    for expires, model, more, told in (
        (4e9, "gpt-4o", aloud, {"audio": {"id": "audio_1"}}),
        (4e9, "gpt-4o", {}, {"content": "Rain."}),
        (1, "gpt-4o", aloud, {"content": "Rain."}),
        (4e9, "claude", {}, {"content": [{"type": "text", "text": "Rain."}]}),
    ):
        said = {"id": "audio_1", "transcript": "Rain.", "data": "AAAA", "expires_at": expires}
        upstream.reply(message={"content": None, "audio": said})
        found: Any = client.chat.completions.create(model="gpt-4o", messages=[ASK], stream=streamed, extra_body=aloud)
        first, *_ = found if streamed else [found]
        named = {"conversation": conversation_of(first), **more}
        client.chat.completions.create(model=model, messages=[user("And now?")], extra_body=named)
        seen = provider.last if model == "claude" else upstream.last
        assert {k: v for k, v in seen.body["messages"][1].items() if v} == {"role": "assistant", **told}


def test_s1_an_audio_by_its_id_is_told_as_each_upstream_takes_it(
    client: OpenAI, provider: MockProvider, upstream: MockUpstream
) -> None:
    """As OpenAI's clients send it again: as it came where it was made, elsewhere as the transcript that is stored."""
    said = {"id": "audio_own", "transcript": "Rain.", "data": "AAAA", "expires_at": 4e9}
    upstream.reply(message={"content": None, "audio": said})
    first: Any = client.chat.completions.create(model="gpt-4o", messages=[ASK])
    spoken: Any = {"role": "assistant", "audio": {"id": "audio_own"}}
    again = [ASK, spoken, user("And now?")]
    for named in ({}, {"conversation": conversation_of(first)}):
        client.chat.completions.create(model="gpt-4o", messages=again, extra_body=named)
        assert upstream.last.body["messages"] == again
        client.chat.completions.create(model="claude", messages=again, extra_body=named)
        assert provider.last.body["messages"][1]["content"] == [{"type": "text", "text": "Rain."}]


@pytest.mark.parametrize("kind", ["input_audio", "video_url"])
def test_s10_stored_sounds_do_not_end_a_conversation_with_claude(
    client: OpenAI, provider: MockProvider, upstream: MockUpstream, kind: str
) -> None:
    """They are told as text by each API; what a client sends itself is refused by its place."""
    upstream.strict = False  # other servers than OpenAI's take video
    part: Any = {"type": kind, kind: {"url": "https://e.org/a", "data": "AAAA", "format": "wav"}}
    heard: Any = user([{"type": "text", "text": f"What is this {kind}?"}, part])
    first = client.chat.completions.create(model="gpt-4o", messages=[heard])
    named = {"conversation": conversation_of(first)}
    client.chat.completions.create(model="claude", messages=[user("And now?")], extra_body=named)
    told = provider.last.body["messages"][0]["content"]
    assert told[1]["text"] == f"({NOT_READ_BY_CLAUDE[kind]}: not readable here)"
    asked = {"model": "claude", "max_tokens": 9, "messages": [user("And by Messages?")], **named}
    client.post("/messages", body=asked, cast_to=httpx.Response)
    assert provider.last.body["messages"][0]["content"] == told
    with pytest.raises(BadRequestError) as refused:
        client.chat.completions.create(model="claude", messages=[ASK, heard])
    assert refused.value.param == "messages[1].content[1]"


@pytest.mark.parametrize("model", ["claude", "gemini"])
def test_s7_1_what_a_provider_cannot_take_at_all_is_a_400_that_says_so(
    client: OpenAI, provider: MockProvider, model: str
) -> None:
    """Another provider's audio by its id alone, and a hosted call without details, in which nothing is said."""
    spoken: Any = {"role": "assistant", "audio": {"id": "audio_1"}}
    asked = len(provider.calls)
    with pytest.raises(BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=[ASK, spoken, user("And now?")])
    assert caught.value.param == "messages[1].audio"
    searched: Any = [{"type": "web_search_call", "id": "ws_1", "status": "completed"}]
    with pytest.raises(BadRequestError) as caught:
        client.responses.create(model=model, input=searched)
    assert caught.value.param == "input"
    assert len(provider.calls) == asked


@pytest.mark.parametrize("streamed", [False, True])
def test_s1_thoughts_do_not_go_to_another_provider(
    client: OpenAI, provider: MockProvider, upstream: MockUpstream, streamed: bool
) -> None:
    """§1: not across providers; back with the first, they are there again."""
    provider.reply(SIGNED)
    body: Json = {"tools": TOOLS, "model": "gemini"}
    if streamed:
        message, conversation = put_together(client, messages=[ASK], **body)
        (call,) = message["tool_calls"]
        call_id = call["id"]
    else:
        found = client.chat.completions.create(messages=[ASK], **body)
        conversation, call_id = conversation_of(found), (found.choices[0].message.tool_calls or [])[0].id
    named = {"conversation": conversation}
    result: Any = {"role": "tool", "tool_call_id": call_id, "content": "12 degrees"}
    provider.reply(gemini_wire.answer(gemini_wire.text("12 degrees.")))
    client.chat.completions.create(messages=[result], extra_body=named, **body)

    client.chat.completions.create(model="gpt-4o", tools=TOOLS, messages=[user("Sure?")], extra_body=named)
    asked, answered, current = upstream.last.body["messages"]
    assert (asked, answered) == (ASK, {"role": "assistant", "content": "12 degrees."})
    assert "\n12 degrees\n</artifact>" in current["content"], "§3.3: the result is told as text"
    assert current["content"].endswith("\n\nSure?")

    client.chat.completions.create(messages=[user("Thanks")], extra_body=named, **body)
    parts = [part for content in provider.last.body["contents"] for part in content["parts"]]
    assert [part["thoughtSignature"] for part in parts if "thoughtSignature" in part] == ["c2ln"]


@pytest.mark.parametrize("model", ["claude", "gemini"])
def test_s1_10_hosted_tools_of_a_chat_that_no_provider_of_others_runs(
    house: GatewayProcess, client: OpenAI, provider: MockProvider, model: str
) -> None:
    """§1.10: left out with a warning, as where a response names them; the choice of one is a 400 that names it."""
    wire = anthropic_wire if model == "claude" else gemini_wire
    said = anthropic_wire.message(wire.text("Rain.")) if model == "claude" else gemini_wire.answer(wire.text("Rain."))
    hosted: Any = [{"type": "web_search"}, {"type": "file_search", "vector_store_ids": ["vs_1"]}]
    for tools, forwarded in (([*hosted, *TOOLS], True), (hosted, False)):
        provider.reply(said)
        found = chat(house, model=model, messages=[ASK], tools=tools, parallel_tool_calls=True)
        assert found["choices"][0]["message"]["content"] == "Rain."
        assert [f"hosted_tool_left_out: {each['type']} (upstream.hosted_tools)" for each in hosted] == found[
            "response_metadata"
        ]["context_utilization"]["warnings"]
        assert ("tools" in provider.last.body) is forwarded
        assert "search" not in str(provider.last.body.get("tools"))
    for choice, offered in (({"type": "web_search"}, [*hosted, *TOOLS]), ("required", hosted)):
        forcing: Any = {"model": model, "messages": [ASK], "tools": offered, "tool_choice": choice}
        with pytest.raises(BadRequestError) as raised:
            client.chat.completions.create(**forcing)
        assert (raised.value.param, raised.value.code) == ("tool_choice", "unsupported_parameter")


def kept(gateway: GatewayProcess) -> dict[str, int]:
    """How many rows each table has."""
    config: Any = gateway.config
    return {name: len(found) for name, found in all_rows(config["storage"]["url"]).items()}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"messages": [{"role": "system", "content": "Be brief."}]}, "messages"),
        ({"n": 2}, "n"),
        ({"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice"),
    ],
    ids=["system alone", "n", "hosted choice"],
)
def test_s7_1_what_is_refused_while_its_call_is_made_leaves_nothing(
    house: GatewayProcess, provider: MockProvider, change: Json, named: str, streamed: bool
) -> None:
    """§7.1: nobody is asked, and neither a conversation nor a bill is stored, nor one that is open."""
    before, asked = kept(house), len(provider.calls)
    body = {"model": "claude", "messages": [ASK], "stream": streamed, **change}
    answer = house.post("/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, named)
    assert "x-conversation-id" not in answer.headers
    assert not provider.calls[asked:]
    wait_until(lambda: kept(house) == before, "the deletion of the open bill")


def test_s7_a_stream_that_falls_silent_is_an_error_event(house: GatewayProcess, provider: MockProvider) -> None:
    """§7: the model's own idle time; the stream ends with an error and without `[DONE]`, its cost is kept."""
    provider.reply(CALLING, stall_after=6)
    wire = read_stream(house, {"model": "hasty", "messages": [ASK]})
    assert wire.error is not None
    assert wire.error["code"] == "upstream_timeout"
    assert not wire.done
    assert provider.last.disconnected.wait(PATIENCE)
    assert wait_for_bill(house, wire.chunks[0]["id"])["response_metadata"]["cost"]["estimated"] is True


@pytest.mark.parametrize("path", ["/chat/completions", "/messages"])
def test_s6_of_an_answer_that_breaks_off_the_prompt_is_billed_as_told(
    house: GatewayProcess, provider: MockProvider, path: str
) -> None:
    """Claude tells at once how much of a prompt was read from its cache, which costs a tenth."""
    spent = anthropic_wire.usage(1000, 333, read=701, written=503, hour=101)
    provider.reply(anthropic_wire.message(anthropic_wire.text("It rains."), spent=spent), stall_after=4)
    body = {"model": "hasty", "messages": [ASK], "max_tokens": 99, "stream": True}
    bill = wait_for_bill(house, house.post(path, json=body).headers["x-request-id"])["response_metadata"]
    prices = price_map()["claude-sonnet-4-5"]
    tokens = {
        "input_cost_per_token": 1000,
        "cache_read_input_token_cost": 701,
        "cache_creation_input_token_cost": 402,
        "cache_creation_input_token_cost_above_1hr": 101,
    }
    assert bill["cost"]["prompt_cost"] == rounded(tokens, prices)
    assert bill["cost"]["estimated"] is True
    assert 0 < bill["usage"]["completion_tokens"] < 333


@pytest.mark.parametrize(("model", "events"), [("claude", 6), ("gemini", 1)])
def test_s7_a_client_that_leaves_cancels_the_call(
    house: GatewayProcess, provider: MockProvider, model: str, events: int
) -> None:
    """§7: at once; what was delivered is kept as a partial turn with its bill."""
    provider.reply(CALLING if model == "claude" else SIGNED, stall_after=events)
    body = {"model": model, "messages": [ASK], "stream": True}
    with house.http() as plain, plain.stream("POST", "/chat/completions", json=body) as answer:
        line = next(line for line in answer.iter_lines() if line.startswith("data:"))
    assert provider.last.disconnected.wait(PATIENCE)
    bill = wait_for_bill(house, json.loads(line.removeprefix("data:"))["id"])
    assert bill["response_metadata"]["cost"]["estimated"] is True


def test_s9_models_and_check(house: GatewayProcess, listening: MockUpstream, tmp_path: Path) -> None:
    """§9: the entries are listed; `gateway check` reaches what it can, names a refused key and an unknown provider."""
    listed = [model["id"] for model in house.get("/models").json()["data"]]
    assert listed == [entry["model_name"] for entry in models(listening)]
    provider = MockProvider(listening)

    def check(*entries: Json) -> tuple[int, str]:
        config = {"model_list": entries, "storage": {"url": f"sqlite:///{tmp_path / 'x.db'}"}}
        path = config_file(tmp_path, json.dumps(config))
        done = gateway_command("check", "--config", str(path), directory=tmp_path)
        return done.returncode, done.stdout

    claude, *_, gemini, _, _, _, _ = models(listening)
    cloud = {"model_name": "nova", "litellm_params": {"model": "bedrock/amazon.nova-pro-v1:0"}}
    code, said = check(claude, gemini, cloud)
    assert code == 0, said
    asked = [(r.path, r.headers.get("x-api-key"), r.headers.get("x-goog-api-key")) for r in provider.requests]
    assert asked == [("/v1/models", "sk-secret-ant", None), ("/models", None, "sk-secret-gem")]
    assert "called through litellm" in said
    bad = {"model_name": "b", "litellm_params": {**claude["litellm_params"], "api_key": "sk-bad"}}
    code, said = check(bad)
    assert (code, "the key was refused" in said) == (1, True), said
    code, said = check({"model_name": "t", "litellm_params": {"model": "antropic/claude"}})
    assert (code, "'antropic/claude' is not known" in said) == (1, True), said


@pytest.mark.parametrize(("model", "knows"), [("groq", False), ("gpt-4o", True)])
def test_s1_fields_of_others_go_to_no_provider_that_refuses_them(
    house: GatewayProcess, upstream: MockUpstream, provider: MockProvider, model: str, knows: bool
) -> None:
    """A client that has nothing stored sends it back, whoever made it; what stands at the address of a gateway may be
    another LiteLLM."""
    provider.reply(SIGNED)
    made = chat(house, ASK, model="gemini", tools=TOOLS, store=False)["choices"][0]["message"]
    (call,) = made["tool_calls"]
    assert call["provider_specific_fields"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "12 degrees"}]
    chat(house, ASK, made, *results, model=model, tools=TOOLS, store=False)
    _, again, _ = upstream.forwarded
    assert ("provider_specific_fields" in json.dumps(again)) is knows
    assert ("reasoning_content" in again) is knows


@pytest.mark.parametrize("api", ["chat/completions", "messages"])
def test_s6_marks_become_no_contents_that_google_stores(
    house: GatewayProcess, provider: MockProvider, api: str
) -> None:
    """litellm would store one for each request, and nobody would bill it. A property of that name is none."""
    mark = {"cache_control": {"type": "ephemeral"}}
    said = user([{"type": "text", "text": "word " * 9000, **mark}])
    schema = {"type": "object", "properties": mark}
    tool = {"name": "f", "input_schema": schema} if api == "messages" else function_tool("f", parameters=schema)
    provider.reply(gemini_wire.answer(gemini_wire.text("Rain.")))
    asked = len(provider.requests)
    body = {"model": "gemini", "max_tokens": 99, "messages": [said], "tools": [{**tool, **mark}]}
    assert house.post(f"/{api}", json=body).status_code == 200
    (sent,) = provider.requests[asked:]
    assert json.dumps(sent.body).count("cache_control") == 1


def test_s12_7_mistral_gets_ids_and_an_order_that_it_takes(
    house: GatewayProcess, upstream: MockUpstream, provider: MockProvider
) -> None:
    """It refuses ids that are no nine letters and digits, and words behind a result, as agents before Claude send."""
    uses = [{"type": "tool_use", "id": f"toolu_{n}", "name": "weather", "input": {}} for n in range(2)]
    results = [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"{n} degrees"} for n in range(2)]
    said = [ASK, {"role": "assistant", "content": uses}, user([*results, {"type": "text", "text": "In Kelvin."}])]
    tool = {"name": "weather", "input_schema": {"type": "object"}}
    body = {"model": "mistral", "max_tokens": 99, "messages": said, "tools": [tool]}
    assert house.post("/messages", json=body).status_code == 200
    _, answer, *found, between, last = upstream.forwarded
    called = [call["id"] for call in answer["tool_calls"]]
    assert all(len(each) == 9 and each.isalnum() for each in called)
    assert [each["tool_call_id"] for each in found] == called
    assert [each["content"] for each in found] == ["0 degrees", "1 degrees"]
    assert (between["role"], last["content"]) == ("assistant", "In Kelvin.")
