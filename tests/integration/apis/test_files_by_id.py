"""Files kept here by their ids: pictures on each road, what is passed on in mode off, and how each API names what is
wrong with one (guarantee §14.6)."""

import base64
import io
import json
from collections.abc import Callable
from math import ceil
from typing import Any

import pytest
from PIL import Image

from tests.support.answers import Json, exactly, ok, used, user
from tests.support.documents import docx, text_of
from tests.support.factory import SMALL_MODEL_INFO, ClientFactory, GatewayFactory, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_responses import MockResponses
from tests.support.mock_upstream import MockUpstream
from tests.support.pdfs import with_photos
from tests.support.reply import Reply as MockReply

pytestmark = pytest.mark.in_turn("mode")

ADA, BOB = "sk-key-of-ada", "sk-key-of-bob"
KEYS = [{"key": ADA, "tenant": "acme"}, {"key": BOB, "tenant": "other"}]
ASK = "What is on it?"
GONE = "(This picture was deleted.)"
MEDIA = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
Ask = Callable[..., tuple[str, Json]]


def settings_of_keeping(upstream: MockUpstream) -> dict[str, Any]:
    codex = {"model": "openai/codex", "api_base": upstream.base_url, "api_key": "sk-upstream"}
    chats = [
        {"model_name": name, "litellm_params": {**codex, "model": f"openai/{name}"}, "model_info": {"mode": "chat"}}
        for name in ("gpt-4o", "small")
    ]
    told = {**SMALL_MODEL_INFO, "mode": "responses"}
    return {
        "auth": {"keys": KEYS},
        "model_list": [*chats, {"model_name": "codex", "litellm_params": codex, "model_info": told}],
    }


keeping = shared_gateway(settings_of_keeping)
"""A gateway that keeps its clients' files; `codex` is served by Responses alone."""


def picture(form: str = "PNG", size: tuple[int, int] = (640, 480)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (7, 90, 200)).save(out, form)
    return out.getvalue()


def url_of(content: bytes, media: str = "image/png") -> str:
    return f"data:{media};base64,{base64.b64encode(content).decode()}"


def uploaded(gateway: GatewayProcess, content: bytes, name: str = "a.png", media: str = "image/png") -> str:
    made = ok(gateway.post("/files", files={"file": (name, content, media)}, data={"purpose": "vision"}, key=ADA))
    return str(made["id"])


def deleted(gateway: GatewayProcess, file_id: str) -> None:
    assert gateway.delete(f"/files/{file_id}", key=ADA).status_code == 200


def by_chat(part: Json, **more: Any) -> tuple[str, Json]:
    return "/chat/completions", {"messages": [user([{"type": "text", "text": ASK}, part])], **more}


def by_responses(part: Json, **more: Any) -> tuple[str, Json]:
    return "/responses", {"input": [user([{"type": "input_text", "text": ASK}, part])], **more}


def by_messages(part: Json, **more: Any) -> tuple[str, Json]:
    content = [{"type": "text", "text": ASK}, part]
    return "/messages", {"messages": [{"role": "user", "content": content}], "max_tokens": 50, **more}


def item(file_id: str, **more: Any) -> Json:
    return {"type": "input_image", "file_id": file_id, **more}


def block(file_id: str, kind: str = "image") -> Json:
    return {"type": kind, "source": {"type": "file", "file_id": file_id}}


def posted(gateway: GatewayProcess, asked: tuple[str, Json], model: str = "gpt-4o", key: str = ADA) -> Json:
    return exactly(gateway.post(asked[0], json={"model": model, **asked[1]}, key=key))


def refused(gateway: GatewayProcess, asked: tuple[str, Json], key: str = ADA) -> tuple[int, str, str]:
    """Status, field and code."""
    answer = gateway.post(asked[0], json={"model": "gpt-4o", **asked[1]}, key=key)
    error = answer.json()["error"]
    return answer.status_code, error["param"], error["code"]


