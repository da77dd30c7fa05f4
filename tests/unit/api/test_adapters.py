"""`api/messages/endpoint.py`, `api/responses/endpoint.py`: how a request is read, and what of it is recognised in the
next (guarantee §10.1, §10.7)."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.chat.endpoint import ChatAdapter
from gateway.api.messages.endpoint import MessagesAdapter
from gateway.api.request.body_cache import BodyCache
from gateway.api.request.validation import RequestArrival
from gateway.api.responses.endpoint import ResponsesAdapter
from gateway.conversations.rebuild import sent_chain
from gateway.core import jsons
from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest
from gateway.core.formats.anthropic import edits
from gateway.core.formats.compaction_items import CompactionSealer
from gateway.core.types.chain import chain_digests
from gateway.core.types.chat import CacheMark, ChatRequest, KnownMessages, RequestCaller
from gateway.storage.store import ConversationStore
from tests.support.answers import there
from tests.support.hand_clock import HandClock
from tests.support.in_process import InProcess

Json = dict[str, Any]
Api = Literal["messages", "responses"]
APIS: tuple[Api, ...] = ("messages", "responses")
SETTINGS = Settings()
STEPS = 30
MARK = {"type": "ephemeral"}
UNASKED = ConversationStore.__new__(ConversationStore)
"""Nothing refers to what is stored."""
NOBODY: Any = None
"""Who looks up what items stand for: there are none here that do."""


@pytest.fixture
def resends() -> BodyCache:
    return BodyCache(2**24, HandClock())


def messages(count: int, text: str = "long words " * 100) -> list[Json]:
    """An agent's step: a question, then calls with long results, the last of which is marked for the cache."""
    found: list[Json] = [{"role": "user", "content": "go"}]
    for number in range(count):
        call = {"type": "tool_use", "id": f"c{number}", "name": "f", "input": {"n": number}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
        found += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    found[-1]["content"][-1]["cache_control"] = MARK
    return found


def items(count: int) -> list[Json]:
    """The same as the input of a response."""
    found: list[Json] = [{"role": "user", "content": "go"}]
    for number in range(count):
        call = {"call_id": f"c{number}", "name": "f", "arguments": "{}"}
        found.append({"type": "function_call", **call})
        found.append({"type": "function_call_output", "call_id": f"c{number}", "output": "long words " * 100})
    return found


def body(api: Api, steps: int, *more: Json, **fields: Any) -> Json:
    if api == "messages":
        return {"max_tokens": 99, "system": "Be kind.", "messages": [*messages(steps), *more], **fields}
    return {"input": [*items(steps), *more], **fields}


def adapter_of(resends: BodyCache, api: Api) -> MessagesAdapter | ResponsesAdapter:
    if api == "messages":
        return MessagesAdapter(SETTINGS, resends, UNASKED)
    return ResponsesAdapter(SETTINGS, resends, NOBODY)


def answered(
    resends: BodyCache, api: Api, body: Json | bytes, adapter: MessagesAdapter | ResponsesAdapter | None = None
) -> ChatRequest:
    """A request that is read, answered and kept."""
    raw = body if isinstance(body, bytes) else json.dumps({"model": "m", **body}).encode()
    adapter = adapter or adapter_of(resends, api)
    arrival = RequestArrival("req_1", datetime(2026, 11, 23, tzinfo=UTC), 0.0, len(raw))
    request = there(adapter.read(raw, {}, RequestCaller("one"), arrival))
    sent_chain(request)
    with adapter.holding(raw, request):
        return request


@pytest.mark.parametrize("api", APIS)
def test_a_step_is_recognised_by_the_one_before_it(resends: BodyCache, api: Api) -> None:
    """Though the mark for the cache has moved on, and whatever else is new: only that is looked at again."""
    first = answered(resends, api, body(api, STEPS))
    assert first.known.count == 0
    later = body(api, STEPS + 1, temperature=0.5)
    second, alone = answered(resends, api, later), answered(BodyCache(0, HandClock()), api, later)
    assert second.known.count >= len(first.messages) - 1
    assert second.messages == alone.messages
    assert list(second.known.digests) == list(alone.known.digests)
    if api == "messages":
        assert second.native == alone.native
        assert there(second.native).marks == (CacheMark(len(second.messages) - 1, None, MARK),)


def test_a_step_is_recognised_where_results_are_full_of_braces(resends: BodyCache) -> None:
    """The body differs from the one before where its mark for the cache was, behind much that may end an object."""
    for steps in range(STEPS, STEPS + 3):
        said = messages(steps, 'if (a) { b = [{"c": {}}, {"d": 1}]; },\n{ "e": f },{"g": [{}]}' * 30)
        found = answered(resends, "messages", {"max_tokens": 99, "messages": said})
        assert found.known.count == (2 * steps - 2 if steps > STEPS else 0)


@pytest.mark.parametrize("api", APIS)
def test_s2_5_of_store_false_digests_alone_are_kept(resends: BodyCache, api: Api) -> None:
    request = answered(resends, api, body(api, STEPS, store=False))
    (kept,) = resends._kept.values()
    assert isinstance(kept, KnownMessages)
    assert (kept.count, kept.source) == (len(request.messages), None)
    assert {type(each) for digest in kept.digests for each in digest} == {bytes, bool}
    assert {len(each) for digest in kept.digests for each in digest if isinstance(each, bytes)} <= {0, 20}


@pytest.mark.parametrize("count", [1, STEPS])
def test_numbers_go_up_as_they_were_written(resends: BodyCache, count: int) -> None:
    """Also where the body is long enough to be written anew."""
    shape = b'{"minimum":1.0,"const":123456789012345678901234567890}'
    tool = b'{"type":"function","name":"f","parameters":%b}' % shape
    raw = b'{"model":"m","input":%b,"tools":[%b],"temperature":0.10}' % (jsons.dumps(items(count)), tool)
    request = answered(resends, "responses", raw)
    sent = jsons.dumps(request.forward["tools"][0]["function"]["parameters"])
    assert sent == shape
    assert jsons.dumps(request.forward["temperature"]) in (b"0.1", b"0.10")


@pytest.mark.parametrize(
    ("api", "wrong", "named"),
    [
        ("messages", {"role": "user", "content": 7}, f"messages[{2 * STEPS + 1}].content"),
        ("responses", {"role": "user", "content": "x", "pinned": "yes"}, f"input[{2 * STEPS + 1}].pinned"),
    ],
)
def test_an_error_of_a_long_request_names_its_place(resends: BodyCache, api: Api, wrong: Json, named: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        answered(resends, api, body(api, STEPS, wrong))
    assert caught.value.param == named


LONG = "long words " * 400
TEXTS = ("yes", "a },{ b", '"}]},{"role":"user"', "é 🙂", "]}", LONG)
PICTURE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
ODD_BLOCKS: tuple[Json, ...] = (
    PICTURE,
    {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
    {"type": "search_result", "source": "a", "title": "b", "content": [{"type": "text", "text": "c"}]},
)
THOUGHTS: tuple[Json, ...] = (
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "thinking", "thinking": "hm"},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
)


def some_messages(dice: Random, number: int) -> list[Json]:
    """What may follow in a Messages request."""

    def marked(block: Json) -> Json:
        return {**block, "cache_control": MARK} if dice.random() < 0.15 else block

    def said() -> Json:
        return marked({"type": "text", "text": dice.choice(TEXTS)})

    if dice.random() < 0.4:
        content = dice.choice((dice.choice(TEXTS), [said()], [said(), marked(dice.choice(ODD_BLOCKS))]))
        return [{"role": dice.choice(("user", "user", "user", "system")), "content": content}]
    if dice.random() < 0.2:
        return [{"role": "assistant", "content": dice.choice(("It is so.", [dice.choice(THOUGHTS), said()]))}]
    calls = [call_id(number, each) for each in range(dice.choice((1, 1, 1, 2)))]
    asked = [{"type": "tool_use", "id": name, "name": "f", "input": {"n": number}} for name in calls]
    contents: list[Any] = [dice.choice(TEXTS), [said(), *dice.choices(ODD_BLOCKS, k=dice.choice((0, 0, 1)))]]
    told = [marked({"type": "tool_result", "tool_use_id": each, "content": dice.choice(contents)}) for each in calls]
    before = dice.choices(THOUGHTS, k=dice.choice((0, 0, 1)))
    pinned = {"pinned": True} if dice.random() < 0.05 else {}
    late = [{"type": "tool_result", "tool_use_id": call_id(number - 1, 0), "content": "late"}]
    found: list[Json] = [{"role": "user", "content": late}] if dice.random() < 0.2 else []
    found.append({"role": "assistant", "content": [*before, *map(marked, asked)]})
    return [*found, {"role": "user", "content": told, **pinned}] if dice.random() < 0.9 else found


def some_items(dice: Random, number: int) -> list[Json]:
    """What may follow in the input of a response: results also behind what was said meanwhile, or none."""

    def said(role: str) -> Json:
        kind = "output_text" if role == "assistant" else "input_text"
        content = dice.choice((dice.choice(TEXTS), [{"type": kind, "text": dice.choice(TEXTS)}]))
        own = {"id": f"msg_{number:032x}", "status": "completed", "type": "message"} if dice.random() < 0.3 else {}
        phase = {"phase": "commentary"} if role == "assistant" and dice.random() < 0.3 else {}
        pinned = {"pinned": True} if dice.random() < 0.05 else {}
        return {"role": role, "content": content, **own, **phase, **pinned}

    found = late_results(dice, number)
    if dice.random() < 0.5:
        return [*found, said(dice.choice(("user", "user", "developer", "assistant")))]
    if dice.random() < 0.3:
        found.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "sealed"})
    if dice.random() < 0.1:
        found.append({"type": "web_search_call", "id": f"ws_{number}", "status": "completed"})
    calls = [call_id(number, each) for each in range(dice.choice((1, 1, 2)))]
    found += [{"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"} for name in calls]
    if dice.random() < 0.1:
        found.append(said(dice.choice(("user", "assistant"))))
    if dice.random() < 0.1:
        action = {"type": "exec", "command": ["ls"], "env": {}}
        found.append({"type": "local_shell_call", "id": f"ls_{number}", "call_id": f"s{number}", "action": action})
        found += [{"type": "local_shell_call_output", "id": f"ls_{number}", "output": "a"}] * dice.choice((0, 1))
    told = [{"type": "function_call_output", "call_id": name, "output": dice.choice(TEXTS)} for name in calls]
    return found + (told if dice.random() < 0.8 else [])


