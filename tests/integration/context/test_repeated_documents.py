"""A document that comes again in a later turn, by whichever road, stands once in the window (guarantee §14.6)."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from openai import OpenAI

from tests.support.answers import Json, all_used, user
from tests.support.documents import file_part, keeper, lamps, prose, text_of
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.pdfs import with_photos
from tests.support.postgres import Postgres
from tests.support.reply import Reply

TEXT = lamps(6)
RAW = TEXT.encode()
ENCODED = base64.b64encode(RAW).decode()
FACT, LATE = keeper(3), keeper(5)
PART = file_part("lamps.md", RAW, "text/markdown")
ROADS = ("chat", "responses", "messages", "id", "attachment")
PAIRS = [
    *(("chat", road) for road in ROADS),
    ("responses", "messages"),
    ("messages", "chat"),
    ("id", "responses"),
    ("attachment", "id"),
    ("attachment", "messages"),
    ("attachment", "attachment"),
]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def keeping(
    module_start_gateway: GatewayFactory, request: pytest.FixtureRequest, module_upstream: MockUpstream
) -> GatewayProcess:
    """A gateway that keeps files for everybody, once on each kind of storage."""
    postgres: Postgres | None = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    storage = {"url": postgres.new_database()} if postgres is not None else {}
    return module_start_gateway({"files": {"serve": "on"}, "storage": storage, "context": {"low_water": 0.75}})


def send(gateway: GatewayProcess, road: str, ask: str, conversation: str | None = None, **more: Any) -> str:
    """Asks with the document by that road, or without any (`""`); returns the conversation."""
    question, path = {"type": "text", "text": ask}, "/chat/completions"
    body: Json = {"messages": [user(ask)]}
    if road == "chat":
        body = {"messages": [user([PART, question])]}
    elif road == "responses":
        file = {"type": "input_file", **PART["file"]}
        path, body = "/responses", {"input": [user([file, {"type": "input_text", "text": ask}])]}
    elif road == "messages":
        source = {"type": "text", "media_type": "text/plain", "data": TEXT}
        path = "/messages"
        body = {"max_tokens": 100, "messages": [user([{"type": "document", "source": source}, question])]}
    elif road == "id":
        with OpenAI(base_url=gateway.base_url, api_key="sk-test") as client:
            file_id = client.files.create(file=("lamps.md", RAW), purpose="user_data").id
        body = {"messages": [user([{"type": "file", "file": {"file_id": file_id}}, question])]}
    elif road == "attachment":
        body |= {"attachments": [{"file_data": ENCODED, "filename": "lamps.md"}]}
    headers = {"x-conversation-id": conversation} if conversation else {}
    answer = gateway.post(path, json={"model": "small", **body, **more}, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.headers.get("x-conversation-id", ""))


def filler(words: int) -> str:
    """Words that no document has."""
    return " ".join(f"Zeile{number}" for number in range(words))


@pytest.mark.parametrize(("first", "again"), PAIRS)
def test_s14_6_a_document_that_comes_again_stands_once(
    keeping: GatewayProcess, upstream: MockUpstream, first: str, again: str
) -> None:
    conversation = ""
    before: list[Json] = []
    for road, ask in ((first, "Who keeps lamp 3?"), ("", "Why?"), (again, "And lamp 4?"), ("", "And lamp 5?")):
        conversation = send(keeping, road, ask, conversation or None)
        now = upstream.forwarded
        assert now[: len(before)] == before, "what was forwarded is frozen"
        assert text_of({"messages": now}).count(FACT) == 1
        before = now
    says_so = text_of({"messages": before}).count("(The same document as art_")
    assert says_so == (again != "attachment"), "a part of a message says where it stands; a block is left out"


def test_s14_6_the_bill_says_so(keeping: GatewayProcess, upstream: MockUpstream) -> None:
    """The second has a record of its own, of which nothing is shown, then and later; an attachment has none."""
    conversation = send(keeping, "chat", "Who keeps lamp 3?")
    for road in ("chat", "attachment", ""):
        send(keeping, road, "And lamp 4?", conversation)
        stored = keeping.get("/chat/completions", params={"conversation": conversation}).json()["data"]
        told = all_used(keeping, max(stored, key=lambda each: str(each["id"])))["artifacts_processed"]
        shown = [(r["strategy"], r.get("reason"), r["processed_size_chars"]) for r in told]
        assert shown == [("include_full", None, len(TEXT)), ("exclude", "same_document", 0)]


@pytest.mark.in_turn("planning")
@pytest.mark.parametrize("planning", ["never", "auto"])
@pytest.mark.parametrize("again", ["chat", "id", "attachment"])
def test_s14_6_once_the_first_has_left_another_carries_the_text(
    module_start_gateway: GatewayFactory, upstream: MockUpstream, again: str, planning: str
) -> None:
    """Turns push the first out: whatever the window holds then, a question about the document finds it, never twice."""
    gateway = module_start_gateway({"files": {"serve": "on"}, "context": {"planning": planning, "low_water": 0.75}})
    upstream.handler = InternalModels(every("include_full"), primary=lambda _: Reply(text=filler(40)))
    limit = {"max_input_tokens": 1860}
    conversation = send(gateway, "chat", "Who keeps lamp 3?", context=limit)
    send(gateway, "", filler(180), conversation, context=limit)
    send(gateway, again, "And lamp 4?", conversation, context=limit)
    alone = 0
    for turn in range(5):
        send(gateway, "", f"{filler(20)}. Who is the keeper of lamp 3?", conversation, context=limit)
        now = upstream.forwarded
        assert text_of({"messages": now}).count(FACT) == 1, turn
        said = [text_of({"messages": [each]}) for each in now if each["role"] == "user"]
        first, second = (any(each.endswith(end) for each in said) for end in ("Who keeps lamp 3?", "And lamp 4?"))
        alone += second and not first
    assert alone, "at times the window held the second alone"


def test_s14_6_a_document_that_was_reduced_comes_again_as_if_it_were_new(
    keeping: GatewayProcess, upstream: MockUpstream
) -> None:
    """Both have room in the second turn, so that no pass shows the first in full instead."""
    long = lamps(30)
    part = file_part("long.md", long.encode(), "text/markdown")
    content = [part, {"type": "text", "text": "Who keeps lamp 3?"}]
    first = keeping.post(
        "/chat/completions",
        json={"model": "small", "messages": [user(content)], "context": {"max_input_tokens": 1100}},
    )
    reduced = upstream.forwarded
    other = next(keeper(n) for n in range(30) if keeper(n) not in text_of(upstream.last.body))
    name = {"x-conversation-id": first.headers["x-conversation-id"]}
    again = [part, {"type": "text", "text": "Read all of it. What rhymes?"}]
    keeping.post("/chat/completions", json={"model": "small", "messages": [user(again)]}, headers=name)
    assert upstream.forwarded[:1] == reduced
    assert text_of(upstream.last.body).count(other) == 1
    assert "(The same document" not in text_of(upstream.last.body)


@pytest.mark.parametrize("tokens", [1600, 4000])
def test_s14_6_without_anything_stored_it_stands_once(
    keeping: GatewayProcess, upstream: MockUpstream, tokens: int
) -> None:
    """All is sent again each time: what fits begins as before; what does not keeps what the question needs."""
    talk: list[Json] = []
    before: list[Json] = []
    for turn in range(5):
        ask = f"Who is the keeper of lamp 3? {prose(turn, 120)}"
        talk.append(user([PART, {"type": "text", "text": ask}] if turn in (0, 2, 4) else ask))
        body = {"model": "small", "messages": talk, "store": False, "context": {"max_input_tokens": tokens}}
        assert keeping.post("/chat/completions", json=body).status_code == 200
        now = upstream.forwarded
        assert text_of({"messages": now}).count(FACT) == 1
        assert tokens < 4000 or now[: len(before)] == before
        talk.append({"role": "assistant", "content": "ok"})
        before = now


def test_s14_6_in_the_middle_of_a_turn_the_text_is_not_lost(keeping: GatewayProcess, upstream: MockUpstream) -> None:
    """A tool's result pushes the first out, while the current message said that it stands there."""
    limit = {"max_input_tokens": 1860}
    conversation = send(keeping, "chat", "Who keeps lamp 5?", context=limit)
    send(keeping, "", filler(150), conversation, context=limit)
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    upstream.reply(message={"content": None, "tool_calls": [call]})
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    ask = "Who is the keeper of lamp 5? Look it up."
    send(keeping, "chat", ask, conversation, context=limit, tools=tools)
    assert text_of(upstream.last.body).count(LATE) == 1
    assert "(The same document" in text_of(upstream.last.body)
    result = {"role": "tool", "tool_call_id": "c1", "content": filler(400)}
    body = {"model": "small", "messages": [result], "context": limit, "tools": tools}
    answer = keeping.post("/chat/completions", json=body, headers={"x-conversation-id": conversation})
    assert answer.status_code == 200, answer.text
    assert text_of(upstream.last.body).count(LATE) == 1


