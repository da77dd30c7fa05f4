"""Secrets and personal data: no model sees them, and clients get them back (guarantee §12.10)."""

import itertools
import json
import random
import re
import string
from typing import Any

import pytest

from tests.support import anthropic_wire as wire
from tests.support.answers import Json, chat, read_stream, used, user
from tests.support.documents import prompt_tokens, prose
from tests.support.factory import GatewayFactory, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.http_server import Record
from tests.support.internal_models import InternalModels, every
from tests.support.messages import ask
from tests.support.mock_provider import MockProvider
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.signing_anthropic import SigningAnthropic

MAIL, CARD, KEY = "ann.lee@mail.example.org", "4111 1111 1111 1111", "sk-live-abcDEF123456ghiJKL"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----"
VALUES = (MAIL, CARD, KEY, "MIIEvQIBADANBgkq")
TOLD = f"I am {MAIL}, card {CARD}, key {KEY}.\n{PEM}"
NAMES = re.compile(r"<[A-Z_]+_[a-z2-7]{8}>")
TOOL: Json = {"type": "function", "function": {"name": "send", "parameters": {"type": "object", "properties": {}}}}
MASKING: Json = {"masking": {"enabled": True}}


def settings_of_house(upstream: MockUpstream) -> dict[str, Any]:
    params = {"model": "anthropic/claude-sonnet-4-5", "api_base": upstream.url, "api_key": "sk-ant"}
    models = [{"model_name": "claude", "litellm_params": params}]
    for name in ("gpt-4o", "gpt-4o-mini", "small"):
        served = {"model": f"openai/{name}", "api_base": upstream.base_url, "api_key": "sk-upstream"}
        facts = {"max_input_tokens": 4096, "max_output_tokens": 512, "tokenizer": "o200k_base"}
        models.append(
            {"model_name": name, "litellm_params": served, **({"model_info": facts} if name == "small" else {})}
        )
    return {**MASKING, "model_list": models, "context": {"planning": "auto"}}


house = shared_gateway(settings_of_house)


def told_back(record: Record) -> Reply:
    """A model that says again, in every way, what it was told."""
    names = list(dict.fromkeys(NAMES.findall(json.dumps(record.body["messages"]))))
    message = {
        "role": "assistant",
        "content": f"You are {', '.join(names)} < you",
        "reasoning_content": f"Who is {names[0]}",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "send", "arguments": json.dumps({"all": names})}}
        ],
    }
    return Reply(message=message)


def seen(upstream: MockUpstream) -> str:
    return " ".join(
        record.raw.decode() if isinstance(record.raw, bytes) else json.dumps(record.body)
        for record in upstream.requests
    )


def assert_hidden(text: str) -> None:
    assert [value for value in VALUES if value in text] == []


@pytest.mark.parametrize("size", [None, 1, 7])
def test_s12_10_no_model_sees_a_value_and_the_client_gets_it_back(
    house: GatewayProcess, upstream: MockUpstream, size: int | None
) -> None:
    """§12.10: in content, thoughts and arguments, whole and in a stream that is cut anywhere; stored as it was said."""

    def reply(record: Record) -> Reply:
        found = told_back(record)
        found.split_bytes = size
        return found

    upstream.handler = reply
    body = {"model": "gpt-4o", "messages": [user(TOLD)], "tools": [TOOL]}
    if size is None:
        answer = chat(house, **body)
        message, conversation = answer["choices"][0]["message"], answer["conversation"]["id"]
    else:
        wire_read = read_stream(house, {**body, "stream": True})
        message, conversation = joined(wire_read.chunks), wire_read.finish["conversation"]["id"]
    assert_hidden(seen(upstream))
    assert sorted(
        re.findall("You are|< you|" + "|".join(map(re.escape, (MAIL, CARD, KEY, PEM))), message["content"])
    ) == (sorted(["You are", "< you", MAIL, CARD, KEY, PEM]))
    assert not NAMES.search(json.dumps(message))
    assert set(json.loads(message["tool_calls"][0]["function"]["arguments"])["all"]) == {MAIL, CARD, KEY, PEM}
    kept = house.get(f"/conversations/{conversation}/items").text
    assert kept.count(MAIL) > 1
    assert not NAMES.search(kept)


def joined(chunks: list[Json]) -> Json:
    found: Json = {"content": "", "reasoning_content": "", "tool_calls": [{"function": {"arguments": ""}}]}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for name in ("content", "reasoning_content"):
                found[name] += delta.get(name) or ""
            for call in delta.get("tool_calls") or ():
                found["tool_calls"][0]["function"]["arguments"] += call["function"].get("arguments") or ""
    return found


def test_s12_10_what_was_forwarded_stays_append_only(house: GatewayProcess, upstream: MockUpstream) -> None:
    """§12.10, §4 I7: the same value has the same placeholder in each request of a conversation."""
    upstream.handler = told_back
    said: list[Json] = []
    for turn in range(5):
        said.append(user(f"{turn}: {TOLD} {prose(turn, 30)} 10.1.2.{turn}"))
        answer = chat(house, model="gpt-4o", messages=said)["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": "call_1", "content": json.dumps({"sent": MAIL, "from": KEY})}
        said += [{k: v for k, v in answer.items() if k in ("role", "content", "tool_calls")}, result]
    sent = [record.body["messages"] for record in upstream.chats]
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
    assert_hidden(seen(upstream))