def call_id(number: int, each: int) -> str:
    """Some are of calls that a provider ran itself: without their results they are left out."""
    return f"{'c' if number % 5 else 'srvtoolu_'}{number}_{each}"


def late_results(dice: Random, number: int) -> list[Json]:
    """Results of calls of the request before, perhaps a second time."""
    found: list[Json] = []
    if dice.random() < 0.3:
        found.append({"type": "function_call_output", "call_id": call_id(number - 1, 0), "output": "late"})
    if dice.random() < 0.3:
        found.append({"type": "local_shell_call_output", "id": f"ls_{number - 1}", "output": "late"})
    return found


MAKERS: dict[Api, tuple[Callable[[Random, int], list[Json]], str, str]] = {
    "messages": (some_messages, "messages", "system"),
    "responses": (some_items, "input", "instructions"),
}


def edited(dice: Random, said: list[Json], make: Callable[[Random, int], list[Json]], number: int) -> list[Json]:
    """What a client sends next: mostly more; now and then less, or something else than before."""
    odd, at = dice.random(), dice.randrange(len(said))
    if odd < 0.1:
        said = said[: at + 1]
    elif odd < 0.15:
        said = [*said[:at], *said[at + 1 :]] or said
    elif odd < 0.2:
        said = [*said[:at], *make(dice, 1000 + number), *said[at:]]
    return [*said, *make(dice, number)]