ROADS: dict[str, tuple[Ask, Callable[[str], Json]]] = {
    "chat": (by_chat, item),
    "responses": (by_responses, item),
    "messages": (by_messages, block),
}


@pytest.mark.parametrize("road", ROADS)
def test_s14_6_a_picture_by_its_id_goes_up_as_the_picture(
    keeping: GatewayProcess, upstream: MockUpstream, road: str
) -> None:
    """Equal each time, counted by its size; messages keep the id, and say so once the file is deleted."""
    ask, named = ROADS[road]
    raw = picture(size=(1024, 1024))
    file_id = uploaded(keeping, raw)
    shown = {"type": "image_url", "image_url": {"url": url_of(raw)}}
    answer = posted(keeping, ask(named(file_id)))
    first = upstream.last.body["messages"]
    assert first == [user([{"type": "text", "text": ASK}, shown])]
    inline = posted(keeping, by_chat(shown, store=False))
    told, same = (each.get("response_metadata", {}).get("context_utilization") for each in (answer, inline))
    if road != "messages":
        assert told["tokens_used"] == same["tokens_used"] == pytest.approx(85 + 170 * 4, abs=20)
    conversation = keeping.get("/conversations", key=ADA).json()["data"][0]["id"]
    (kept,) = keeping.get(f"/conversations/{conversation}/items", params={"order": "asc"}, key=ADA).json()["data"][:1]
    exported = keeping.get(f"/conversations/{conversation}/export", key=ADA).text
    assert kept["content"][1] == {"type": "input_image", "file_id": file_id, "detail": "auto"}
    assert base64.b64encode(raw).decode()[:60] not in exported
    posted(keeping, ("/chat/completions", {"messages": [user("And now?")], "conversation": conversation}))
    assert upstream.last.body["messages"][:1] == first
    deleted(keeping, file_id)
    posted(keeping, ("/chat/completions", {"messages": [user("Still?")], "conversation": conversation}))
    assert upstream.last.body["messages"][0]["content"][1] == {"type": "text", "text": GONE}
    assert file_id not in json.dumps(upstream.last.body)


@pytest.mark.parametrize("form", MEDIA)
def test_s14_6_pictures_are_known_by_their_bytes(keeping: GatewayProcess, upstream: MockUpstream, form: str) -> None:
    """Whatever their name and media type say; what the part says of its detail stays."""
    raw = picture(form, (2000, 700))
    file_id = uploaded(keeping, raw, "a.bin", "application/octet-stream")
    answer = posted(keeping, by_responses(item(file_id, detail="high")))
    sent = upstream.last.body["messages"][0]["content"][1]
    assert sent == {"type": "image_url", "image_url": {"url": url_of(raw, MEDIA[form]), "detail": "high"}}
    assert used(answer)["tokens_used"] == pytest.approx(85 + 170 * ceil(2000 / 512) * ceil(700 / 512), abs=20)


def test_s14_6_an_upstream_of_responses_gets_it_in_its_words(keeping: GatewayProcess, upstream: MockUpstream) -> None:
    """Also the picture that a tool has returned."""
    raw, asked = picture(), MockResponses(upstream)
    file_id = uploaded(keeping, raw)
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": [item(file_id)]}
    posted(keeping, ("/responses", {"input": [user([item(file_id)]), call, output]}), model="codex")
    message, _, result = asked.last["input"]
    shown = {"type": "input_image", "image_url": url_of(raw), "detail": "auto"}
    assert (message["content"], result["output"]) == ([shown], [shown])


def test_s14_6_of_store_false_nothing_is_kept(keeping: GatewayProcess, upstream: MockUpstream) -> None:
    file_id = uploaded(keeping, picture())
    posted(keeping, by_responses(item(file_id), store=False))
    deleted(keeping, file_id)
    assert refused(keeping, by_responses(item(file_id), store=False))[0] == 404
    assert len(upstream.chats) == 1


