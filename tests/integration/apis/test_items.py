"""Items of conversations through the official SDK, on both storages (guarantee §3)."""

import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.support import tool_loop
from tests.support.answers import Json, assistant, bill_of, read_stream, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
OTHER = {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Chur"}'}}


class Talk(tool_loop.Talk):
    """One conversation, by chats and by items."""

    def begin(self, *items: Any) -> "Talk":
        self.id = self.client.conversations.create(items=list(items)).id
        return self

    def items(self, **query: Any) -> list[Json]:
        """All items over all pages, the oldest first."""
        pages = self.client.conversations.items.list(self.id, **{"order": "asc", **query})
        return [item.model_dump(exclude_unset=True) for item in pages]

    def add(self, *items: Any) -> list[Json]:
        made = self.client.conversations.items.create(self.id, items=list(items))
        return [item.model_dump(exclude_unset=True) for item in made.data]

    def delete(self, item: Json) -> None:
        left = self.client.conversations.items.delete(item["id"], conversation_id=self.id)
        assert (left.id, left.object) == (self.id, "conversation")


@pytest.fixture
def talk(client: OpenAI, upstream: MockUpstream) -> Talk:
    return Talk(client, upstream)


def said(item: Json) -> Any:
    """What an item says, in short: role and texts, a call's name and arguments, an output."""
    kind = item["type"]
    if kind == "message":
        texts = [part.get("text") or part.get("refusal") or part["type"] for part in item["content"]]
        return (item["role"], *texts)
    if kind == "reasoning":
        return ("thought", item["content"][0]["text"])
    if kind in ("function_call", "custom_tool_call"):
        return (kind, item["call_id"], item.get("arguments", item.get("input")))
    return (kind, item["call_id"], item["output"])


def run_tools(talk: Talk) -> None:
    """A question that two parallel calls, with a word before them, led to an answer of."""
    both = {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL, OTHER], "reasoning_content": "Hm."}
    talk.ask(user("Weather?"), reply=both, tools=TOOLS)
    results = [{"role": "tool", "tool_call_id": each, "content": f"rain {each}"} for each in ("c1", "c2")]
    talk.ask(*results, reply="It rains.", tools=TOOLS)


def test_s3_a_chats_messages_are_items(talk: Talk) -> None:
    """Messages of all roles, thoughts, parallel calls, results, with ids that stay and can be looked up."""
    run_tools(talk)
    items = talk.items()
    assert list(map(said, items)) == [
        ("user", "Weather?"),
        ("thought", "Hm."),
        ("assistant", "Let me look."),
        ("function_call", "c1", '{"city": "Bern"}'),
        ("function_call", "c2", '{"city": "Chur"}'),
        ("function_call_output", "c1", "rain c1"),
        ("function_call_output", "c2", "rain c2"),
        ("assistant", "It rains."),
    ]
    assert {item["status"] for item in items} == {"completed"}
    prefixes = ["msg_", "rs_", "msg_", "fc_", "fc_", "fco_", "fco_", "msg_"]
    assert all(item["id"].startswith(prefix) for item, prefix in zip(items, prefixes, strict=True))
    assert items[0]["content"] == [{"type": "input_text", "text": "Weather?"}]
    assert items[-1]["content"][0]["annotations"] == []
    for item in items:
        found: Any = talk.client.conversations.items.retrieve(item["id"], conversation_id=talk.id)
        assert found.model_dump(exclude_unset=True) == item
    talk.ask(user("And now?"))
    assert talk.items()[: len(items)] == items


def test_s3_the_default_page_is_the_latest_twenty(talk: Talk) -> None:
    talk.begin(*(user(f"number {n}") for n in range(20)))
    talk.add(*(user(f"number {n}") for n in range(20, 25)))
    page = talk.client.conversations.items.list(talk.id, include=["message.output_text.logprobs"])
    texts = [said(item.model_dump()) for item in page.data]
    assert texts == [("user", f"number {n}") for n in range(24, 4, -1)]
    assert page.has_more


def test_s3_6_partial_turns_are_incomplete_and_failed_ones_no_items(gateway: GatewayProcess, talk: Talk) -> None:
    """§3.6: what a broken stream delivered has the status `incomplete`; a failed turn is in no history."""
    talk.ask(user("one"), reply="two")
    talk.upstream.reply(status=500)
    with pytest.raises(openai.InternalServerError):
        talk.ask(user("fails"))
    talk.upstream.reply(text="three four five six", cut_after=3)
    wire = read_stream(gateway, {"model": "gpt-4o", "messages": [user("more")], "conversation": talk.id})
    assert wire.error
    items = talk.items()
    assert [item["role"] for item in items] == ["user", "assistant", "user", "assistant"]
    assert [item["status"] for item in items] == ["completed"] * 3 + ["incomplete"]
    assert said(items[-1])[1] == wire.text


