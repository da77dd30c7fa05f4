"""An answer says what it rests on, by ids and places that its model was sent (guarantee §14.8)."""

import json
import re
import sqlite3
from typing import Any

import pytest

from gateway.core.ids import artifact_id
from gateway.core.types.places import marker
from tests.support.answers import Json, chat, read_stream, stored, user, wait_for_bill
from tests.support.documents import keeper, lamps
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.tool_loop import recalls

FACT = "The zebrafish tank in hall C holds 412 litres."
FILLER = "The committee met again and spoke at length about several parts of the yearly budget. " * 25
PAGES = [f"{marker('page', str(n))}\n{FACT if n == 2 else f'Nothing of note on sheet {n}.'}" for n in range(1, 4)]
DOCUMENT = "\n\n".join(PAGES)
ID = artifact_id(DOCUMENT)
ATTACHED = {"title": "tanks", "content": DOCUMENT}
RAIN = "12 degrees, rain in Bern"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
SAID = f"412 litres [{ID}, page 2]. Twice [{ID}, page 2], all [{ID}], no [{ID}, page 9], no [art_{'0' * 16}], [x]."
PAGE = {
    "artifact_id": ID,
    "source": "attachment:0:tanks",
    "title": "tanks",
    "place": "page 2",
    "passages": [{"start": DOCUMENT.index(PAGES[1]), "end": DOCUMENT.index(PAGES[2]), "text": f"{PAGES[1]}\n\n"}],
}


def body(*messages: Json, **more: Any) -> Json:
    context = {"cite": True, **more.pop("context", {})}
    return {"model": "gpt-4o", "messages": list(messages), "context": context, **more}


def cited(answer: Json) -> list[Json]:
    found: list[Json] = answer["response_metadata"]["citations"]
    return found


def first_text(upstream: MockUpstream) -> str:
    """The first user message that was forwarded."""
    messages = (upstream.last.body or {})["messages"]
    content = next(m["content"] for m in messages if m["role"] == "user")
    return content if isinstance(content, str) else str(content[0]["text"])


