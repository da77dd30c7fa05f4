"""Attached documents: how they are read, labelled and billed; listed and deleted singly (guarantee §2, §4 I6)."""

import base64
import json
from typing import Any

import pytest

from tests.support.answers import Json, all_used, chat, stored, used, user
from tests.support.documents import docx, lamps, pdf, prose, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

PAGE = "<html><head><title>t</title><style>p{}</style></head><body><h1>Ropes</h1><p>Ines &amp; Ada splice.</p></body>"


def url(media_type: str, raw: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(raw).decode()}"


def attached(gateway: GatewayProcess, *documents: Json, question: str = "What is this?", **body: Any) -> Json:
    """The answer to a question beside these documents."""
    return chat(gateway, **{"model": "gpt-4o", "messages": [user(question)], "attachments": list(documents), **body})


def forwarded(upstream: MockUpstream) -> str:
    return text_of(upstream.last.body or {})


def refused(gateway: GatewayProcess, document: Json) -> Json:
    """The error for an attachment that cannot be used."""
    body = {"model": "gpt-4o", "messages": [user("q")], "attachments": [{"content": "fine"}, document]}
    answer = gateway.post("/chat/completions", json=body)
    assert answer.status_code == 400, answer.text
    error: Json = answer.json()["error"]
    return error