def test_s3_4_items_are_those_of_the_current_branch(talk: Talk) -> None:
    """§3.4: after an edit the list shows the new branch; the other one's items can still be looked up by id."""
    talk.ask(user("one"), reply="two")
    talk.ask(user("three"), reply="four")
    old = talk.items()
    talk.ask(user("one"), assistant("two"), user("three!"), reply="five")
    new = talk.items()
    assert list(map(said, new)) == [("user", "one"), ("assistant", "two"), ("user", "three!"), ("assistant", "five")]
    assert new[:2] == old[:2]
    left: Any = talk.client.conversations.items.retrieve(old[-1]["id"], conversation_id=talk.id)
    assert said(left.model_dump()) == ("assistant", "four")
    with pytest.raises(openai.NotFoundError) as caught:
        talk.items(after=old[-1]["id"])
    assert (caught.value.code, caught.value.param) == ("item_not_found", "after")


def test_s3_items_become_the_history_of_the_next_chat(talk: Talk) -> None:
    """What was added over the API is forwarded in front of what a chat sends, calls with their results."""
    talk.begin(
        {"type": "message", "role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Bern and Chur?"},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Bern"}'},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": '{"city": "Chur"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "snow"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Rain, snow.", "annotations": []}]},
    )
    made = talk.add({"role": "developer", "content": "Use Celsius."})
    talk.ask(user("Thanks."), reply="You are welcome.", tools=TOOLS)
    assert talk.forwarded == [
        {"role": "system", "content": "Be brief."},
        user("Weather in Bern and Chur?"),
        {"role": "assistant", "content": None, "tool_calls": [CALL, OTHER]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "snow"}]},
        assistant("Rain, snow."),
        {"role": "developer", "content": "Use Celsius."},
        user("Thanks."),
    ]
    items = talk.items()
    assert [item["type"] for item in items][:4] == ["message", "message", "function_call", "function_call"]
    assert items[7] == made[0]
    assert said(items[-1]) == ("assistant", "You are welcome.")


def test_s1_9_what_a_response_put_out_is_taken_back_as_items(talk: Talk) -> None:
    """Thoughts too: those that can be read are stored, as a summary, or as they are; sealed ones are left out."""
    thoughts: list[Json] = [
        {"summary": [{"type": "summary_text", "text": "Rain?"}]},
        {"summary": [], "encrypted_content": "x"},
        {"summary": [], "content": [{"type": "reasoning_text", "text": "Rain."}]},
    ]
    output = [{"type": "reasoning", "id": "rs_1", "status": "completed", **each} for each in thoughts]
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It rains."}]}
    talk.begin(user("Weather?"), *output, answer, user("Sure?"), output[1], answer)
    talk.ask(user("Thanks."))
    assert talk.forwarded[1:4:2] == [
        assistant("It rains.", reasoning_content="Rain?\n\nRain."),
        assistant("It rains."),
    ]


def test_s3_1_system_items_are_those_in_force(talk: Talk) -> None:
    """§3.1: they stand at the beginning with ids that stay; a chat's own replace them."""
    talk.begin({"role": "system", "content": "Be brief."})
    first = talk.items()
    assert list(map(said, first)) == [("system", "Be brief.")]
    talk.add({"role": "developer", "content": "Use Celsius."})
    both = talk.items()
    assert both[0] == first[0]
    talk.ask(user("one"), reply="two")
    rules = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Use Celsius."}]
    assert talk.forwarded == [*rules, user("one")]
    assert talk.items()[:2] == both
    talk.ask({"role": "system", "content": "Be verbose."}, user("three"), reply="four")
    assert talk.forwarded[:1] == [{"role": "system", "content": "Be verbose."}]
    assert [said(item)[1] for item in talk.items()] == ["Be verbose.", "one", "two", "three", "four"]