def said_to(gateway: GatewayProcess, said: Json, conversation: str = "", **more: Any) -> str:
    """Sends one message; returns its conversation."""
    headers = {"x-conversation-id": conversation} if conversation else {}
    answer = gateway.post("/chat/completions", json={"messages": [said], **more}, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.headers["x-conversation-id"])


@pytest.mark.parametrize("again", ["chat", "attachment"])
def test_s14_6_a_block_that_shows_all_of_it_counts(keeping: GatewayProcess, upstream: MockUpstream, again: str) -> None:
    """The first left; a question brought the whole document back in its block; then it was sent again."""
    short = lamps(1)
    part = file_part("lamp.md", short.encode(), "text/markdown")
    attached = [{"file_data": base64.b64encode(short.encode()).decode(), "filename": "lamp.md"}]
    question = {"type": "text", "text": "Who is the keeper of lamp 0?"}
    ask = partial(said_to, keeping, model="small", context={"max_input_tokens": 2400})
    upstream.handler = lambda _: Reply(text="ok")
    conversation = ask(user([part, question]))
    while keeper(0) in text_of(upstream.last.body):
        ask(user(filler(120)), conversation)
    ask(user("Who is the keeper of lamp 0?"), conversation)
    assert 'shown="full"' in upstream.forwarded[-1]["content"], "all of it stands in the block"
    before = upstream.forwarded
    if again == "chat":
        ask(user([part, question]), conversation)
    else:
        ask(user("Who is the keeper of lamp 0?"), conversation, attachments=attached)
    then = upstream.forwarded
    assert then[: len(before)] == before
    ask(user("Why?"), conversation)
    assert upstream.forwarded[: len(then)] == then
    for messages in (then, upstream.forwarded):
        assert text_of({"messages": messages}).count(keeper(0)) == 1