def step(call_id: str) -> Json:
    call = {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bern"}'}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def test_s14_8_an_answer_names_pages_that_are_there(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§14.8: what is named falsely is dropped; the text stays; a look-up gives the same; the ledger has nothing."""
    upstream.reply(text=SAID)
    answer = chat(one_gateway, **body(user("How much does the tank hold?"), attachments=[ATTACHED]))
    assert answer["choices"][0]["message"]["content"] == SAID
    page, whole = cited(answer)
    assert page == PAGE
    assert answer["response_metadata"]["citations_dropped"] == 2
    assert stored(one_gateway, answer["id"])["response_metadata"]["citations_dropped"] == 2
    told = one_gateway.get(f"{one_gateway.url}/metrics").text
    assert re.search(r'gateway_citations_total\{model="[^"]*",result="dropped"\} [1-9]', told)
    assert (whole["place"], whole["passages"][0]["text"]) == (None, DOCUMENT[:500])
    assert cited(stored(one_gateway, answer["id"])) == [page, whole]
    path = str((one_gateway.config or {})["storage"]["url"]).removeprefix("sqlite:///")
    with sqlite3.connect(path, timeout=10) as connection:
        rows = connection.execute("SELECT * FROM ledger WHERE completion_id = ?", (answer["id"],)).fetchall()
    assert len(rows) == 1
    assert "zebrafish" not in str(rows)
    assert "citations" not in str(rows)
    head = first_text(upstream)
    assert head.startswith("<context_data ")
    assert head.count("<citing>") == 1
    assert head.endswith("How much does the tank hold?")


@pytest.mark.parametrize("asked", [{}, {"cite": False}, {"cite": True, "mode": "off"}])
def test_s14_8_nobody_gets_citations_unasked(one_gateway: GatewayProcess, upstream: MockUpstream, asked: Json) -> None:
    """§14.8: neither does mode `off`, which changes nothing."""
    upstream.reply(text="Rain [step_1:weather].")
    answer = chat(one_gateway, model="gpt-4o", messages=[user("Hello there")], context=asked)
    assert "citations" not in answer["response_metadata"]
    assert "citations" not in stored(one_gateway, answer["id"])["response_metadata"]
    assert (upstream.last.body or {})["messages"] == [user("Hello there")]


def test_s14_8_a_stream_and_several_answers(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§14.8: on the finish chunk; each citation with its choice."""
    upstream.reply(text=SAID)
    request = body(user("And in a stream?"), attachments=[ATTACHED], n=2)
    wire = read_stream(one_gateway, request)
    assert wire.text == SAID
    assert "citations" not in wire.chunks[0]["response_metadata"]
    found = cited(wire.finish)
    assert [(each["choice"], each["place"]) for each in found] == [(n, p) for n in (0, 1) for p in ("page 2", None)]
    assert cited(stored(one_gateway, wire.finish["id"])) == found


def test_s14_8_results_of_later_steps_and_ids_of_earlier_ones(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """§14.8: the block stays as the first step had it; the next question's names the result by its id."""
    ask, called = user("What is the weather?"), step("c1")
    result = {"role": "tool", "tool_call_id": "c1", "content": RAIN}
    upstream.reply(message=called)
    first = chat(one_gateway, **body(ask, tools=[TOOL]))
    before = (upstream.last.body or {})["messages"]
    assert cited(first) == []
    named = {"conversation": first["conversation"]["id"], "tools": [TOOL]}
    upstream.reply(text="Rain [step_1:weather], not [step_2:weather].")
    second = chat(one_gateway, **body(result, **named))
    assert (upstream.last.body or {})["messages"][: len(before)] == before
    (one,) = cited(second)
    assert (one["artifact_id"], one["source"]) == (artifact_id(RAIN), "step_1:weather")
    assert one["passages"] == [{"start": 0, "end": len(RAIN), "text": RAIN}]
    upstream.reply(text=f"It said so [{artifact_id(RAIN)}, line 1]. [step_1:weather]")
    third = chat(one_gateway, **body(user("Are you sure?"), **named))
    (again,) = cited(third)
    assert (again["place"], again["passages"][0]["text"]) == ("line 1", RAIN)
    asked = (upstream.last.body or {})["messages"][-1]["content"]
    assert f'\n{artifact_id(RAIN)} = weather {{"city":"Bern"}}\n' in asked


def test_s14_8_an_extract_is_cited_with_what_was_sent_of_it(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """§14.8: a page that was left out is none, and a later turn still cites what an old block shows."""
    long = "\n\n".join(f"{marker('page', str(n))}\n{FACT if n == 17 else ''} {FILLER}" for n in range(1, 31))
    name = artifact_id(long)
    said = f"412 [{name}, page 17], [{name}, page 29]"
    upstream.reply(text=said)
    context = {"max_input_tokens": 2500, "mode": "simple"}
    request = body(user("What does the zebrafish tank hold?"), attachments=[{"content": long}], context=context)
    answer = chat(one_gateway, **request)
    sent = first_text(upstream)
    pages = {each["place"]: each["passages"] for each in cited(answer)}
    assert "page 17" in pages
    assert ("page 29" in pages) == ("[page 29]" in sent)
    for passage in (each for found in pages.values() for each in found):
        assert passage["text"] == long[passage["start"] : passage["end"]]
    upstream.reply(text=said)
    roomier = {**context, "max_input_tokens": 4000}  # nothing has to leave, so the block stands as it was
    request = body(user("Thank you."), conversation=answer["conversation"]["id"], context=roomier)
    later = {each["place"]: each["passages"] for each in cited(chat(one_gateway, **request))}
    assert later == pages
    assert FACT in later["page 17"][0]["text"]


def test_s14_8_i7_what_was_asked_stays_as_it_was(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§14.8, §4 I7: from turn to turn, resent or by id, and within a tool loop of which nothing is stored."""
    messages: list[Json] = []
    before: list[Json] = []
    for number in range(3):
        upstream.reply(text=f"Answer {number}: " + "word " * 60)
        messages.append(user(f"Resent question {number}?"))
        answer = chat(one_gateway, **body(*messages))
        messages.append(answer["choices"][0]["message"])
        sent = (upstream.last.body or {})["messages"]
        assert sent[: len(before)] == before
        assert sum("<citing>" in str(message["content"]) for message in sent) == number + 1
        before = sent
    loop = [user("Weather?"), step("c1"), {"role": "tool", "tool_call_id": "c1", "content": RAIN}]
    upstream.reply(message=step("c1"))
    chat(one_gateway, **body(loop[0], tools=[TOOL], store=False))
    (first,) = (upstream.last.body or {})["messages"]
    upstream.reply(text="Rain [step_1:weather].")
    assert len(cited(chat(one_gateway, **body(*loop, tools=[TOOL], store=False)))) == 1
    assert (upstream.last.body or {})["messages"][0] == first


def test_s14_8_what_a_model_has_read_by_a_tool_is_citable(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§14.8: `recall`; the same answer again, by its `Idempotency-Key`, has the same citations."""
    log = lamps(400)
    context = {"recall": True, "max_input_tokens": 3200}
    request = body(user("Say hello."), attachments=[{"content": log}], context=context) | {"model": "small"}
    upstream.reply(**recalls({"question": "Who keeps lamp 77?"}))
    upstream.reply(text=f"Hello [{artifact_id(log)}]")
    answers = [
        one_gateway.post("/chat/completions", json=request, headers={"Idempotency-Key": "cite"}).json() for _ in "12"
    ]
    assert answers[0] == answers[1]
    (one,) = cited(answers[0])
    assert any(keeper(77) in passage["text"] for passage in one["passages"])


@pytest.mark.parametrize("path", ["responses", "messages"])
def test_s14_8_every_api_has_them(one_gateway: GatewayProcess, upstream: MockUpstream, path: str) -> None:
    """§14.8: in its own answer's bill, plain and streamed."""
    own: Json = {"input": "How much?"} if path == "responses" else {"messages": [user("How much?")], "max_tokens": 99}
    request = {"model": "gpt-4o", "context": {"cite": True}, "attachments": [ATTACHED], **own}
    upstream.reply(text=SAID)
    plain = one_gateway.post(f"/{path}", json=request).json()
    assert cited(plain)[0] == PAGE
    if path == "responses":
        assert cited(one_gateway.get(f"/responses/{plain['id']}").json())[0] == PAGE
    upstream.reply(text=SAID)
    text = one_gateway.post(f"/{path}", json={**request, "stream": True}).text
    events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
    assert any(PAGE in _found(event) for event in events)


def _found(event: Json) -> list[Json]:
    bill = event.get("response_metadata") or (event.get("response") or {}).get("response_metadata") or {}
    found: list[Json] = bill.get("citations", [])
    return found


def test_s14_8_nothing_is_kept_that_is_not_stored(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§14.8: `store: false`; and a deleted document takes its citations with it."""
    upstream.reply(text=SAID)
    answer = chat(one_gateway, **body(user("How much?"), attachments=[ATTACHED], store=False))
    assert cited(answer)[0] == PAGE
    assert "citations" not in stored(one_gateway, answer["id"])["response_metadata"]
    upstream.reply(text=SAID)
    kept = chat(one_gateway, **body(user("How much, then?"), attachments=[ATTACHED]))
    path = f"/conversations/{kept['conversation']['id']}"
    assert one_gateway.delete(f"{path}/attachments/{ID}").status_code == 200
    assert "citations" not in stored(one_gateway, kept["id"])["response_metadata"]


def test_s14_8_a_dry_run_shows_what_would_be_asked(one_gateway: GatewayProcess) -> None:
    """§14.8: and what is no truth value is a 400."""
    shown = chat(one_gateway, **body(user("How much?"), context={"dry_run": True}))
    (message,) = shown["messages"]
    assert re.match(
        r"<context_data [^\n]*>\n<citing>\n[^\n]*\n</citing>\n</context_data>\n\nHow much\?", message["content"]
    )
    refused = one_gateway.post("/chat/completions", json=body(user("x"), context={"cite": "often"}))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "context.cite")


def test_s14_8_of_a_broken_stream_what_came_is_kept(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§14.8: its client has had no finish chunk; a look-up tells what it cites."""
    upstream.reply(text=f"412 litres [{ID}, page 2]. " + "And so on. " * 40, cut_after=30)
    wire = read_stream(one_gateway, body(user("How much, before it broke off?"), attachments=[ATTACHED]))
    assert wire.error is not None
    kept = wait_for_bill(one_gateway, wire.chunks[0]["id"])
    assert (kept["status"], cited(kept)) == ("partial", [PAGE])