def test_s3_3_custom_tools_are_paired_too(talk: Talk) -> None:
    """§3.3: a custom call and its output keep their types, also when the output comes later, on a page of its own.

    Before this upstream, which is not known to take freeform tools, the call is one of a function (§1.11).
    """
    talk.begin(user("Run it."), {"type": "custom_tool_call", "call_id": "x", "name": "shell", "input": "ls"})
    made = talk.add({"type": "custom_tool_call_output", "call_id": "x", "output": "a b"})
    items = talk.items()
    assert [item["type"] for item in items] == ["message", "custom_tool_call", "custom_tool_call_output"]
    assert items[2] == made[0]
    assert items == talk.items(limit=1)
    talk.ask(user("And?"), reply="a, b", tools=[{"type": "custom", "custom": {"name": "shell"}}])
    assert talk.items()[:3] == items
    call = {"id": "x", "type": "function", "function": {"name": "shell", "arguments": '{"input": "ls"}'}}
    assert talk.forwarded[1:3] == [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": "a b"},
    ]


def test_s4_i3_halves_of_pairs_are_listed_and_never_forwarded(talk: Talk) -> None:
    """§4 I3: a call without its result, a second result; one whose call is nowhere is refused (§3.3)."""
    call, twice = {"type": "function_call", "name": "weather"}, {"type": "function_call_output", "call_id": "c2"}
    talk.begin(
        user("one"),
        {**call, "call_id": "c1", "arguments": "{}"},
        user("two"),
        {**call, "call_id": "c2", "arguments": '{"city": "Chur"}'},
        {**twice, "output": "rain"},
        {**twice, "output": "snow"},
    )
    orphan = {**twice, "call_id": "nowhere", "output": "orphan"}
    for refused in (lambda: talk.add(user("x"), orphan), lambda: Talk(talk.client, talk.upstream).begin(orphan)):
        with pytest.raises(openai.BadRequestError, match="no assistant message before it makes") as error:
            refused()
        assert (error.value.code, error.value.param) in [("tool_call_unknown", f"items[{at}]") for at in range(2)]
    assert len(talk.items()) == 6
    talk.ask(user("three"), tools=TOOLS)
    pair = [{"role": "assistant", "content": None, "tool_calls": [OTHER]}]
    pair.append({"role": "tool", "tool_call_id": "c2", "content": "rain"})
    assert talk.forwarded == [user("one"), user("two"), *pair, user("three")]
    talk.add({**twice, "call_id": "c1", "output": "late"})  # its call is not the last one
    talk.ask(user("four"), tools=TOOLS)
    assert [each["content"] for each in talk.forwarded if each["role"] == "tool"] == ["rain", "late"]


@pytest.mark.parametrize("added", [[], ["c2"]])
def test_s3_calls_that_were_added_are_answered_by_a_chat(talk: Talk, added: list[str]) -> None:
    """§3.1: a delta that begins with the results of the calls at the head, of which some were added, too."""
    call, result = {"type": "function_call", "name": "weather", "arguments": "{}"}, {"type": "function_call_output"}
    outputs = [{**result, "call_id": name, "output": "snow"} for name in added]
    talk.begin(user("one"), *({**call, "call_id": name} for name in ["c1", *added]), *outputs)
    talk.ask({"role": "tool", "tool_call_id": "c1", "content": "rain"}, reply="It rains.", tools=TOOLS)
    results = [message["tool_call_id"] for message in talk.forwarded[2:]]
    assert [message["role"] for message in talk.forwarded[:2]] == ["user", "assistant"]
    assert results == [*added, "c1"]


def test_s3_deleting_an_item_leaves_the_rest(talk: Talk, module_storage_url: str) -> None:
    """What came after hangs together with what came before, and its words are in the database no more."""
    talk.ask(user("one"), reply="two")
    talk.ask(user("a secret 8c1fxyz"), reply="four")
    talk.ask(user("five"), reply="six")
    doomed = talk.items()[2]
    talk.delete(doomed)
    assert [said(item)[1] for item in talk.items()] == ["one", "two", "four", "five", "six"]
    with pytest.raises(openai.NotFoundError) as caught:
        talk.delete(doomed)
    assert (caught.value.code, caught.value.param) == ("item_not_found", "item_id")
    talk.ask(user("seven"), reply="eight")
    texts = ["one", "two", "four", "five", "six", "seven"]
    assert [message["content"] for message in talk.forwarded] == texts
    talk.ask(*talk.forwarded, assistant("eight"), user("nine"), reply="ten")
    assert [said(item)[1] for item in talk.items()] == [*texts, "eight", "nine", "ten"]
    if module_storage_url.startswith("sqlite"):
        database = sqlite3.connect(module_storage_url.removeprefix("sqlite:///"))
        assert "8c1fxyz" not in "".join(database.iterdump())
        database.close()