def test_s14_6_once_the_first_is_deleted_the_other_shows(keeping: GatewayProcess, upstream: MockUpstream) -> None:
    conversation = send(keeping, "chat", "Who keeps lamp 3?")
    send(keeping, "chat", "And lamp 4?", conversation)
    items = keeping.get(f"/conversations/{conversation}/items", params={"order": "asc"}).json()["data"]
    assert keeping.delete(f"/conversations/{conversation}/items/{items[0]['id']}").status_code == 200
    send(keeping, "", "And lamp 5?", conversation)
    assert text_of(upstream.last.body).count(FACT) == 1


def test_s14_6_a_pdf_that_goes_up_as_it_came_is_not_shown_as_text_besides(
    keeping: GatewayProcess, upstream: MockUpstream
) -> None:
    """Nor is it where it was attached first; two such parts stay as they came. Models that read none get the text."""
    raw = with_photos([f"{keeper(n)}\n{prose(n, 60)}" for n in range(3)])
    part = file_part("lamps.pdf", raw, "application/pdf")
    attached = [{"file_data": base64.b64encode(raw).decode(), "filename": "lamps.pdf"}]
    message = user([part, {"type": "text", "text": "Who keeps lamp 1?"}])
    ask = partial(said_to, keeping, model="gpt-4o")
    conversation = ask(message, "")
    ask(user("And lamp 2?"), conversation, attachments=attached)
    ask(message, conversation)
    assert [each for each in upstream.forwarded if each == message] == [message, message]
    assert keeper(1) not in text_of(upstream.last.body)
    ask(user("And now?"), conversation, model="small")
    assert text_of(upstream.last.body).count(keeper(1)) == 1
    conversation = ask(user("Who keeps lamp 1?"), "", attachments=attached)
    ask(message, conversation)
    assert upstream.forwarded[-1] == message
    assert text_of(upstream.last.body).count(keeper(1)) == 1, "what was forwarded stays"


def test_s3_7_a_document_is_stored_behind_one_that_two_requests_at_once_brought(
    keeping: GatewayProcess, upstream: MockUpstream
) -> None:
    named = send(keeping, "chat", "Who keeps lamp 3?")
    gate = threading.Event()
    with ThreadPoolExecutor(2) as at_once:
        before = len(upstream.chats)
        for _ in range(2):
            upstream.reply(text="Yes.", gate=gate)
        twice = [at_once.submit(send, keeping, "attachment", f"Is it lit? {n}", named) for n in range(2)]
        upstream.wait_for_chats(before + 2)
        gate.set()
        for each in twice:
            each.result()
    other = {"attachments": [{"title": "Other", "content": prose(9, 50)}]}
    send(keeping, "", "And this?", named, **other)
    listed = keeping.get(f"/conversations/{named}/attachments").json()["data"]
    assert [each["title"] for each in listed][1:] == ["Other"]