def test_s12_10_internal_models_and_relayed_calls_see_none(house: GatewayProcess, upstream: MockUpstream) -> None:
    """§12.10: planner and summarizer are asked by placeholders; so are embeddings, completions and moderations."""
    models = InternalModels(
        every("summarize", summarization_focus="whole"),
        lambda text: Reply(text=f"About {NAMES.findall(text)[0] if NAMES.findall(text) else 'nobody'}."),
    )
    upstream.handler = models
    document = "\n".join(f"{prose(n, 40)} Written by {MAIL} with {KEY}." for n in range(60))
    body = {"model": "small", "messages": [user("What does it say?")], "attachments": [{"content": document}]}
    answer = chat(house, **body, context={"planning": "always"})
    assert models.planned
    assert models.summarized
    assert used(answer)["llm_planning_used"]
    assert_hidden(seen(upstream))
    upstream.handler = None
    upstream.routes["POST /v1/completions"] = lambda record: Reply(
        json={"choices": [{"text": record.body["prompt"]}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    )
    house.post("/embeddings", json={"model": "gpt-4o", "input": [TOLD]})
    told = house.post("/completions", json={"model": "gpt-4o", "prompt": TOLD})
    assert_hidden(seen(upstream))
    assert told.json()["choices"][0]["text"] == TOLD


def test_s12_10_no_extract_shows_a_line_of_a_key(house: GatewayProcess, upstream: MockUpstream) -> None:
    """§12.10: an extract may hold some lines of a value without its beginning."""
    digits = random.Random(1)
    alphabet = string.ascii_letters + string.digits + "+/"
    lines = ["".join(digits.choices(alphabet, k=64)) for _ in range(30)]
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----"])
    body = {"model": "small", "attachments": [{"content": f"{prose(1, 2000)}\n{key}\n{prose(2, 2000)}"}]}
    answer = chat(house, **body, messages=[user(f"Where is {lines[14]}?")], context={"planning": "never"})
    assert used(answer)["artifacts_processed"][0]["strategy"] == "rag_extract"
    assert "<PRIVATE_KEY_" in seen(upstream)
    assert [line for line in lines if line in seen(upstream)] == []


def test_s12_10_placeholders_fit_the_window(house: GatewayProcess, upstream: MockUpstream) -> None:
    """§12.10, §4 I1: placeholders are longer than what they stand for; the prompt fits all the same."""
    said = [user("Who are they?")]
    for turn in range(40):
        said += [{"role": "assistant", "content": f"Tell me. {turn}"}]
        said += [user(" ".join(f"a{turn}{n}@b.io" for n in range(15)))]
    chat(house, model="small", messages=said, max_tokens=100)
    forwarded = upstream.last.body["messages"]
    assert NAMES.search(json.dumps(forwarded))
    assert prompt_tokens(upstream.last.body) <= 4096 - 100
    assert len(forwarded) < len(said)


@pytest.mark.parametrize("stream", [False, True])
def test_s12_10_signed_thoughts_go_back_as_they_were_signed(
    house: GatewayProcess, provider: MockProvider, stream: bool
) -> None:
    """§12.10, §10.10: over a tool loop in Anthropic's own words, with values in thoughts and before them."""
    model = SigningAnthropic()
    told: list[Json] = []

    def answer(body: Json) -> Json:
        names = NAMES.findall(json.dumps(body["messages"]))
        model.thought = f"It is x{names[0]}y and my own bob@example.net."
        return model.answer(body, wire.text(f"Hello {names[0]}."), *told)

    provider.claude = answer
    said: list[Json] = [{"role": "user", "content": f"I am {MAIL}."}]
    tool = {"name": "send", "input_schema": {"type": "object", "properties": {}}}
    body: Any = {
        "model": "claude",
        "max_tokens": 2000,
        "tools": [tool],
        "system": f"Serve {MAIL}.",
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    for step in range(3):
        told[:] = [wire.tool_use(f"toolu_{step}", "send", to="you")]
        found = ask(house, {**body, "messages": said}, stream=stream)
        texts = {block["type"]: block for block in found["content"]}
        assert texts["thinking"]["thinking"] == f"It is x{MAIL}y and my own bob@example.net."
        assert texts["text"]["text"] == f"Hello {MAIL}."
        said.append({"role": "assistant", "content": found["content"]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": f"Sent to {MAIL}, {KEY}"}
        said.append({"role": "user", "content": [result]})
    assert model.refused == []
    assert model.thoughts == [0, 1, 2]
    assert_hidden(json.dumps(model.requests))


@pytest.mark.parametrize("stream", [False, True])
def test_s12_10_responses(house: GatewayProcess, upstream: MockUpstream, stream: bool) -> None:
    """§12.10: the same through the API of Responses."""
    upstream.handler = lambda record: Reply(
        text=" ".join(NAMES.findall(json.dumps(record.body["messages"]))), split_bytes=3
    )
    body = {"model": "gpt-4o", "input": TOLD, "instructions": f"Serve {MAIL}.", "stream": stream}
    response = house.post("/responses", json=body)
    assert response.status_code == 200, response.text
    assert_hidden(seen(upstream))
    assert MAIL in response.text
    assert CARD in response.text
    assert not NAMES.search(response.text)


def test_s12_10_what_cannot_be_read_is_refused_where_it_says_so(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """§12.10: `masking.on_unreadable: refuse`; by default it passes."""
    strict = start_gateway({"masking": {"enabled": True, "on_unreadable": "refuse"}})
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    body = {"model": "gpt-4o", "messages": [user([{"type": "text", "text": "What?"}, picture])]}
    refused = strict.post("/chat/completions", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "content_refused")
    assert upstream.chats == []
    assert strict.post("/chat/completions", json={**body, "messages": [user("Hi")]}).status_code == 200