@pytest.mark.parametrize("mode", ["auto", "off"])
@pytest.mark.parametrize(
    ("ask", "part", "field"),
    [
        (by_chat, {"type": "file", "file": {"file_id": "?"}}, "messages[2].content[1].file.file_id"),
        (by_chat, item("?"), "messages[2].content[1].file_id"),
        (by_responses, {"type": "input_file", "file_id": "?"}, "input[1].content[1].file_id"),
        (by_responses, item("?"), "input[1].content[1].file_id"),
        (by_messages, block("?", "document"), "messages[0].content[1].source.file_id"),
        (by_messages, block("?"), "messages[0].content[1].source.file_id"),
    ],
)
def test_s14_6_what_is_not_there_is_named_as_the_client_names_it(
    keeping: GatewayProcess, upstream: MockUpstream, ask: Ask, part: Json, field: str, mode: str
) -> None:
    """An id that was never given, a deleted one, and another tenant's are the same, behind whatever stands before."""
    kept, gone = uploaded(keeping, picture()), uploaded(keeping, picture())
    deleted(keeping, gone)
    for file_id, key in ((f"file-{'0' * 32}", ADA), (gone, ADA), (kept, BOB)):
        path, body = ask(json.loads(json.dumps(part).replace("?", file_id)), context={"mode": mode})
        if path == "/chat/completions":
            body["messages"] = [{"role": "system", "content": "Be brief."}, user("Hi"), *body["messages"]]
        elif path == "/responses":
            body = {**body, "instructions": "Be brief.", "input": [user("Hi"), *body["input"]]}
        else:
            body["system"] = "Be brief."
        status, told, code = refused(keeping, (path, body), key)
        assert (status, told, code) == (404, field, "file_not_found")
    assert not upstream.chats


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (by_responses(item("?")), "input[0].content[1].file_id"),
        (by_messages(block("?")), "messages[0].content[1].source.file_id"),
        (by_responses({"type": "input_file", "file_id": "?"}), "input[0].content[1].file_id"),
        (by_responses({"type": "input_file", "filename": "a.docx", "file_data": url_of(b"PK\x03\x04 no", DOCX)}),
         "input[0].content[1].file_data"),
        (by_messages(block("?", "document")), "messages[0].content[1].source.file_id"),
        (by_messages({"type": "document", "source": {"type": "base64", "media_type": DOCX, "data": "UEsDBCBubw=="}}),
         "messages[0].content[1].source.data"),
        (by_chat({"type": "file", "file": {"file_id": "?"}}), "messages[0].content[1].file"),
    ],
)  # fmt: skip
def test_s7_a_file_that_is_not_what_it_should_be_is_named(
    keeping: GatewayProcess, upstream: MockUpstream, asked: tuple[str, Json], field: str
) -> None:
    """In the words of the API that its client speaks."""
    file_id = uploaded(keeping, b"\x00\x01\x02\xff no picture and no document", "a.docx", DOCX)
    path, body = asked
    status, told, _ = refused(keeping, (path, json.loads(json.dumps(body).replace("?", file_id))))
    assert (status, told) == (400, field)
    assert not upstream.chats


def test_s7_a_file_in_a_resend_is_named_where_it_stands(keeping: GatewayProcess) -> None:
    """Also where the messages before it are stored, so that the conversation goes on from them."""
    answer = posted(keeping, ("/chat/completions", {"messages": [user("Hi")]}))
    said = [{"role": "system", "content": "Be brief."}, user("Hi"), answer["choices"][0]["message"]]
    broken = {"type": "file", "file": {"filename": "a.docx", "file_data": url_of(b"PK\x03\x04 no", DOCX)}}
    asked = ("/chat/completions", {"messages": [*said, user([broken])]})
    assert refused(keeping, asked)[:2] == (400, "messages[3].content[0].file")