@pytest.mark.parametrize("api", APIS)
@given(seed=st.integers(0, 2**32))
def test_what_was_read_before_is_read_as_if_it_was_new(api: Api, seed: int) -> None:
    """Whatever is added, edited, taken away, marked or said by the system: the same request, names of fields for
    errors, and digests; and the next requests are recognised by those that were read so."""
    make, name, instructions = MAKERS[api]
    dice = Random(seed)
    resends = BodyCache(2**24, HandClock())
    said: list[Json] = [{"role": "user", "content": LONG}, *make(dice, 0)]
    written = dice.choice((None, (",", ":")))
    for number in range(1, 9):
        said = edited(dice, said, make, number)
        heads: list[Any] = ["Be kind.", LONG]
        if api == "messages":
            heads.append([{"type": "text", "text": "Be kind.", "cache_control": MARK}])
        head = {instructions: dice.choice(heads)} if dice.random() < 0.7 else {}
        context = {"context": {"mode": "off"}} if dice.random() < 0.3 and number > 1 else {}
        fields = {
            "model": "m",
            name: said,
            "tools": [],
            **context,
            **head,
            **({"max_tokens": 9} if api == "messages" else {}),
        }
        raw = json.dumps(fields, separators=written, ensure_ascii=dice.random() < 0.5).encode()
        adapter, plainly = adapter_of(resends, api), adapter_of(BodyCache(0, HandClock()), api)
        one, other = answered(resends, api, raw, adapter), answered(BodyCache(0, HandClock()), api, raw, plainly)
        assert replace(one, known=other.known) == other
        assert list(one.known.digests) == list(other.known.digests)
        paths = [f"messages[{each}]{below}" for each in range(len(one.messages)) for below in ("", ".content[0].text")]
        assert [*map(adapter.external_field_name, paths)] == [*map(plainly.external_field_name, paths)]


