"""PDFs for models that read them and for those that do not: what goes up, and what it is counted as (§14.1, §14.3).
Pages that matter and hold pictures go up as those pages alone (§14.13)."""

import base64
import hashlib
import io
import shutil
from math import ceil
from typing import Any

import pytest
from openai import OpenAI
from pypdf import PdfReader

from gateway.context.tokens.counter import CounterRegistry
from gateway.context.whole_files import NativeFiles, NativePdfs
from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings
from gateway.core.types.chat import ModelFacts, RequestCaller, StoredFile
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from gateway.documents.file_reader import FileReader
from gateway.storage.cache.memory_cache import open_cache
from tests.support.answers import Json, chat, exact, user
from tests.support.documents import file_part, keeper, prose, text_of, tokens
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.pdfs import A4, encrypted, pictured, scanned, with_photos

QUESTION = {"type": "text", "text": "Who is the keeper of lamp 83?"}
FACT = "Name581x"
PAGE = 85 + 170 * ceil(768 / 512) * ceil(768 * A4[1] / A4[0] / 512)
"""OpenAI's picture of an A4 page in high detail: within 2,048 pixels, then the shorter side 768, tiles of 512."""


def lamps(number: int) -> list[str]:
    """Texts of pages; page N + 1 alone says who keeps lamp N."""
    return [f"{keeper(n)}\n{prose(n, 60)}" for n in range(number)]


def ask(gateway: GatewayProcess, *messages: Json, **more: Any) -> Json:
    return chat(gateway, *messages, **{"model": "gpt-4o", **more})


def used(answer: Json) -> Json:
    found: Json = answer["response_metadata"]["context_utilization"]
    return found


def charged(texts: list[str]) -> int:
    """What OpenAI charges for one user message with these pages and the question."""
    pages = sum(tokens(text) for text in texts) + PAGE * len(texts)
    return 3 + 3 + tokens("user") + tokens(str(QUESTION["text"])) + pages


def test_s14_1_two_pages_with_photos_are_counted_as_two_pages(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Megabytes of photos go up as they came, and cost what two pages cost."""
    texts = lamps(2)
    part = file_part("photos.pdf", with_photos(texts, side=1300), "application/pdf")
    assert len(part["file"]["file_data"]) > 3_000_000
    message = user([part, QUESTION])
    answer = ask(one_gateway, message)
    assert upstream.last.body["messages"] == [message]
    assert used(answer)["tokens_used"] == pytest.approx(charged(texts), rel=0.01)


def test_s14_1_the_other_apis_count_alike(one_gateway: GatewayProcess) -> None:
    """`input_file` items of responses, and `document` blocks of Anthropic's API, are the same parts inside."""
    texts = lamps(2)
    data = base64.b64encode(with_photos(texts)).decode()
    item = {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}
    question = {"type": "input_text", "text": QUESTION["text"]}
    block = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}
    response = one_gateway.post("/responses", json={"model": "gpt-4o", "input": [user([item, question])]})
    counted = one_gateway.post(
        "/messages/count_tokens", json={"model": "gpt-4o", "messages": [user([block, QUESTION])]}
    )
    assert used(exact(response.text))["tokens_used"] == pytest.approx(charged(texts), rel=0.01)
    assert counted.json()["input_tokens"] == pytest.approx(charged(texts), rel=0.01)