def test_s3_deleting_the_head_moves_it(talk: Talk) -> None:
    """The next chat goes on from the message before; without any message from the system messages."""
    talk.ask({"role": "system", "content": "Be brief."}, user("one"), reply="two")
    for item in reversed(talk.items()[1:]):
        talk.delete(item)
    assert [said(item)[1] for item in talk.items()] == ["Be brief."]
    talk.ask(user("again"), reply="yes")
    assert talk.forwarded == [{"role": "system", "content": "Be brief."}, user("again")]
    talk.delete(talk.items()[0])
    assert [said(item)[1] for item in talk.items()] == ["again", "yes"]
    talk.ask(user("more"))
    assert talk.forwarded == [user("again"), assistant("yes"), user("more")]


def test_s3_a_stored_completion_forgets_a_deleted_answer(talk: Talk, gateway: GatewayProcess) -> None:
    """§6: the bill stays; the answer, its `logprobs` and what a provider put beside them do not."""
    logprobs = {"content": [{"token": "secret 8c1fxyz", "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
    choice = {"message": {"role": "assistant", "content": "secret 8c1fxyz"}, "logprobs": logprobs}
    talk.upstream.reply(choices=[choice], extra={"citations": ["secret 8c1fxyz"]})
    answer = talk.ask(user("one"))
    talk.delete(talk.items()[-1])
    found = gateway.get(f"/chat/completions/{answer.id}")
    assert found.status_code == 200
    assert "8c1fxyz" not in found.text
    assert found.json()["response_metadata"]["usage"] == answer.model_extra["response_metadata"]["usage"]


BAD: list[tuple[Any, str]] = [
    ("x", "items[0]"),
    ({"type": "web_search_call"}, "items[0].type"),
    ({"type": "item_reference", "id": "msg_1"}, "items[0].type"),
    ({"type": 1}, "items[0].type"),
    ({}, "items[0].type"),
    ({"role": "tool", "content": "x"}, "items[0].role"),
    ({"role": "user", "content": 1}, "items[0].content"),
    ({"role": "user", "content": []}, "items[0].content"),
    ({"role": "user", "content": "x", "status": "odd"}, "items[0].status"),
    ({"role": "user", "content": "x", "name": 1}, "items[0].name"),
    ({"role": "user", "content": ["x"]}, "items[0].content[0]"),
    ({"role": "user", "content": [{"type": "output_text", "text": "x"}]}, "items[0].content[0].type"),
    ({"role": "user", "content": [{"type": "input_text", "text": 1}]}, "items[0].content[0].text"),
    ({"role": "user", "content": [{"type": "input_image"}]}, "items[0].content[0].image_url"),
    ({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}, "items[0].content[0].file_id"),
    ({"role": "user", "content": [{"type": "input_file", "file_url": "http://x"}]}, "items[0].content[0].file_url"),
    ({"role": "user", "content": [{"type": "input_file", "filename": "x"}]}, "items[0].content[0]"),
    ({"role": "user", "content": [{"type": "input_audio"}]}, "items[0].content[0].input_audio"),
    ({"role": "assistant", "content": [{"type": "input_image"}]}, "items[0].content[0].type"),
    ({"role": "assistant", "content": [{"type": "refusal"}]}, "items[0].content[0].refusal"),
    ({"type": "function_call", "call_id": 1, "name": "x", "arguments": "{}"}, "items[0].call_id"),
    ({"type": "function_call", "call_id": "", "name": "x", "arguments": "{}"}, "items[0].call_id"),
    ({"type": "function_call", "call_id": "x", "name": "x", "arguments": {}}, "items[0].arguments"),
    ({"type": "custom_tool_call", "call_id": "x", "name": "x", "input": 1}, "items[0].input"),
    ({"type": "function_call_output", "call_id": "x", "output": 1}, "items[0].output"),
    ({"type": "reasoning", "summary": []}, "items[0]"),
    ({"type": "reasoning", "content": "x"}, "items[0].content"),
    ({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "x"}]}, "items[0]"),
]
MISSING: list[tuple[Json, str]] = [
    ({"role": "user"}, "items[0].content"),
    ({"type": "function_call", "name": "x", "arguments": "{}"}, "items[0].call_id"),
    ({"type": "function_call", "call_id": "x", "arguments": "{}"}, "items[0].name"),
    ({"type": "function_call_output", "call_id": "x"}, "items[0].output"),
]


def test_s5_a_result_that_was_added_stands_once_a_model_was_sent_it(talk: Talk) -> None:
    """§5: until then nothing was decided on it, in whatever conversation it is."""
    talk.ask(user("Hello."), reply="Hello.")
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    talk.add(user("Look."), call, {"type": "function_call_output", "call_id": "c1", "output": "rain " * 900})
    talk.add(assistant("It rains."))
    asked = [
        talk.ask(user(question), tools=TOOLS, context={"planning": "auto"}) for question in ("And now?", "And then?")
    ]
    told = [bill_of(each)["context_utilization"] for each in asked]
    assert [each["planning_reason"] for each in told] == ["historical_artifacts", "standing"]
    assert [len(each["artifacts_processed"]) for each in told] == [1, 0]


def test_s7_items_that_break_a_rule_are_named_and_none_is_stored(gateway: GatewayProcess, talk: Talk) -> None:
    """§7: a 400 that names the field, also if only one of several is wrong; the supported types are told."""
    talk.begin(user("one"))
    for code, cases in (("invalid_value", BAD), ("missing_required_parameter", MISSING)):
        for item, param in cases:
            answer = gateway.post(f"/conversations/{talk.id}/items", json={"items": [item]})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (400, code, param), (item, error)
    mixed = gateway.post(f"/conversations/{talk.id}/items", json={"items": [user("fine"), {"type": "x"}]})
    assert mixed.json()["error"]["param"] == "items[1].type"
    assert "function_call_output" in mixed.json()["error"]["message"]
    for items in ([], [user("x")] * 21):
        answer = gateway.post(f"/conversations/{talk.id}/items", json={"items": items})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "items")
    none = gateway.post(f"/conversations/{talk.id}/items", json={})
    assert (none.status_code, none.json()["error"]["code"]) == (400, "missing_required_parameter")
    assert len(talk.items()) == 1


