"""Messages to a model of Anthropic's that looks at signatures: natively, without litellm (guarantee §10.9, §10.10)."""

import base64
import json
from typing import Any

import pytest
from anthropic import APIStatusError

from tests.support import anthropic_wire as wire
from tests.support.answers import Json, assistant, function_tool, ok, text_part, tool_call, tool_result, user
from tests.support.documents import pdf
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.http_server import Answer
from tests.support.messages import TOOL, ask, sdk
from tests.support.mock_provider import JSON, MockProvider
from tests.support.mock_upstream import MockUpstream
from tests.support.signing_anthropic import SigningAnthropic

pytestmark = pytest.mark.in_turn("stream")

WINDOW = 3000
STEPS, LINES = 6, 60
ENABLED: Any = {"type": "enabled", "budget_tokens": 1024}
ADAPTIVE: Any = {"type": "adaptive"}
USER: Json = user("Which keeper signed the ledger?")
MARK = {"cache_control": {"type": "ephemeral"}}


@pytest.fixture(scope="module")
def house(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    params = {"model": "anthropic/claude-sonnet-4-5", "api_base": module_upstream.url, "api_key": "sk-ant"}
    facts = {"max_input_tokens": WINDOW, "context_window": WINDOW}
    roomy = {"max_input_tokens": 2 * WINDOW, "context_window": 2 * WINDOW}
    models = [
        {"model_name": "small", "litellm_params": params, "model_info": facts},
        {"model_name": "roomy", "litellm_params": params, "model_info": roomy},
        {"model_name": "claude", "litellm_params": params},
    ]
    return module_start_gateway({"model_list": models})


def signing(provider: MockProvider, told: list[Json]) -> SigningAnthropic:
    """The provider, which says from now on what is `told`, and signs its thoughts."""
    model = SigningAnthropic()
    provider.claude = lambda body: model.answer(body, *told)
    return model


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("thinking", [ENABLED, ADAPTIVE], ids=["enabled", "adaptive"])
@pytest.mark.parametrize("name", ["small", "claude"])
def test_s10_10_a_tool_loop(
    house: GatewayProcess, provider: MockProvider, name: str, thinking: Any, stream: bool
) -> None:
    """§10.10: a client that sends all of a tool loop again is never refused; where all fits, no thought is lost."""
    told: list[Json] = []
    model = signing(provider, told)
    said: list[Json] = [user([{**wire.text(str(USER["content"])), **MARK}])]
    most = 200 if name == "small" else 2000
    body = {"model": name, "max_tokens": most, "tools": [TOOL], "thinking": thinking, "system": "Look it up."}
    for step in range(STEPS):
        told[:] = [wire.text("Let me look."), wire.tool_use(f"toolu_{step}", "weather", city=str(step))]
        answer = ask(house, {**body, "messages": said}, stream=stream)
        said.append(assistant(answer["content"]))
        page = "\n".join(f"Lamp {step}-{n} was lit by keeper number {step * LINES + n}." for n in range(LINES))
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": page}
        said.append(user([result]))
    told[:] = [wire.text("Keeper 12.")]
    answer = ask(house, {**body, "messages": said}, stream=stream)
    assert answer["content"][-1]["text"] == "Keeper 12."
    assert model.refused == []
    if name == "claude":
        assert model.thoughts == list(range(STEPS + 1))
        assert model.requests[-1]["messages"][-1] == said[-1]
        assert model.requests[-1]["system"] == [wire.text("Look it up.")]


@pytest.mark.parametrize(
    ("more", "offered"), [({}, True), ({"thinking": ENABLED}, False), ({"thinking": ADAPTIVE}, False)]
)
@pytest.mark.parametrize("wanted", [True, "auto"])
def test_s10_11_no_rounds_stand_before_signed_thoughts(
    house: GatewayProcess, provider: MockProvider, more: Json, offered: bool, wanted: Any
) -> None:
    """§10.11: a thought that was made behind a round of `recall` would fit no later request, which has no rounds."""
    signing(provider, [wire.text("So it is.")])
    old = "\n".join(f"Lamp {n} was lit by keeper number {n}." for n in range(400))
    body: Json = {"max_tokens": 1500, "tools": [TOOL], "context": {"recall": wanted}, **more}
    call, result = wire.tool_use("toolu_1", "weather", city="Bern"), {"type": "tool_result", "tool_use_id": "toolu_1"}
    said = [USER, assistant([call]), user([{**result, "content": old}])]
    said += [assistant("Much."), user("Go on.")]
    ask(house, {**body, "model": "roomy", "messages": said}, stream=False)
    names = [tool["name"] for tool in provider.last.body["tools"]]
    assert names == (["weather", "recall"] if offered else ["weather"])


def test_s10_9_blocks_of_its_own_and_betas(house: GatewayProcess, provider: MockProvider) -> None:
    """§10.9: hosted tools, betas and unknown fields go up; their blocks come back and go up again as they came."""
    searched = [
        wire.text("I look it up."),
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Bern"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        wire.text("It rains."),
    ]
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    for stream in (False, True):
        provider.reply(wire.message(*searched))
        body: Json = {"model": "claude", "max_tokens": 2000, "tools": [hosted], "messages": [USER], "top_k": 3}
        answer = ask(house, body, stream=stream, anthropic_beta="new-2026")
        assert provider.last.headers["anthropic-beta"] == "new-2026"
        assert provider.last.headers["x-api-key"] == "sk-ant"
        assert (provider.last.body["tools"], provider.last.body["top_k"]) == ([hosted], 3)
        said = [USER, assistant(answer["content"]), user("And Basel?")]
        ask(house, {**body, "messages": said}, stream=stream)
        found = provider.last.body["messages"][1]["content"]
        assert [block["type"] for block in found] == [block["type"] for block in searched]
        assert found == searched


def test_s3_4_a_turn_that_anthropic_paused_is_stored_whole(house: GatewayProcess, provider: MockProvider) -> None:
    """§3.4: the client sends the paused answer back, and what the model adds belongs to it."""
    told: list[Json] = [
        wire.text("I look it up."),
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Bern"}},
    ]
    model = signing(provider, told)
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    body: Json = {"model": "claude", "max_tokens": 2000, "tools": [hosted], "thinking": ADAPTIVE}
    for stream in (False, True):
        paused = ask(house, {**body, "messages": [USER]}, stream=stream)
        rest = [{"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}, wire.text("It rains.")]
        provider.claude = lambda body, rest=rest: model.answer(body, *rest, thinks=False)
        whole = ask(house, {**body, "messages": [USER, assistant(paused["content"])]}, stream=stream)
        again = {**body, "conversation": whole["conversation"]["id"], "messages": [user("And Basel?")]}
        ask(house, again, stream=stream)
        assert model.requests[-1]["messages"][1] == assistant([*paused["content"], *rest])
        provider.claude = lambda body: model.answer(body, *told)
    assert model.refused == []


def test_s10_9_a_users_own_blocks(house: GatewayProcess, provider: MockProvider) -> None:
    """§10.9: what a user's message says in Anthropic's words alone goes up as it came."""
    signing(provider, [wire.text("Read.")])
    blocks: list[Json] = [
        {"type": "document", "source": {"type": "url", "url": "https://e.org/a.pdf"}, **MARK},
        {"type": "search_result", "source": "https://e.org", "title": "E", "content": [wire.text("found")]},
        {"type": "container_upload", "file_id": "file_2"},
        wire.text("What do they say?"),
    ]
    for stream in (False, True):
        ask(house, {"model": "claude", "max_tokens": 2000, "messages": [{**USER, "content": blocks}]}, stream=stream)
        assert provider.last.body["messages"][0]["content"] == blocks


def test_s10_9_an_overflow_keeps_its_figures(house: GatewayProcess, provider: MockProvider) -> None:
    """§10.9: that a prompt is too long, Anthropic says in its own figures, also where nothing can be made shorter."""
    said = wire.error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
    provider.claude = lambda body: Answer(400, JSON, (json.dumps(said).encode(),))
    with sdk(house) as client, pytest.raises(APIStatusError) as raised:
        client.messages.create(model="claude", max_tokens=10, messages=[user("hi")])
    assert (raised.value.status_code, raised.value.body) == (400, said)


def test_s1_a_document_of_text_goes_up_as_it_came(house: GatewayProcess, provider: MockProvider) -> None:
    """§1, §2: a document that the window leaves whole stays one, also in a result; without room it is an artifact."""
    signing(provider, [wire.text("Read.")])
    text = {"type": "text", "media_type": "text/plain", "data": "Keeper 12 signed the ledger."}
    more: Json = {"title": "Ledger", "context": "Of 1871.", "citations": {"enabled": True}}
    blocks: list[Json] = [
        {"type": "document", "source": text, **more, **MARK},
        {"type": "document", "source": {"type": "content", "content": [wire.text("One."), wire.text("Two.")]}, **more},
        wire.text("Who signed it?"),
    ]
    for name, stream in (("claude", False), ("small", True)):
        ask(house, {"model": name, "max_tokens": 200, "messages": [{**USER, "content": blocks}]}, stream=stream)
        assert provider.last.body["messages"][0]["content"] == blocks
    use = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {}}
    page = base64.b64encode(pdf(["Keeper 12 signed the ledger."])).decode()
    read = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": page}}
    inside: list[Json] = [*blocks[:2], read]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": inside}
    said = [USER, assistant([use]), user([result])]
    for name, stream in (("claude", False), ("small", True)):
        ask(house, {"model": name, "max_tokens": 200, "messages": said, "tools": [TOOL]}, stream=stream)
        (sent,) = provider.last.body["messages"][2]["content"]
        assert sent["content"] == [{k: v for k, v in block.items() if k not in MARK} for block in inside]
    pages = {**text, "data": "\n\n".join(f"Lamp {n} was lit by keeper number {n}." for n in range(2000))}
    blocks = [{"type": "document", "source": pages, **more}, wire.text("Who lit lamp 7?")]
    ask(house, {"model": "small", "max_tokens": 200, "messages": [{**USER, "content": blocks}]}, stream=False)
    sent = provider.last.body["messages"][0]["content"]
    assert [block["type"] for block in sent] == ["text", "text"]
    assert all(block.keys() <= {"type", "text", "cache_control"} for block in sent)
    assert "context_data" in sent[0]["text"]


def test_s4_a_search_result_is_an_artifact(house: GatewayProcess, provider: MockProvider) -> None:
    """§1, §4 I6: one that fits goes up as it came, from a tool or the user; one that does not is reduced as a text is,
    the other stays."""
    signing(provider, [wire.text("Read.")])
    lines = ["\n".join(f"Lamp {n} was lit by keeper number {n}." for n in range(count)) for count in (9, 900)]
    page: Json = {"type": "search_result", "source": "https://e.org", "title": "E"}
    short, long = ({**page, "content": [wire.text(text)]} for text in lines)
    uses = [{"type": "tool_use", "id": f"t{n}", "name": "look_up", "input": {}} for n in range(2)]
    for stream, second in ((False, short), (True, long)):
        found = [[short], [wire.text("Two pages."), second]]
        results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": each} for n, each in enumerate(found)]
        said = [user("Who lit lamp 7?"), assistant(uses), user(results)]
        ask(house, {"model": "small", "max_tokens": 200, "messages": said, "tools": [TOOL]}, stream=stream)
        first, last = provider.last.body["messages"][2]["content"]
        assert first["content"] == [short]
    assert last["content"].startswith("[Extract of tool result")
    assert "keeper number 7." in last["content"]
    blocks = [long, wire.text("Who lit lamp 7?")]
    for name, stream in (("claude", False), ("small", True)):
        ask(house, {"model": name, "max_tokens": 200, "messages": [user(blocks)]}, stream=stream)
        sent = provider.last.body["messages"][0]["content"]
        assert [sent[0] == long, sent[1]["text"]] == [name == "claude", blocks[1]["text"]]
    assert sent[0]["text"].startswith("<context_data")
    assert "keeper number 7." in sent[0]["text"]


def test_s1_7_citations_in_a_stream(house: GatewayProcess, provider: MockProvider) -> None:
    """§1.7: the official SDK hears them in the stream, and what it sends again goes up as it came."""
    place = {"type": "char_location", "cited_text": "x", "document_index": 0, "document_title": "t"}
    cited = {**place, "start_char_index": 0, "end_char_index": 1, "file_id": None}
    empty: Json = text_part("", citations=[])
    deltas: list[list[Json]] = [
        [{"type": "text_delta", "text": "By "}],
        [{"type": "text_delta", "text": "x."}, {"type": "citations_delta", "citation": cited}],
    ]
    told: list[Json] = [{"type": "message_start", "message": {**wire.message(), "content": [], "stop_reason": None}}]
    for index, each in enumerate(deltas):
        told.append({"type": "content_block_start", "index": index, "content_block": empty})
        told += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in each]
        told.append({"type": "content_block_stop", "index": index})
    ended = {"delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 5}}
    told += [{"type": "message_delta", **ended}, {"type": "message_stop"}]
    provider.script(*map(wire.event, told))
    said: list[Json] = [USER]
    answer = ask(house, {"model": "claude", "max_tokens": 99, "messages": said}, stream=True)
    content = [{**empty, "text": "By "}, {**empty, "text": "x.", "citations": [cited]}]
    assert answer["content"] == content
    provider.reply(wire.message(wire.text("Yes.")))
    again = [*said, assistant(answer["content"]), user("Sure?")]
    ask(house, {"model": "claude", "max_tokens": 99, "messages": again}, stream=False)
    stripped = {name: value for name, value in cited.items() if value is not None}
    sent = provider.last.body["messages"][1]["content"]
    assert [block["text"] for block in sent] == ["By ", "x."]
    assert stripped.items() <= sent[1]["citations"][0].items()


def test_s10_10_an_effort_is_no_thinking_where_the_last_step_has_no_thought(
    house: GatewayProcess, provider: MockProvider
) -> None:
    """§10.10: in a loop whose step another model took, and where a tool is forced, Anthropic answers only without."""
    signing(provider, [wire.text("Keeper 12.")])
    call = tool_call("call_1", "weather")
    loop: list[Json] = [USER, assistant(None, tool_calls=[call]), tool_result("call_1", "Rain.")]
    body = {"model": "claude", "max_tokens": 3000, "reasoning_effort": "low"}
    tools = [function_tool("weather", parameters={"type": "object"})]
    named = {"type": "function", "function": {"name": "weather"}}
    asked: list[tuple[list[Json], Any, bool]] = [(loop, "auto", False), ([USER], "auto", True), ([USER], "none", True)]
    for said, choice, thinks in (*asked, ([USER], "required", False), ([USER], named, False)):
        found = house.post("/chat/completions", json={**body, "messages": said, "tools": tools, "tool_choice": choice})
        assert found.status_code == 200, found.text
        assert ("thinking" in provider.last.body) == thinks


@pytest.mark.parametrize("first", ["messages", "chat"])
def test_s10_10_thoughts_stay_with_the_protocol_that_they_were_made_by(
    house: GatewayProcess, provider: MockProvider, first: str
) -> None:
    """§10.10: litellm translates chats of the same conversation in other words: tools, results with pictures."""
    told = [wire.text("Keeper 12.")]
    model = signing(provider, told)
    schema: Json = {"type": "object"}
    tools = [function_tool("weather", parameters=schema)]
    body: Json = {"model": "claude", "max_tokens": 2000, "thinking": ENABLED, "messages": [USER]}
    with house.http() as client:

        def ask_by(edge: str) -> Json:
            natively = edge == "messages"
            tools_of_it = [{"name": "weather", "input_schema": schema}] if natively else tools
            path = "/messages" if natively else "/chat/completions"
            return ok(client.post(path, json={**body, "tools": tools_of_it}))

        other = "chat" if first == "messages" else "messages"
        body["conversation"] = ask_by(first)["conversation"]
        for edge in (first, other, other, first):
            ask_by(edge)
    assert model.refused == []
    assert model.thoughts == [0, 1, 0, 1, 2]