@pytest.mark.parametrize("road", ["chat", "responses", "messages"])
def test_s14_6_mode_off_puts_files_in(keeping: GatewayProcess, upstream: MockUpstream, road: str) -> None:
    """No upstream knows their ids: each goes up with its name and media type, as if it had come with the request."""
    pdf, notes, raw = with_photos(["One page."]), docx(["x"]), picture()
    ids = [
        uploaded(keeping, pdf, "report.pdf", "application/octet-stream"),
        uploaded(keeping, notes, "notes.docx", DOCX),
        uploaded(keeping, raw),
    ]
    off: Json = {"context": {"mode": "off"}}
    if road == "chat":
        parts: list[Json] = [{"type": "file", "file": {"file_id": each}} for each in ids[:2]] + [item(ids[2])]
        asked = ("/chat/completions", {"messages": [user(parts)], **off})
    elif road == "responses":
        parts = [{"type": "input_file", "file_id": each} for each in ids[:2]] + [item(ids[2])]
        asked = ("/responses", {"input": [user(parts)], **off})
    else:
        blocks = [block(each, "document") for each in ids[:2]] + [block(ids[2])]
        asked = ("/messages", {"messages": [user(blocks)], "max_tokens": 50, **off})
    posted(keeping, asked)
    assert upstream.last.body["messages"][0]["content"] == [
        {"type": "file", "file": {"filename": "report.pdf", "file_data": url_of(pdf, "application/pdf")}},
        {"type": "file", "file": {"filename": "notes.docx", "file_data": url_of(notes, DOCX)}},
        {"type": "image_url", "image_url": {"url": url_of(raw)}},
    ]