@pytest.mark.parametrize(
    "item_id", ["msg_none", "x", "msg_", "fc_1_2", "msg_sys00", "\x00", "msg_%00", "../items", "ü"]
)
def test_s7_an_unknown_item_is_a_404(talk: Talk, item_id: str) -> None:
    talk.begin({"role": "system", "content": "x"}, user("one"))
    items = talk.client.conversations.items
    for attempt in (items.retrieve, items.delete):
        with pytest.raises(openai.NotFoundError) as caught:
            attempt(item_id, conversation_id=talk.id)
        assert caught.value.code in ("item_not_found", "not_found")
    for order in ("asc", "desc"):
        with pytest.raises(openai.NotFoundError) as caught:
            talk.items(after=item_id, order=order)
        assert (caught.value.code, caught.value.param) == ("item_not_found", "after")


def test_a_deleted_item_does_not_come_back_with_a_request_that_quoted_it(
    gateway: GatewayProcess, talk: Talk, upstream: MockUpstream
) -> None:
    """§3.3, §4 I6: the block of a request that ran meanwhile is not kept; later requests are not told it either."""
    run_tools(talk)
    secret = next(item for item in talk.items() if item["type"] == "function_call_output")
    gate = threading.Event()
    upstream.reply(text="later", gate=gate)
    chats = len(upstream.chats)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(talk.ask, user("Without tools, please."))
        upstream.wait_for_chats(chats + 1)
        assert secret["output"] in json.dumps(talk.forwarded)
        talk.delete(secret)
        gate.set()
        asked.result()
    talk.ask(user("And now?"))
    assert "Without tools, please." in json.dumps(talk.forwarded)
    assert secret["output"] not in json.dumps(talk.forwarded)
    assert secret["output"] not in gateway.get(f"/conversations/{talk.id}/export").text


def test_a_deleted_system_message_does_not_come_back_with_a_request_that_it_was_in_force_for(
    talk: Talk, upstream: MockUpstream
) -> None:
    """§3.1: who runs meanwhile took it over from the conversation; it holds for no later request."""
    talk.ask({"role": "system", "content": "Say little."}, user("one"))
    gate = threading.Event()
    upstream.reply(text="late", gate=gate)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(talk.ask, user("two"))
        upstream.wait_for_chats(2)
        assert talk.forwarded[0]["role"] == "system"
        talk.delete(talk.items()[0])
        gate.set()
        asked.result()
    talk.ask(user("three"))
    assert "Say little." not in json.dumps([talk.forwarded, talk.items()])
