"""Large documents: indexed in the storage, read by regions (guarantee §14.7). Here they are large from 100,000
characters on."""

import html
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.core.ids import artifact_id
from tests.support.answers import Json, chat, used, user
from tests.support.documents import keeper, lamps, text_of
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.web_page import PageClient, checked

LAMPS = 500
TEXT = lamps(LAMPS, 90)
BUDGET = 2_000


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def module_indexing(module_start_gateway: GatewayFactory, request: pytest.FixtureRequest) -> GatewayProcess:
    """The module's gateway; tests take `indexing`."""
    storage = {} if request.param == "sqlite" else {"url": request.getfixturevalue("postgres").new_database()}
    return module_start_gateway({"documents": {"index_chars": 100_000}, "storage": storage})


@pytest.fixture
def indexing(module_indexing: GatewayProcess, upstream: MockUpstream) -> Iterator[GatewayProcess]:
    """A gateway for which 100,000 characters are a large document."""
    yield module_indexing
    with module_indexing.http() as client:  # the same text is to be stored anew by each test
        for each in client.get("/conversations").json()["data"]:
            client.delete(f"/conversations/{each['id']}")


def begun(gateway: GatewayProcess, text: str = TEXT, **more: Any) -> str:
    """A conversation with the document, by its id."""
    document = {"title": "Lamps", "content": text}
    answer = chat(gateway, model="gpt-4o", messages=[user("Hello.")], attachments=[document], **more)
    return str(answer["conversation"]["id"] if isinstance(answer["conversation"], dict) else answer["conversation"])


def asked(gateway: GatewayProcess, conversation: str, question: str) -> Json:
    return chat(
        gateway,
        model="gpt-4o",
        messages=[user(question)],
        conversation=conversation,
        context={"max_input_tokens": BUDGET},
    )


def document(gateway: GatewayProcess, conversation: str, query: str = "") -> Json:
    answer = gateway.get(f"/conversations/{conversation}/attachments/{artifact_id(TEXT)}{query}")
    found: Json = answer.json()
    return found


def indexed(gateway: GatewayProcess, conversation: str) -> Json:
    """The document once its index is there."""
    for _ in range(600):
        found = document(gateway, conversation, "?limit=10")
        if found["index"]["status"] == "ready":
            return found
        time.sleep(0.05)
    raise AssertionError(f"it is still not indexed: {found}")


def test_s14_7_a_fact_late_in_a_large_document_reaches_the_model(
    indexing: GatewayProcess, upstream: MockUpstream
) -> None:
    conversation = begun(indexing, context={"max_input_tokens": BUDGET})
    assert indexed(indexing, conversation)["index"] == {"status": "ready", "progress": 1.0}
    for number in (433, 121):
        answer = asked(indexing, conversation, f"Who is the keeper of lamp {number}?")
        assert keeper(number) in text_of(upstream.last.body or {})
        bill = used(answer)
        assert "document_index_unfinished" not in bill["warnings"]
        record = next(each for each in bill["artifacts_processed"] if each["artifact_id"] == artifact_id(TEXT))
        assert record["strategy"] == "rag_extract"
        assert record["original_size_chars"] == len(TEXT)


def test_s14_7_a_window_that_has_room_for_all_that_was_read_calls_it_an_extract(
    indexing: GatewayProcess, upstream: MockUpstream
) -> None:
    conversation = begun(indexing, context={"max_input_tokens": BUDGET})
    indexed(indexing, conversation)
    chat(indexing, model="bench", messages=[user("Who is the keeper of lamp 99?")], conversation=conversation)
    sent = text_of(upstream.last.body or {})
    assert keeper(99) in sent
    assert f"of {len(TEXT):,} characters" in sent
    assert 'shown="full"' not in sent