def test_s14_1_over_budget_it_is_an_artifact_and_stays_one(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Pages with photos cost more than there is room for; what is asked is found, and later requests begin alike."""
    texts = lamps(90)
    message = user([file_part("photos.pdf", with_photos(texts), "application/pdf"), QUESTION])
    assert charged(texts) > 16_000
    answer = ask(one_gateway, message, context={"max_input_tokens": 4000})
    first = upstream.last.body["messages"]
    assert FACT in text_of({"messages": first})
    assert message["content"][0] not in first[-1]["content"]
    (record,) = used(answer)["artifacts_processed"]
    assert record["strategy"] == "rag_extract"
    assert used(answer)["tokens_used"] <= 4000
    # The first fills its budget: the later one has room, and less than the pages cost.
    more = {"conversation": answer["conversation"]["id"], "context": {"max_input_tokens": 8000}}
    other = next(n for n in range(90) if keeper(n) not in text_of({"messages": first}))
    ask(one_gateway, user(f"And who is the keeper of lamp {other}?"), **more)
    later = upstream.last.body["messages"]
    assert later[: len(first)] == first, "what was forwarded is frozen"
    assert keeper(other) in text_of({"messages": later[len(first) :]}), "what else it says is still found"


def test_s14_1_an_older_pdf_gives_way_to_a_new_one(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Each fits alone; together the older one is read, and the current one goes up as it came."""
    old, new = (
        user([file_part(f"{n}.pdf", with_photos(lamps(4)[n : n + 3]), "application/pdf"), QUESTION]) for n in (0, 1)
    )
    limit = {"max_input_tokens": charged(lamps(3)) + 1500}
    answer = ask(one_gateway, old, context=limit)
    assert upstream.last.body["messages"] == [old]
    ask(one_gateway, new, conversation=answer["conversation"]["id"], context=limit)
    sent = upstream.last.body["messages"]
    assert not any(part["type"] == "file" for part in sent[0]["content"])
    assert sent[-1] == new


def test_s14_1_a_small_pdf_stays_while_other_things_leave(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A long text beside it is reduced; the page goes up as it came."""
    part = file_part("one.pdf", with_photos(lamps(1)), "application/pdf")
    text = "\n\n".join(f"## Lamp {n}\n\n{keeper(n)} {prose(n, 60)}" for n in range(300))
    ask(one_gateway, user([{"type": "text", "text": text}, part, QUESTION]), context={"max_input_tokens": 8000})
    assert part in upstream.last.body["messages"][-1]["content"]
    assert FACT in text_of(upstream.last.body)


def test_s14_1_what_cannot_be_read_is_forwarded_while_it_fits(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Its provider will say what it says; nothing is stored of it with `store: false`, and nothing fails."""
    locked = encrypted(with_photos(["x"]), "secret")
    for raw in (b"no pdf", b"%PDF-1.4 rubbish", locked):
        message = user([file_part("a.pdf", raw, "application/pdf"), QUESTION])
        ask(one_gateway, message, store=False)
        assert upstream.last.body["messages"] == [message]


def test_s14_3_scanned_pages_are_told_to_client_and_model(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """By a model that reads no PDF; empty pages, on which nothing is to be recognized, are told by their numbers."""
    raw = scanned(["!" + keeper(83), " ", " ", "!The end"])
    part = file_part("scan.pdf", raw, "application/pdf")
    answer = ask(one_gateway, user([part, QUESTION]), model="small")
    assert "document_without_text: scan.pdf pages 2-3" in used(answer)["warnings"]
    assert "Pages 2-3 hold no text (they are pictures)." in text_of(upstream.last.body)
    many = scanned([f"!{line}" for line in lamps(60)] * 3 + [" "])
    answer = ask(one_gateway, user([file_part("long.pdf", many, "application/pdf"), QUESTION]), model="small")
    (record,) = used(answer)["artifacts_processed"]
    assert record["strategy"] == "rag_extract"
    assert "document_without_text: long.pdf page 181" in used(answer)["warnings"]
    assert 'note="Page 181 holds no text (they are pictures)."' in text_of(upstream.last.body)
    native = ask(one_gateway, user([part, QUESTION]))
    assert used(native)["warnings"] == [], "who reads it sees the pictures"


def test_s14_3_an_attachment_without_any_text_is_refused(one_gateway: GatewayProcess) -> None:
    url = "data:application/pdf;base64," + base64.b64encode(scanned([" ", " "])).decode()
    body = {"model": "small", "messages": [user("hi")], "attachments": [{"content": url}]}
    answer = one_gateway.post("/chat/completions", json=body)
    assert answer.status_code == 400
    assert "no text" in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "attachments[0].content"


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_s14_3_a_scan_is_recognized(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    part = file_part("scan.pdf", scanned(["Marlow keeps the lamp"]), "application/pdf")
    answer = ask(one_gateway, user([part, QUESTION]), model="small")
    assert "Marlow keeps the lamp" in text_of(upstream.last.body)
    assert "Page 1 was recognized from pictures (OCR)." in text_of(upstream.last.body)
    assert not any(each.startswith("document_without") for each in used(answer)["warnings"])


def attach(gateway: GatewayProcess, *texts: str) -> Any:
    """The answer to a question beside an attached TIFF with pictures of these texts."""
    data = base64.b64encode(pictured(list(texts), "TIFF")).decode()
    attachment = {"file_data": f"data:image/tiff;base64,{data}", "filename": "log.tiff"}
    body = {"model": "gpt-4o", "messages": [user("Who keeps the lamp?")], "attachments": [attachment]}
    return gateway.post("/chat/completions", json=body)


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_s14_3_an_attached_picture_of_text_is_recognized(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    answer = attach(one_gateway, "Marlow keeps it", "")
    assert answer.status_code == 200, answer.text
    shown = text_of(upstream.last.body or {})
    assert "Marlow keeps it" in shown
    assert "recognized from a picture (OCR)" in shown
    assert "document_without_text: log.tiff page 2" in used(exact(answer.text))["warnings"]


def test_s14_3_an_attached_picture_without_text_is_a_400(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Also where nothing can recognize any."""
    before = len(upstream.requests)
    answer = attach(one_gateway, "")
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == "attachments[0].file_data"
    assert "it has no text" in answer.json()["error"]["message"]
    assert len(upstream.requests) == before


@pytest.fixture(scope="module")
def keeping(module_start_gateway: GatewayFactory) -> GatewayProcess:
    """A gateway that keeps files for everybody."""
    return module_start_gateway({"files": {"serve": "on"}})


def kept(gateway: GatewayProcess, raw: bytes, name: str = "kept.pdf") -> str:
    with OpenAI(base_url=gateway.base_url, api_key="sk-test") as client:
        return client.files.create(file=(name, raw), purpose="user_data").id


def test_s14_6_a_pdf_of_our_own_goes_up_in_the_place_of_its_id(keeping: GatewayProcess, upstream: MockUpstream) -> None:
    """Counted as a PDF, equal in each turn; the message keeps the id alone. Once it is deleted, the text says so."""
    texts = lamps(2)
    raw = with_photos(texts)
    file_id = kept(keeping, raw)
    named: Json = {"type": "file", "file": {"file_id": file_id}}
    answer = ask(keeping, user([named, QUESTION]))
    first = upstream.last.body["messages"]
    data = f"data:application/pdf;base64,{base64.b64encode(raw).decode()}"
    assert first == [user([{"type": "file", "file": {"filename": "kept.pdf", "file_data": data}}, QUESTION])]
    assert used(answer)["tokens_used"] == pytest.approx(charged(texts), rel=0.01)
    conversation = answer["conversation"]["id"]
    ask(keeping, user("And now?"), conversation=conversation)
    assert upstream.last.body["messages"][:1] == first
    attached = [{"title": "Note", "content": "A note."}]
    ask(keeping, user([named, QUESTION]), conversation=conversation, attachments=attached)
    block = upstream.last.body["messages"]
    ask(keeping, user("Still?"), conversation=conversation)
    assert upstream.last.body["messages"][: len(block)] == block
    told = keeping.get(f"/conversations/{conversation}/export").text
    assert file_id in told
    assert data[:80] not in told
    ask(keeping, user("Without eyes?"), conversation=conversation, model="small")
    assert file_id not in [part.get("file", {}).get("file_id") for part in parts_of(upstream.last.body)]
    with OpenAI(base_url=keeping.base_url, api_key="sk-test") as client:
        client.files.delete(file_id)
    ask(keeping, user("And after?"), conversation=conversation)
    assert not [part for part in parts_of(upstream.last.body) if part["type"] == "file"]
    assert "(This document was deleted.)" in text_of(upstream.last.body)


def parts_of(body: Json) -> list[Json]:
    return [part for message in body["messages"] if isinstance(message["content"], list) for part in message["content"]]


def test_s14_6_a_pdf_of_our_own_over_budget_is_an_artifact(keeping: GatewayProcess, upstream: MockUpstream) -> None:
    file_id = kept(keeping, with_photos(lamps(90)))
    named: Json = {"type": "file", "file": {"file_id": file_id}}
    answer = ask(keeping, user([named, QUESTION]), context={"max_input_tokens": 4000})
    assert not any(part.get("file", {}).get("filename") == "kept.pdf" for part in parts_of(upstream.last.body))
    assert FACT in text_of(upstream.last.body)
    assert used(answer)["tokens_used"] <= 4000


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_s14_6_a_pdf_of_our_own_by_the_other_apis(keeping: GatewayProcess, upstream: MockUpstream, api: str) -> None:
    raw = with_photos(lamps(1))
    file_id = kept(keeping, raw, f"{api}.pdf")
    item: Json = {"input": [user([{"type": "input_file", "file_id": file_id}])]}
    if api == "messages":
        block = {"type": "document", "source": {"type": "file", "file_id": file_id}}
        item = {"max_tokens": 100, "messages": [user([block, QUESTION])]}
    answer = keeping.post(f"/{api}", json={"model": "gpt-4o", **item})
    named = {"messages": [user([{"type": "document", "source": {"type": "file", "file_id": file_id}}, QUESTION])]}
    counted = keeping.post("/messages/count_tokens", json={"model": "gpt-4o", **named})
    assert counted.json()["input_tokens"] == pytest.approx(charged(lamps(1)), rel=0.02)
    assert answer.status_code == 200, answer.text
    assert base64.b64encode(raw).decode() in str(upstream.last.body)


LIMIT = {"max_input_tokens": 8000}
ROOMIER = {"max_input_tokens": 16_000}
"""For later turns: a first window fills all of its budget, and here nothing has to leave it."""
RAW = with_photos(lamps(100))


def asked(number: int) -> Json:
    return {"type": "text", "text": f"Who is the keeper of lamp {number}?"}


def pdf(raw: bytes = RAW, name: str = "photos.pdf") -> Json:
    return file_part(name, raw, "application/pdf")


def pages_in(messages: list[Json]) -> list[tuple[str, list[str]]]:
    """The PDFs in messages: name, and text of each page."""
    found = []
    for message in messages:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "file":
                raw = base64.b64decode(part["file"]["file_data"].partition(",")[2])
                texts = [page.extract_text() for page in PdfReader(io.BytesIO(raw)).pages]
                found.append((part["file"]["filename"], texts))
    return found


def test_s14_13_the_page_that_matters_goes_up_alone(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Beside the extract, named in the block, counted by the published formula, within the budget."""
    answer = ask(one_gateway, user([pdf(), asked(83)]), context=LIMIT)
    ((name, (text,)),) = pages_in(upstream.forwarded)
    assert name == "page 84.pdf"
    assert keeper(83) in text
    block, page, *rest = upstream.forwarded[-1]["content"]
    assert 'shown="page 84 as it looks, in a file of that name below"' in block["text"]
    assert page["type"] == "file"
    assert rest[-1] == asked(83)
    (record,) = used(answer)["artifacts_processed"]
    assert record["strategy"] == "rag_extract"
    place = {name: record[name] for name in ("artifact_id", "source")}
    assert used(answer)["pages"] == [{**place, "pages": [84]}]
    said = sum(tokens(part["text"]) for part in upstream.forwarded[-1]["content"] if part["type"] == "text")
    assert used(answer)["tokens_used"] == pytest.approx(said + PAGE + tokens(lamps(100)[83]) + 7, rel=0.02)
    assert used(answer)["tokens_used"] <= LIMIT["max_input_tokens"]


def test_s14_13_later_turns_begin_with_it_after_a_restart(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """Equal each time, though the storage holds no byte of it and the cache has forgotten it; a new question brings its
    own page; a model that reads no PDFs gets none."""
    gateway = start_gateway()
    answer = ask(gateway, user([pdf(), asked(83)]), context=LIMIT)
    first = upstream.forwarded
    more = {"conversation": answer["conversation"]["id"], "context": ROOMIER}
    ask(gateway, user("Who is the keeper of lamp 41?"), **more)
    second = upstream.forwarded
    assert second[: len(first)] == first
    shown = [name for name, _ in pages_in(second)]
    assert shown[0] == "page 84.pdf"
    assert "42.pdf" in shown[1]
    stored = gateway.get(f"/conversations/{more['conversation']}/export").text
    assert first[-1]["content"][1]["file"]["file_data"] not in stored
    gateway.terminate()
    gateway.start()
    ask(gateway, user("Thank you."), **more)
    assert upstream.forwarded[: len(second)] == second
    assert [name for name, _ in pages_in(upstream.forwarded)] == shown
    ask(gateway, user("And you?"), model="small", **more)
    assert not pages_in(upstream.forwarded)
    assert not [part for message in upstream.forwarded for part in message["content"] if "file" in part]


@pytest.mark.parametrize("question", ["What does page 57 show?", "What do pages 57-58 show?", "Was zeigt Seite 57?"])
def test_s14_13_a_page_that_is_named(one_gateway: GatewayProcess, upstream: MockUpstream, question: str) -> None:
    ask(one_gateway, user([pdf(), {"type": "text", "text": question}]), context=ROOMIER)
    assert any("57" in name for name, _ in pages_in(upstream.forwarded))


def test_s14_13_of_a_scan_its_first_pages(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """Without a text there is nothing that could say which matter."""
    gateway = start_gateway({"documents": {"ocr": "off", "native_pages": 3}})
    raw = scanned(["a map"] * 40)
    answer = ask(gateway, user([pdf(raw, "scan.pdf"), {"type": "text", "text": "What is it?"}]), context=LIMIT)
    ((name, texts),) = pages_in(upstream.forwarded)
    assert name == "page 1.pdf"
    assert len(texts) == 1
    assert "document_without_text: scan.pdf pages 1-40" in used(answer)["warnings"]
    ask(gateway, user([pdf(raw), {"type": "text", "text": "What is it?"}]), context={"max_input_tokens": 40_000})
    assert [name for name, _ in pages_in(upstream.forwarded)] == ["pages 1-3.pdf"]


def test_s14_13_none_where_none_is_wanted(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """By the operator, by a question about something else, or by a model that reads no PDFs."""
    gateway = start_gateway({"documents": {"native_pages": 0}})
    ask(gateway, user([pdf(), asked(83)]), context=LIMIT)
    assert not pages_in(upstream.forwarded)


def test_s14_13_not_for_other_questions_or_models(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    ask(one_gateway, user([pdf(), {"type": "text", "text": "Write a poem on Paris."}]), context=LIMIT)
    assert not pages_in(upstream.forwarded)
    ask(one_gateway, user([pdf(), asked(83)]), model="small")
    assert not pages_in(upstream.forwarded)
    assert keeper(83) in text_of({"messages": upstream.forwarded})


def test_s14_13_nothing_is_kept_without_store(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Resent with another question, the page that matters then goes up."""
    first = user([pdf(encrypted(RAW)), asked(83)])
    answer = ask(one_gateway, first, context=LIMIT, store=False)
    assert [name for name, _ in pages_in(upstream.forwarded)] == ["page 84.pdf"]
    said = {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}
    ask(one_gateway, first, said, user("Who is the keeper of lamp 41?"), context=LIMIT, store=False)
    assert [name for name, _ in pages_in(upstream.forwarded)] == ["page 42.pdf"]


def test_s14_13_a_tool_loop_keeps_the_page(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Each step begins with all that the one before forwarded."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    upstream.reply(message={"role": "assistant", "content": None, "tool_calls": [call]})
    answer = ask(one_gateway, user([pdf(), asked(83)]), context=LIMIT, tools=tools)
    first = upstream.forwarded
    ask(
        one_gateway,
        {"role": "tool", "tool_call_id": "call_1", "content": "The keeper of lamp 41: see there."},
        conversation=answer["conversation"]["id"],
        context=ROOMIER,
        tools=tools,
    )
    assert upstream.forwarded[: len(first)] == first
    assert [name for name, _ in pages_in(upstream.forwarded)] == ["page 84.pdf"]


@pytest.mark.parametrize("road", ["part", "attachment"])
def test_s14_13_pages_of_a_file_of_our_own_go_with_it(
    keeping: GatewayProcess, upstream: MockUpstream, road: str
) -> None:
    """They outlive a restart, which empties the cache. Once the file is deleted, none of its pages goes up again."""
    with OpenAI(base_url=keeping.base_url, api_key="sk-test") as client:
        file_id = client.files.create(file=("kept.pdf", RAW), purpose="user_data").id
        named: list[Any] = [{"type": "file", "file": {"file_id": file_id}}] if road == "part" else []
        attached = [] if named else [{"file_id": file_id}]
        answer = ask(keeping, user([*named, asked(83)]), context=LIMIT, attachments=attached)
        assert [name for name, _ in pages_in(upstream.forwarded)] == ["page 84.pdf"]
        first = upstream.forwarded
        more = {"conversation": answer["conversation"]["id"], "context": ROOMIER}
        keeping.restart()
        ask(keeping, user("Who is the keeper of lamp 41?"), **more)
        assert upstream.forwarded[: len(first)] == first
        shown = [name for name, _ in pages_in(upstream.forwarded)]
        assert shown[0] == "page 84.pdf"
        assert "42.pdf" in shown[1]
        client.files.delete(file_id)
        ask(keeping, user("Who is the keeper of lamp 20?"), **more)
    assert not pages_in(upstream.forwarded)
    assert keeper(83) not in text_of({"messages": upstream.forwarded})


def test_s14_13_an_attached_file_shows_its_page_after_a_restart(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    gateway = start_gateway({"files": {"serve": "on"}})
    with OpenAI(base_url=gateway.base_url, api_key="sk-test") as client:
        file_id = client.files.create(file=("kept.pdf", RAW), purpose="user_data").id
    answer = ask(gateway, user([asked(83)]), context=LIMIT, attachments=[{"file_id": file_id}])
    first = upstream.forwarded
    gateway.terminate()
    gateway.start()
    ask(gateway, user("Thank you."), conversation=answer["conversation"]["id"], context=ROOMIER)
    assert [name for name, _ in pages_in(first)] == ["page 84.pdf"]
    assert upstream.forwarded[: len(first)] == first


def test_s14_13_a_reference_of_a_clients_own_brings_nothing(
    keeping: GatewayProcess, one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """It is an id like any other: not one of ours, and where files are the upstream's it goes up as it came."""
    name = f"pages:pdf:{hashlib.sha256(RAW).hexdigest()}:84"
    message = user([{"type": "file", "file": {"file_id": name}}, asked(83)])
    ask(one_gateway, message)
    assert upstream.forwarded == [message]
    answer = keeping.post("/chat/completions", json={"model": "gpt-4o", "messages": [message]})
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "messages[0].content[0].file.file_id"


@pytest.mark.in_turn("road")
@pytest.mark.parametrize("road", ["part", "attachment"])
@pytest.mark.parametrize("mark", ["intro", "²"])
def test_s14_13_lines_of_a_text_that_look_like_marks_of_pages(
    keeping: GatewayProcess, upstream: MockUpstream, road: str, mark: str
) -> None:
    """They have no number, and the text is no PDF."""
    text = "\n\n".join(f"[page {mark}]\n{keeper(n)} {prose(n, 20)}" for n in range(40))
    named = {"type": "file", "file": {"file_id": uploaded(keeping, "notes.md", text.encode())}}
    by_part = user([named, {"type": "text", "text": "Who is the keeper of lamp 33? See page 3."}])
    by_attachment = user("Who is the keeper of lamp 33? See page 3.")
    more = {"attachments": [named["file"]]} if road == "attachment" else {}
    ask(keeping, by_part if road == "part" else by_attachment, context={"max_input_tokens": 1500}, **more)
    assert keeper(33) in text_of({"messages": upstream.forwarded})


def test_s14_13_other_documents_with_pages_take_no_place(keeping: GatewayProcess, upstream: MockUpstream) -> None:
    """However many there are, and however relevant."""
    texts = ["\n\n".join(f"[page {n}]\n{keeper(n)} Copy {copy}." for n in range(80, 90)) for copy in range(5)]
    names = [uploaded(keeping, f"{copy}.md", text.encode()) for copy, text in enumerate(texts)]
    parts = [{"type": "file", "file": {"file_id": name}} for name in (*names, uploaded(keeping, "kept.pdf", RAW))]
    question = {"type": "text", "text": "What does page 84 show?"}
    ask(keeping, user([*parts, question]), context=ROOMIER)
    assert [name for name, _ in pages_in(upstream.forwarded)] == ["page 84.pdf"]


def uploaded(gateway: GatewayProcess, name: str, raw: bytes) -> str:
    made = gateway.post("/files", files={"file": (name, raw)}, data={"purpose": "user_data"})
    return str(made.json()["id"])


def test_s14_13_none_where_files_are_refused(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """Nothing can be masked in a page; in its text it can, and the question is answered."""
    gateway = start_gateway({"masking": {"enabled": True, "on_unreadable": "refuse"}})
    ask(gateway, user([pdf(), asked(83)]), context=LIMIT)
    assert not pages_in(upstream.forwarded)
    assert keeper(83) in text_of({"messages": upstream.forwarded})


class Kept:
    """Files that are kept here; notes which are fetched."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.fetched: list[str] = []

    def keeps(self, caller: RequestCaller) -> bool:
        return True

    async def name(self, file_id: str, caller: RequestCaller) -> str:
        return "a.csv"

    async def fetch(self, file_id: str, caller: RequestCaller) -> StoredFile:
        self.fetched.append(file_id)
        digest = hashlib.sha256(self.content).hexdigest()
        return StoredFile("a.csv", "text/csv", self.content, own=True, digest=digest)


async def test_s14_6_a_file_that_is_no_pdf_is_fetched_once_to_see_that() -> None:
    """A request is drafted several times."""
    kept = Kept(b"name,lamp\nAda,7\n")
    files = FileReader(open_cache(CacheSettings(), SystemClock()), 100.0, store=kept)
    facts = ModelFacts("gpt-4o", supports_pdf_input=True)
    natives = NativeFiles(files, CounterRegistry(), facts, None, RequestCaller("t"))
    body = {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}
    history = ConversationHistory(None, True, (), (ConversationMessage("user", body),))
    for stays in (NativePdfs.ALL, NativePdfs.CURRENT, NativePdfs.ALL):
        assert not await natives.of(history, stays, counted=True)
    assert kept.fetched == ["file-1"]