def test_s14_6_what_is_none_of_our_ids_goes_up_untouched(
    keeping: GatewayProcess, own_key_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """In mode off by its form; where the upstream keeps a client's files, every one."""
    foreign = user([{"type": "file", "file": {"file_id": "gs://bucket/a.pdf"}}])
    posted(keeping, ("/chat/completions", {"messages": [foreign], "context": {"mode": "off"}}))
    assert upstream.last.body["messages"] == [foreign]
    ours, asked = f"file-{'0' * 32}", MockResponses(upstream)
    for mode in ("off", "auto"):
        message = user([{"type": "input_file", "file_id": ours}, item(ours, detail="low")])
        posted(own_key_gateway, ("/responses", {"input": [message], "context": {"mode": mode}}), key="sk-test")
        assert asked.last["input"] == [message]


def test_s14_5_items_name_only_files_that_are_there(keeping: GatewayProcess) -> None:
    """Unknown, or another tenant's: nothing is added, and the field is named as in a request (guarantee §7)."""
    file_id, talk = uploaded(keeping, picture()), ok(keeping.post("/conversations", json={}, key=BOB))["id"]
    for kind, name in (("input_file", "file-none"), ("input_image", file_id)):
        items = [user("fine"), user([{"type": "input_text", "text": "x"}, {"type": kind, "file_id": name}])]
        for path in ("/conversations", f"/conversations/{talk}/items"):
            answer = keeping.post(path, json={"items": items}, key=BOB)
            error = answer.json()["error"]
            told = (answer.status_code, error["code"], error["param"])
            assert told == (404, "file_not_found", "items[1].content[1].file_id")
    assert ok(keeping.get(f"/conversations/{talk}/items", key=BOB))["data"] == []


def test_s14_6_items_of_a_conversation_may_name_pictures(
    keeping: GatewayProcess, own_key_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Where they are kept here. What turns out to be none is no fault of the request that comes later."""
    kept, other = uploaded(keeping, picture()), uploaded(keeping, docx(["x"]), "a.docx", DOCX)
    message = {"type": "message", "role": "user", "content": [item(kept), item(other)]}
    answer = own_key_gateway.post("/conversations", json={"items": [message]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "items[0].content[0].file_id")
    made = keeping.post("/conversations", json={"items": [message]}, key=ADA).json()["id"]
    posted(keeping, ("/chat/completions", {"messages": [user(ASK)], "conversation": made}))
    assert upstream.last.body["messages"][0]["content"][0]["image_url"]["url"] == url_of(picture())
    assert "it is no picture" in text_of(upstream.last.body)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (404, {"detail": "Not Found"}),
        (405, {}),
        (501, {}),
        (404, {"error": {"code": 404, "message": "File Not Found"}}),
    ],
)
def test_s14_5_an_upstream_without_files(
    start_gateway: GatewayFactory, upstream: MockUpstream, make_client: ClientFactory, status: int, told: Json
) -> None:
    """Its clients' uploads are kept here: the first comes again by the SDK itself, and none is sent there any more.
    Some servers say in OpenAI's shape that there is no such path."""
    upstream.routes["POST /v1/files"] = MockReply(status=status, json=told)
    gateway = start_gateway({"upstream": {"api_base": upstream.base_url}})
    client = make_client(gateway, "sk-mine").with_options(max_retries=2)  # as it is by default
    made = [client.files.create(file=("lamps.txt", text), purpose="user_data") for text in (b"Lamp 7 is blue.", b"Two")]
    assert [each.path for each in upstream.requests] == ["/v1/files"]
    messages: Any = [user("Which colour has lamp 7?")]
    attached = {"attachments": [{"file_id": made[0].id}]}
    client.chat.completions.create(model="gpt-4o", messages=messages, extra_body=attached)
    assert "Lamp 7 is blue." in text_of(upstream.last.body)
    gateway.restart()  # what was learned of the upstream is gone, the files are not
    assert client.files.retrieve(made[1].id).filename == "lamps.txt"
    client.files.delete(made[1].id)
    answer = gateway.post("/files", files={"file": ("a.txt", b"x")}, data={"purpose": "user_data"}, key="sk-mine")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "files_not_kept")
    assert "files.serve" in answer.json()["error"]["message"]


def test_s14_5_a_key_for_anthropic_is_no_key_for_an_upstreams_files(
    own_key_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Its client's uploads are kept here at once: the default upstream would be asked without a key."""
    named = {"x-api-key": "sk-ant-mine", "anthropic-version": "2023-06-01"}
    made = own_key_gateway.post("/files", headers=named, files={"file": ("a.txt", b"x")}, key=None)
    assert (made.status_code, made.json()["type"]) == (200, "file")
    assert not upstream.requests


@pytest.mark.parametrize("road", ["/responses/input_tokens", "/messages/count_tokens", "/compress"])
def test_s10_1_a_count_holds_what_its_documents_say(keeping: GatewayProcess, road: str) -> None:
    """By its id a document was a few tokens, and in base64 five times what it says."""
    told = " ".join(f"Lamp {number} burns." for number in range(3000))
    name, raw = "lamps.txt", told.encode()
    file_id, is_anthropics = uploaded(keeping, raw, name, "text/plain"), road.startswith("/messages")
    source = {"type": "base64", "media_type": "text/plain", "data": base64.b64encode(raw).decode()}
    by_id: Json = block(file_id, "document") if is_anthropics else {"type": "file", "file": {"file_id": file_id}}
    inline: Json = {"type": "file", "file": {"filename": name, "file_data": url_of(raw, "text/plain")}}
    if road.startswith("/responses"):
        by_id, inline = {"type": "input_file", **by_id["file"]}, {"type": "input_file", **inline["file"]}
    inline = {"type": "document", "source": source} if is_anthropics else inline

    def counted(content: Any, **more: Any) -> int:
        body = {("input" if road.startswith("/responses") else "messages"): [user(content)], **more}
        answer = posted(keeping, (road, body))
        return int(answer["tokens_before"] if road == "/compress" else answer["input_tokens"])

    alone = counted(told)
    assert alone > 10_000
    assert counted([by_id]) == pytest.approx(alone, rel=0.02)
    assert counted([inline]) == pytest.approx(alone, rel=0.02)
    assert counted(ASK, attachments=[{"file_id": file_id}]) == pytest.approx(alone, rel=0.02)
    deleted(keeping, file_id)
    field = "input" if road.startswith("/responses") else "messages"
    assert refused(keeping, (road, {field: [user([by_id])]}))[::2] == (404, "file_not_found")