def test_s14_7_the_tool_recall_searches_all_of_it(indexing: GatewayProcess, upstream: MockUpstream) -> None:
    conversation = begun(indexing, context={"max_input_tokens": BUDGET})
    indexed(indexing, conversation)
    name = artifact_id(TEXT)
    for number, more in ((203, {}), (404, {"artifact_id": name})):
        arguments = json.dumps({"question": f"Who is the keeper of lamp {number}?", **more})
        call = {"id": "call_1", "type": "function", "function": {"name": "recall", "arguments": arguments}}
        upstream.reply(message={"role": "assistant", "content": None, "tool_calls": [call]})
        upstream.reply(text="Read.")
        context = {"recall": True, "max_input_tokens": 2 * BUDGET}
        chat(indexing, model="gpt-4o", messages=[user("Say hello.")], conversation=conversation, context=context)
        before, after = (text_of(each.body or {}) for each in upstream.chats[-2:])
        assert keeper(number) not in before
        assert keeper(number) in after


def test_s14_7_a_tool_of_the_mcp_server_reads_all_of_it(indexing: GatewayProcess) -> None:
    conversation = begun(indexing)
    indexed(indexing, conversation)

    def read(**arguments: Any) -> Json:
        call = {"name": "read_artifact", "arguments": {"artifact_id": artifact_id(TEXT), **arguments}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        accepts = {"accept": "application/json, text/event-stream"}
        with indexing.http() as client:
            url = str(client.base_url).replace("/v1", "") + "mcp"
            answer = client.post(url, json=body, headers=accepts)
        found: Json = answer.json()["result"]["structuredContent"]
        return found

    end = read(offset=len(TEXT) - 500)
    assert (end["text"], end["next_offset"], end["shown"]) == (TEXT[-500:], None, "part")
    begin = read()
    assert (begin["text"], begin["next_offset"]) == (TEXT[:40_000], 40_000)
    shown = read(question="Who is the keeper of lamp 313?")
    assert shown["shown"] == "passages"
    assert keeper(313) in shown["text"]


def test_s14_7_its_text_is_read_in_parts_and_exported_whole(indexing: GatewayProcess) -> None:
    conversation = begun(indexing)
    parts: list[str] = []
    at: int | None = 0
    while at is not None:
        found = document(indexing, conversation, f"?offset={at}&limit=150000")
        assert found["offset"] == at
        parts.append(found["content"])
        at = found["next_offset"]
    assert "".join(parts) == TEXT
    assert document(indexing, conversation, "?offset=x")["error"]["param"] == "offset"
    assert document(indexing, conversation, "?limit=0")["error"]["param"] == "limit"
    exported = indexing.get(f"/conversations/{conversation}/export").json()
    assert exported["attachments"][0]["document"]["content"] == TEXT


def test_s14_7_an_imported_one_is_a_large_document_too(indexing: GatewayProcess, upstream: MockUpstream) -> None:
    conversation = begun(indexing)
    exported = indexing.get(f"/conversations/{conversation}/export").json()
    indexing.delete(f"/conversations/{conversation}")
    imported = indexing.post("/conversations/import", json=exported).json()["id"]
    assert indexing.get(f"/conversations/{imported}/export").json()["attachments"] == exported["attachments"]
    assert indexed(indexing, imported)["index"]["status"] == "ready"
    asked(indexing, imported, "Who is the keeper of lamp 377?")
    assert keeper(377) in text_of(upstream.last.body or {})


def test_s14_7_it_goes_with_the_last_conversation_that_holds_it(
    indexing: GatewayProcess, upstream: MockUpstream
) -> None:
    first, second = begun(indexing), begun(indexing)
    assert indexing.delete(f"/conversations/{first}").status_code == 200
    assert indexed(indexing, second)["index"]["status"] == "ready"
    asked(indexing, second, "Who is the keeper of lamp 277?")
    assert keeper(277) in text_of(upstream.last.body or {})
    name = artifact_id(TEXT)
    assert indexing.delete(f"/conversations/{second}/attachments/{name}").status_code == 200
    assert indexing.get(f"/conversations/{second}/attachments/{name}").status_code == 404
    third = begun(indexing)
    assert indexed(indexing, third)["index"]["status"] == "ready"


def test_s14_7_of_store_false_nothing_is_kept(indexing: GatewayProcess, upstream: MockUpstream) -> None:
    question = "Who is the keeper of lamp 350?"
    body = {"messages": [user(question)], "attachments": [{"content": TEXT}], "context": {"max_input_tokens": BUDGET}}
    chat(indexing, model="gpt-4o", store=False, **body)
    assert keeper(350) in text_of(upstream.last.body or {}), "it is looked through as it is"
    assert not indexing.get("/conversations").json()["data"]


def test_s14_7_a_line_that_a_question_names_is_shown_and_cited(
    indexing: GatewayProcess, upstream: MockUpstream
) -> None:
    """§14.7, §14.8, §14.2: by its number in the whole document, of which the model is sent an extract."""
    conversation = begun(indexing)
    indexed(indexing, conversation)
    lines = TEXT.split("\n")
    number = next(at for at in range(1_201, len(lines)) if len(lines[at - 1]) > 60)
    for question in (f"What does line {number} say?", f"Was steht in Zeile {number}?"):
        upstream.reply(text=f"That [{artifact_id(TEXT)}, line {number}], not [{artifact_id(TEXT)}, line 0].")
        context = {"max_input_tokens": BUDGET, "cite": True}
        said = [user(question)]
        answer = chat(indexing, model="gpt-4o", messages=said, conversation=conversation, context=context)
        sent = text_of(upstream.last.body or {})
        assert lines[number - 1].strip()[:60] in sent
        assert re.search(rf"^\[lines? (?:{number}|{number}-\d+|\d+-\d+)\]$", sent, re.MULTILINE)
        (one,) = answer["response_metadata"]["citations"]
        assert one["passages"][0]["text"].strip()[:60] == lines[number - 1].strip()[:60]
        assert answer["response_metadata"]["citations_dropped"] == 1


def test_s14_7_a_search_over_the_past_finds_what_stands_at_its_end(indexing: GatewayProcess) -> None:
    """§14.7, §10.12: by its words, in whichever part; the search says if an index is not finished."""
    conversation = begun(indexing)
    indexed(indexing, conversation)
    body = {"name": "search_conversations", "arguments": {"query": f"Who is the keeper of lamp {LAMPS - 1}?"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body}
    accepts = {"accept": "application/json, text/event-stream"}
    with indexing.http() as client:
        url = str(client.base_url).replace("/v1", "") + "mcp"
        found = client.post(url, json=call, headers=accepts).json()["result"]["structuredContent"]
    (one,) = found["conversations"]
    assert one["conversation_id"] == conversation
    assert keeper(LAMPS - 1) in "".join(each["text"] for each in one["excerpts"])
    assert found["searched"]["complete"]


def test_s14_7_the_page_shows_any_part_of_it(indexing: GatewayProcess) -> None:
    """§14.7, §13.3: what was shown of it is marked, wherever it stands; a part is found by words or by a line."""
    conversation = begun(indexing, context={"max_input_tokens": BUDGET})
    indexed(indexing, conversation)
    answer = asked(indexing, conversation, "Who is the keeper of lamp 499?")
    path = f"/ui/requests/{answer['id']}"
    with PageClient(indexing.url) as page:
        shown = html.unescape(page.get(path).text)
        assert re.search(rf"<mark>[^<]*{keeper(499)}", shown)
        (link,) = dict.fromkeys(re.findall(r"/ui/requests/req_\w+/document\?number=\d+", shown))
        first = page.get(link).text
        checked(page.get(link))
        assert "part=2" in first
        assert "← Previous part</span>" in first
        beyond = page.get(f"{link}&part=99999").text
        assert keeper(499) in html.unescape(beyond)
        assert "Next part →</span>" in beyond
        for wanted, held in (("keeper of lamp 350", keeper(350)), ("line 1005", TEXT.split("\n")[1004][:40])):
            part = page.get(f"{link}&find={wanted.replace(' ', '+')}")
            checked(part)
            assert held in html.unescape(part.text)
        assert "Nothing found" in page.get(f"{link}&find=zyxwvut").text
        assert page.get(f"{path}/text?of=artifact&number={link.rpartition('=')[2]}").text == TEXT
        assert page.get(f"{path}/document?number=77").status_code == 404
