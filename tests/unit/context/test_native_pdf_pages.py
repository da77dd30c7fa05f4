"""Pages of PDFs that matter and hold pictures go up as those pages alone (§14.13)."""

import base64
import hashlib
import io
from typing import Any

import pytest
from openai import OpenAI
from pypdf import PdfReader

from tests.support.answers import Json, http, user
from tests.support.documents import file_part, keeper, prose, text_of, tokens
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.pdfs import encrypted, scanned, with_photos
from tests.unit.context.test_pdfs import PAGE, ask, lamps, used

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


def sent(upstream: MockUpstream) -> list[Json]:
    messages: list[Json] = upstream.last.body["messages"]
    return messages


def test_s14_13_the_page_that_matters_goes_up_alone(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Beside the extract, named in the block, counted by the published formula, within the budget."""
    answer = ask(one_gateway, user([pdf(), asked(83)]), context=LIMIT)
    ((name, (text,)),) = pages_in(sent(upstream))
    assert name == "page 84.pdf"
    assert keeper(83) in text
    block, page, *rest = sent(upstream)[-1]["content"]
    assert 'shown="page 84 as it looks, in a file of that name below"' in block["text"]
    assert page["type"] == "file"
    assert rest[-1] == asked(83)
    (record,) = used(answer)["artifacts_processed"]
    assert record["strategy"] == "rag_extract"
    place = {name: record[name] for name in ("artifact_id", "source")}
    assert used(answer)["pages"] == [{**place, "pages": [84]}]
    said = sum(tokens(part["text"]) for part in sent(upstream)[-1]["content"] if part["type"] == "text")
    assert used(answer)["tokens_used"] == pytest.approx(said + PAGE + tokens(lamps(100)[83]) + 7, rel=0.02)
    assert used(answer)["tokens_used"] <= LIMIT["max_input_tokens"]


def test_s14_13_later_turns_begin_with_it_after_a_restart(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """Equal each time, though the storage holds no byte of it and the cache has forgotten it; a new question brings its
    own page; a model that reads no PDFs gets none."""
    gateway = start_gateway()
    answer = ask(gateway, user([pdf(), asked(83)]), context=LIMIT)
    first = sent(upstream)
    more = {"conversation": answer["conversation"]["id"], "context": ROOMIER}
    ask(gateway, user("Who is the keeper of lamp 41?"), **more)
    second = sent(upstream)
    assert second[: len(first)] == first
    shown = [name for name, _ in pages_in(second)]
    assert shown[0] == "page 84.pdf"
    assert "42.pdf" in shown[1]
    with http(gateway) as client:
        stored = client.get(f"/conversations/{more['conversation']}/export").text
    assert first[-1]["content"][1]["file"]["file_data"] not in stored
    gateway.terminate()
    gateway.start()
    ask(gateway, user("Thank you."), **more)
    assert sent(upstream)[: len(second)] == second
    assert [name for name, _ in pages_in(sent(upstream))] == shown
    ask(gateway, user("And you?"), model="small", **more)
    assert not pages_in(sent(upstream))
    assert not [part for message in sent(upstream) for part in message["content"] if "file" in part]


@pytest.mark.parametrize("question", ["What does page 57 show?", "What do pages 57-58 show?", "Was zeigt Seite 57?"])
def test_s14_13_a_page_that_is_named(one_gateway: GatewayProcess, upstream: MockUpstream, question: str) -> None:
    ask(one_gateway, user([pdf(), {"type": "text", "text": question}]), context=ROOMIER)
    assert any("57" in name for name, _ in pages_in(sent(upstream)))


def test_s14_13_of_a_scan_its_first_pages(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """Without a text there is nothing that could say which matter."""
    gateway = start_gateway({"documents": {"ocr": "off", "native_pages": 3}})
    raw = scanned(["a map"] * 40)
    answer = ask(gateway, user([pdf(raw, "scan.pdf"), {"type": "text", "text": "What is it?"}]), context=LIMIT)
    ((name, texts),) = pages_in(sent(upstream))
    assert name == "page 1.pdf"
    assert len(texts) == 1
    assert "document_without_text: scan.pdf pages 1-40" in used(answer)["warnings"]
    ask(gateway, user([pdf(raw), {"type": "text", "text": "What is it?"}]), context={"max_input_tokens": 40_000})
    assert [name for name, _ in pages_in(sent(upstream))] == ["pages 1-3.pdf"]


def test_s14_13_none_where_none_is_wanted(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """By the operator, by a question about something else, or by a model that reads no PDFs."""
    gateway = start_gateway({"documents": {"native_pages": 0}})
    ask(gateway, user([pdf(), asked(83)]), context=LIMIT)
    assert not pages_in(sent(upstream))


def test_s14_13_not_for_other_questions_or_models(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    ask(one_gateway, user([pdf(), {"type": "text", "text": "Write a poem on Paris."}]), context=LIMIT)
    assert not pages_in(sent(upstream))
    ask(one_gateway, user([pdf(), asked(83)]), model="small")
    assert not pages_in(sent(upstream))
    assert keeper(83) in text_of({"messages": sent(upstream)})


def test_s14_13_nothing_is_kept_without_store(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Resent with another question, the page that matters then goes up."""
    first = user([pdf(encrypted(RAW)), asked(83)])
    answer = ask(one_gateway, first, context=LIMIT, store=False)
    assert [name for name, _ in pages_in(sent(upstream))] == ["page 84.pdf"]
    said = {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}
    ask(one_gateway, first, said, user("Who is the keeper of lamp 41?"), context=LIMIT, store=False)
    assert [name for name, _ in pages_in(sent(upstream))] == ["page 42.pdf"]


def test_s14_13_a_tool_loop_keeps_the_page(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Each step begins with all that the one before forwarded."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    upstream.reply(message={"role": "assistant", "content": None, "tool_calls": [call]})
    answer = ask(one_gateway, user([pdf(), asked(83)]), context=LIMIT, tools=tools)
    first = sent(upstream)
    ask(
        one_gateway,
        {"role": "tool", "tool_call_id": "call_1", "content": "The keeper of lamp 41: see there."},
        conversation=answer["conversation"]["id"],
        context=ROOMIER,
        tools=tools,
    )
    assert sent(upstream)[: len(first)] == first
    assert [name for name, _ in pages_in(sent(upstream))] == ["page 84.pdf"]


@pytest.fixture(scope="module")
def keeping(module_start_gateway: GatewayFactory) -> GatewayProcess:
    return module_start_gateway({"files": {"serve": "on"}})


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
        assert [name for name, _ in pages_in(sent(upstream))] == ["page 84.pdf"]
        first = sent(upstream)
        more = {"conversation": answer["conversation"]["id"], "context": ROOMIER}
        keeping.restart()
        ask(keeping, user("Who is the keeper of lamp 41?"), **more)
        assert sent(upstream)[: len(first)] == first
        shown = [name for name, _ in pages_in(sent(upstream))]
        assert shown[0] == "page 84.pdf"
        assert "42.pdf" in shown[1]
        client.files.delete(file_id)
        ask(keeping, user("Who is the keeper of lamp 20?"), **more)
    assert not pages_in(sent(upstream))
    assert keeper(83) not in text_of({"messages": sent(upstream)})


def test_s14_13_an_attached_file_shows_its_page_after_a_restart(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    gateway = start_gateway({"files": {"serve": "on"}})
    with OpenAI(base_url=gateway.base_url, api_key="sk-test") as client:
        file_id = client.files.create(file=("kept.pdf", RAW), purpose="user_data").id
    answer = ask(gateway, user([asked(83)]), context=LIMIT, attachments=[{"file_id": file_id}])
    first = sent(upstream)
    gateway.terminate()
    gateway.start()
    ask(gateway, user("Thank you."), conversation=answer["conversation"]["id"], context=ROOMIER)
    assert [name for name, _ in pages_in(first)] == ["page 84.pdf"]
    assert sent(upstream)[: len(first)] == first


def test_s14_13_a_reference_of_a_clients_own_brings_nothing(
    keeping: GatewayProcess, one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """It is an id like any other: not one of ours, and where files are the upstream's it goes up as it came."""
    name = f"pages:pdf:{hashlib.sha256(RAW).hexdigest()}:84"
    message = user([{"type": "file", "file": {"file_id": name}}, asked(83)])
    ask(one_gateway, message)
    assert sent(upstream) == [message]
    with http(keeping) as client:
        answer = client.post("/chat/completions", json={"model": "gpt-4o", "messages": [message]})
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
    assert keeper(33) in text_of({"messages": sent(upstream)})


def test_s14_13_other_documents_with_pages_take_no_place(keeping: GatewayProcess, upstream: MockUpstream) -> None:
    """However many there are, and however relevant."""
    texts = ["\n\n".join(f"[page {n}]\n{keeper(n)} Copy {copy}." for n in range(80, 90)) for copy in range(5)]
    names = [uploaded(keeping, f"{copy}.md", text.encode()) for copy, text in enumerate(texts)]
    parts = [{"type": "file", "file": {"file_id": name}} for name in (*names, uploaded(keeping, "kept.pdf", RAW))]
    question = {"type": "text", "text": "What does page 84 show?"}
    ask(keeping, user([*parts, question]), context=ROOMIER)
    assert [name for name, _ in pages_in(sent(upstream))] == ["page 84.pdf"]


def uploaded(gateway: GatewayProcess, name: str, raw: bytes) -> str:
    with http(gateway) as client:
        made = client.post("/files", files={"file": (name, raw)}, data={"purpose": "user_data"})
    return str(made.json()["id"])


def test_s14_13_none_where_files_are_refused(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """Nothing can be masked in a page; in its text it can, and the question is answered."""
    gateway = start_gateway({"masking": {"enabled": True, "on_unreadable": "refuse"}})
    ask(gateway, user([pdf(), asked(83)]), context=LIMIT)
    assert not pages_in(sent(upstream))
    assert keeper(83) in text_of({"messages": sent(upstream)})