def test_s2_source_and_type_reach_the_models_label_and_the_bill(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """§4 I6: what a document is and where it is from; without them the label and the bill are as they were."""
    named = {
        "title": "Rota",
        "content": prose(1, 40),
        "source": "https://wiki.example/rota",
        "attachment_type": "minutes",
    }
    first = attached(one_gateway, named, {"title": "Plain", "content": prose(2, 40)})
    label = next(line for line in forwarded(upstream).split("\n") if 'source="attachment:0:Rota"' in line)
    assert 'origin="https://wiki.example/rota"' in label
    assert 'kind="minutes"' in label
    plain = next(line for line in forwarded(upstream).split("\n") if 'source="attachment:1:Plain"' in line)
    assert "origin=" not in plain
    assert "kind=" not in plain
    rota, other = used(first)["artifacts_processed"]
    assert (rota["attachment_source"], rota["attachment_type"]) == ("https://wiki.example/rota", "minutes")
    assert not {"attachment_source", "attachment_type"} & other.keys()
    before = upstream.last.body["messages"]
    again = chat(one_gateway, model="gpt-4o", messages=[user("And now?")], conversation=first["conversation"])
    assert upstream.last.body["messages"][: len(before)] == before, "§4 I7: a label does not change later"
    kept = all_used(one_gateway, again)["artifacts_processed"][0]
    assert kept["attachment_source"] == "https://wiki.example/rota"


def test_s2_of_store_false_no_word_of_a_label_is_kept(one_gateway: GatewayProcess) -> None:
    document = {"content": "text", "source": "https://zyzzyva.example", "attachment_type": "zyzzyvas"}
    answer = attached(one_gateway, document, store=False)
    kept = stored(one_gateway, answer["response_metadata"]["request_id"])
    assert "zyzzyva" not in json.dumps([kept, answer["response_metadata"]], default=str)


@pytest.mark.parametrize(
    "document",
    [
        {"content": PAGE},
        {"content": f"\n<!DOCTYPE html>\n<!-- c -->{PAGE}"},
        {"content": "<h1>Ropes</h1><p>Ines &amp; Ada splice.</p>", "attachment_type": "html"},
        {"content": "<h1>Ropes</h1><p>Ines &amp; Ada splice.</p>", "title": "ropes.html"},
        {"content": url("text/html", PAGE.encode())},
        {"content": url("text/html;charset=latin-1", PAGE.replace("Ines", "Inès").encode("latin-1"))},
        {"content": "data:text/html,%3Ch1%3ERopes%3C/h1%3E%3Cp%3EInes%20&amp;%20Ada%20splice.%3C/p%3E"},
    ],
    ids=["page", "doctype", "fragment by type", "fragment by title", "data url", "charset", "percent"],
)
def test_s2_html_is_read(one_gateway: GatewayProcess, upstream: MockUpstream, document: Json) -> None:
    """Visible text with headings, whichever way the page comes."""
    attached(one_gateway, document)
    shown = forwarded(upstream).replace("Inès", "Ines")
    assert "# Ropes\nInes & Ada splice." in shown.replace("&amp;", "&").replace("\n\n", "\n")
    assert "<p>" not in shown


def test_s2_base64_data_urls_are_decoded(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Text, CSV, and a PDF; a text that only begins like one is a text."""
    attached(one_gateway, {"content": url("text/plain;charset=utf-8", "Größe: 7".encode())})
    assert "Größe: 7" in forwarded(upstream)
    attached(one_gateway, {"content": url("text/csv", b"lamp,keeper\n7,Ines\n")})
    assert "7,Ines" in forwarded(upstream)
    attached(one_gateway, {"content": "data: 5, 6 and 7 are odd"})
    assert "data: 5, 6 and 7 are odd" in forwarded(upstream)
    attached(one_gateway, {"content": "if a <html and b> c: pass  # no page"})
    assert "if a &lt;html and b> c" in forwarded(upstream) or "if a <html and b> c" in forwarded(upstream)


def test_s2_attachments_are_listed_and_read(gateway: GatewayProcess) -> None:
    """On both storages: in the order in which they came, each content once, in pages."""
    documents = [{"title": f"Paper {n}", "content": prose(n, 50), "source": f"shelf {n}"} for n in range(3)]
    first = attached(gateway, *documents)
    home = first["conversation"]["id"]
    attached(
        gateway,
        {**documents[1], "title": "again"},
        {"content": "<p>a</p>", "attachment_type": "html"},
        conversation=home,
    )
    page = gateway.get(f"/conversations/{home}/attachments").json()
    assert [each["title"] for each in page["data"]] == ["Paper 0", "Paper 1", "Paper 2", "untitled"]
    assert (page["object"], page["has_more"], page["last_id"]) == ("list", False, page["data"][-1]["id"])
    one = page["data"][1]
    billed = {r["artifact_id"] for r in used(first)["artifacts_processed"]}
    assert one["id"] in billed
    assert (one["object"], one["source"], one["attachment_type"]) == (
        "conversation.attachment",
        "shelf 1",
        "document",
    )
    assert (one["size_chars"], one["number"]) == (len(documents[1]["content"]), 1)
    assert "content" not in one
    found = gateway.get(f"/conversations/{home}/attachments/{one['id']}").json()
    assert found == {**one, "content": documents[1]["content"]}
    part = gateway.get(f"/conversations/{home}/attachments", params={"limit": 2, "after": one["id"]}).json()
    assert [each["title"] for each in part["data"]] == ["Paper 2", "untitled"]
    back = gateway.get(f"/conversations/{home}/attachments", params={"limit": 1, "order": "desc"}).json()
    assert ([each["attachment_type"] for each in back["data"]], back["has_more"]) == (["html"], True)


def test_s2_a_deleted_attachment_enters_no_context(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Its text goes from questions, blocks and bills; other documents, and the conversation, go on."""
    secret = {"title": "Zyzzyva", "content": lamps(20), "source": "zyzzyva.example"}
    first = attached(
        gateway, secret, {"title": "Kept", "content": prose(5, 60)}, question="Who is the keeper of lamp 7?"
    )
    home = first["conversation"]["id"]
    gone, kept = (r["artifact_id"] for r in used(first)["artifacts_processed"])
    assert "lamp 7" in forwarded(upstream)
    answer = gateway.delete(f"/conversations/{home}/attachments/{gone}")
    assert answer.json() == {"id": gone, "object": "conversation.attachment.deleted", "deleted": True}
    assert [each["id"] for each in gateway.get(f"/conversations/{home}/attachments").json()["data"]] == [kept]
    behind = gateway.get(f"/conversations/{home}/attachments", params={"after": gone}).json()["data"]
    assert [each["id"] for each in behind] == [kept], "a client may delete what it lists"
    for method in ("GET", "DELETE"):
        again = gateway.request(method, f"/conversations/{home}/attachments/{gone}")
        assert (again.status_code, again.json()["error"]["code"]) == (404, "attachment_not_found")
    for odd in ("art_none", "%00", "x" * 500):
        assert gateway.get(f"/conversations/{home}/attachments/{odd}").status_code == 404
    exported = gateway.get(f"/conversations/{home}/export").text
    assert lamps(20)[:200] not in exported
    after = chat(gateway, model="gpt-4o", messages=[user("And of lamp 8, and in the other?")], conversation=home)
    assert lamps(20)[:200] not in forwarded(upstream)
    assert prose(5, 60)[:100] in forwarded(upstream)
    assert gone not in json.dumps(used(after), default=str)
    assert "yzzyva" not in json.dumps(stored(gateway, first["id"]), default=str)
    attached(gateway, {"title": "New", "content": "a new one"}, conversation=home)
    assert 'source="attachment:2:New"' in forwarded(upstream), "numbers are not given twice"


def test_s14_6_an_attachment_takes_each_form(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A string, a content, base64, a data URL: read alike, of whichever kind; it is called what its file is called."""
    encoded = base64.b64encode(docx(["Ines keeps lamp 3."])).decode()
    documents: list[Any] = [
        "Ada keeps lamp 1.",
        {"content": "Bo keeps lamp 2.", "filename": "two.txt"},
        {"file_data": encoded, "filename": "three.docx"},
        {"file_data": url("application/pdf", pdf(["Cy keeps lamp 4."])), "title": "Four"},
        {"file_data": "data:text/csv,lamp,keeper%0A5,Di%0A", "filename": "five.csv"},
    ]
    first = attached(one_gateway, *documents)
    shown = forwarded(upstream)
    for fact in ("Ada keeps lamp 1.", "Bo keeps lamp 2.", "Ines keeps lamp 3.", "Cy keeps lamp 4.", "5,Di"):
        assert fact in shown
    found = one_gateway.get(f"/conversations/{first['conversation']['id']}/attachments").json()["data"]
    assert [each["title"] for each in found] == ["untitled", "two.txt", "three.docx", "Four", "five.csv"]
    assert "file_id" not in found[0], "none of them is a file of /v1/files"


@pytest.mark.parametrize(
    ("document", "param", "says"),
    [
        ({}, "attachments[1]", "needs one of"),
        ({"title": "t"}, "attachments[1]", "needs one of"),
        ({"content": "a", "file_data": "YQ=="}, "attachments[1]", "no other"),
        ({"file_id": "file-a", "attachment_id": "file-a"}, "attachments[1]", "no other"),
        ({"file_data": "", "filename": "a.txt"}, "attachments[1].file_data", "must not be empty"),
        ({"file_data": "%%%", "filename": "a.txt"}, "attachments[1].file_data", "not base64"),
        ({"file_data": "AAEC/w=="}, "attachments[1].file_data", "no text document"),
        ({"file_data": url("application/pdf", b"%PDF none")}, "attachments[1].file_data", "PDF"),
        ({"content": ""}, "attachments[1].content", "must not be empty"),
        ({"content": " \n\t"}, "attachments[1].content", "must not be empty"),
        ({"content": url("text/plain", b"")}, "attachments[1].content", "it has no text"),
        ({"content": "<html><body><script>1</script></body></html>"}, "attachments[1].content", "it has no text"),
        ({"content": "data:text/plain;base64,@@@"}, "attachments[1].content", "not base64"),
        ({"content": url("image/png", b"\x89PNG")}, "attachments[1].content", "image/png"),
        ({"content": url("application/pdf", b"no pdf")}, "attachments[1].content", "PDF"),
        (" ", "attachments[1].content", "must not be empty"),
        (7, "attachments[1]", "object"),
    ],
)
def test_s2_an_attachment_that_cannot_be_used_is_a_400_that_names_it(
    one_gateway: GatewayProcess, upstream: MockUpstream, document: Any, param: str, says: str
) -> None:
    """§2, §14.6: bad input names the field (§7), and no model is called for it."""
    count = len(upstream.requests)
    error = refused(one_gateway, document)
    assert error["param"] == param
    assert says in error["message"]
    assert len(upstream.requests) == count


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", {"messages": [user("q")]}),
        ("/responses", {"input": "q"}),
        ("/messages", {"messages": [user("q")], "max_tokens": 9}),
    ],
)
def test_s1_13_near_misses_of_own_fields_are_told_and_go_up(
    one_gateway: GatewayProcess, upstream: MockUpstream, path: str, body: Json
) -> None:
    odd = {"attachment": "x", "Contex": {"a": [1]}, "max_input_tokens": 9, "workflow_spec": {}, "banana": 1}
    answer = one_gateway.post(path, json={"model": "gpt-4o", **body, **odd}).json()
    told = answer["response_metadata"]["context_utilization"]["warnings"]
    assert [each for each in told if each.startswith("unknown_field")] == [
        "unknown_field: attachment (did you mean attachments?)",
        "unknown_field: Contex (did you mean context?)",
        "unknown_field: max_input_tokens (did you mean context.max_input_tokens?)",
        "unknown_field: workflow_spec (did you mean workflow_spec of /api/v1/chat?)",
    ]
    if path == "/chat/completions":
        assert odd.items() <= (upstream.last.body or {}).items()