def test_each_api_has_its_own(resends: BodyCache) -> None:
    """Bodies of two APIs may begin with the same bytes."""
    calls: list[Json] = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in ("a", "b")]
    told = [{"type": "tool_result", "tool_use_id": name, "content": "yes"} for name in ("a", "b")]
    said: list[Json] = [{"role": "user", "content": LONG * 3}, {"role": "assistant", "content": calls}]
    said.append({"role": "user", "content": told})
    answered(resends, "messages", {"messages": said, "max_tokens": 9})
    raw = json.dumps({"model": "m", "messages": [*said, {"role": "user", "content": "and?"}]}).encode()
    arrival = RequestArrival("req_1", datetime(2026, 11, 23, tzinfo=UTC), 0.0, len(raw))
    request = ChatAdapter(SETTINGS, resends).read(raw, {}, RequestCaller("one"), arrival)
    sent_chain(request)
    assert list(request.known.digests) == chain_digests(request.messages)


def test_what_a_compaction_block_stands_for_is_no_message_of_the_body(resends: BodyCache, tmp_path: Path) -> None:
    """Though the body begins with the messages that it covers, which are known."""

    async def read() -> list[ChatRequest]:
        settings = Settings.model_validate({"storage": {"url": f"sqlite:///{tmp_path}/a.db"}})
        gateway = await InProcess(settings, {}, lambda _: {}).prepare()
        first = answered(resends, "messages", body("messages", STEPS))
        sealer = CompactionSealer("one", await gateway.store.secret(), first.messages, said=first.messages)
        block = edits.as_block(sealer, sealer.made_for(""))
        said: list[Json] = [{"role": "assistant", "content": [block]}, {"role": "user", "content": "and?"}]
        raw = json.dumps({"model": "m", **body("messages", STEPS, *said)}).encode()
        found = []
        for cache in (resends, BodyCache(0, HandClock())):
            adapter = MessagesAdapter(SETTINGS, cache, gateway.store)
            arrival = RequestArrival("req_1", datetime(2026, 11, 23, tzinfo=UTC), 0.0, len(raw))
            assert adapter.read(raw, {}, RequestCaller("one"), arrival) is None
            await adapter.look_up(RequestCaller("one"))
            request = there(adapter.read(raw, {}, RequestCaller("one"), arrival))
            found.append(request)
        await gateway.close()
        return found

    one, other = asyncio.run(read())
    assert one.messages == other.messages
    assert len(one.messages) < STEPS
    assert one.known.count == 0
