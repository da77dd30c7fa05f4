"""§14.5: `/v1/files` where files are kept here, by the official SDK's own methods, and what hostile forms get."""

import hashlib
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal, cast

import anthropic
import httpx
import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.support.answers import Json, user
from tests.support.documents import docx, locked_pdf, text_of
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until

ADA, BOB, SMALL = "sk-key-of-ada", "sk-key-of-bob", "sk-small-key"
KEYS = [
    {"key": ADA, "tenant": "acme"},
    {"key": BOB, "tenant": "other"},
    {"key": SMALL, "tenant": "small", "file_bytes": 1000},
]
HEAD = {"authorization": f"Bearer {ADA}"}
VERSION = {"anthropic-version": "2023-06-01"}
BOUNDARY = {"content-type": "multipart/form-data; boundary=X"}


def sdk(gateway: GatewayProcess, key: str = ADA) -> OpenAI:
    return OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0, timeout=60)


def cached_documents(gateway: GatewayProcess) -> Json:
    """How often readings of documents were found in the cache."""
    with httpx.Client(headers=HEAD) as plain:
        found = plain.get(gateway.base_url.removesuffix("/v1") + "/health/ready?details=1").json()
    return dict(found["details"]["caches"]["documents"])


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_s14_5_a_client_deletes_what_it_lists(guarded: GatewayProcess, order: Literal["asc", "desc"]) -> None:
    """The next page begins behind a file that is deleted by then; another tenant's deleted file is none."""
    with sdk(guarded) as client, sdk(guarded, BOB) as stranger:
        made = [client.files.create(file=(f"{n}.txt", b"x"), purpose="user_data").id for n in range(5)]
        gone = [client.files.delete(each.id).id for each in client.files.list(limit=2, order=order)]
        assert gone == (made if order == "asc" else made[::-1])
        assert list(client.files.list()) == []
        with pytest.raises(openai.NotFoundError):
            stranger.files.list(after=gone[0])


def part(name: str, content: bytes, filename: str | None = None, more: str = "") -> bytes:
    named = f'; filename="{filename}"' if filename is not None else ""
    return f'--X\r\nContent-Disposition: form-data; name="{name}"{named}\r\n{more}\r\n'.encode() + content + b"\r\n"


def test_s14_5_files_by_the_sdks_own_methods(guarded: GatewayProcess, upstream: MockUpstream) -> None:
    """§14.5: uploaded, told, listed, read and deleted; another tenant's id is one that does not exist."""
    content = bytes(range(256)) * 12_000  # several pieces
    with sdk(guarded) as client, sdk(guarded, BOB) as stranger:
        made = client.files.create(file=("bericht ä.bin", content), purpose="user_data")
        again = client.files.create(
            file=("b.txt", content), purpose="assistants", expires_after={"anchor": "created_at", "seconds": 3600}
        )
        assert (made.object, made.bytes, made.filename, made.purpose) == (
            "file",
            len(content),
            "bericht ä.bin",
            "user_data",
        )
        assert made.expires_at is None
        assert again.expires_at == again.created_at + 3600
        assert made.id != again.id
        assert client.files.retrieve(made.id) == made
        assert client.files.content(made.id).content == content
        assert [each.id for each in client.files.list(limit=1)][:2] == [again.id, made.id]
        assert [each.id for each in client.files.list(order="asc", purpose="user_data")] == [made.id]
        assert list(stranger.files.list()) == []
        for ask in (stranger.files.retrieve, stranger.files.content, stranger.files.delete):
            with pytest.raises(openai.NotFoundError) as refused:
                ask(made.id)
            assert refused.value.code == "file_not_found"
        assert client.files.delete(made.id).deleted
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(made.id)
        assert client.files.content(again.id).content == content  # its content stays with its last file
        client.files.delete(again.id)
    assert not upstream.requests


def test_s14_5_files_by_anthropics_sdk(guarded: GatewayProcess, upstream: MockUpstream) -> None:
    """§14.5: the same files as Anthropic's objects; errors in its shape (§10.8); a message names them by id."""
    with Anthropic(base_url=guarded.url, api_key=ADA, max_retries=0) as client:
        files = client.beta.files
        made = [files.upload(file=(f"{n}.txt", b"Lamp %d is blue." % n, "text/plain")) for n in range(3)]
        later = files.upload(file=("later", b"x"), expires_in_seconds=7_776_000)
        assert later.expires_at is not None
        assert later.expires_at - later.created_at == timedelta(days=90)
        assert files.delete(later.id).type == "file_deleted"
        page = files.list(limit=2)
        assert page.data == made[:0:-1]
        assert list(page) == made[::-1]
        assert files.list(ids=[made[2].id, "file-none", made[0].id]).data == [made[2], made[0]]
        by_id = guarded.get(f"/files?limit=1&before_id={made[0].id}", headers={**HEAD, **VERSION}, key=None)
        assert (by_id.json()["last_id"], by_id.json()["has_more"]) == (made[1].id, True)
        assert (made[0].filename, made[0].mime_type, made[0].size_bytes) == ("0.txt", "text/plain", 15)
        assert files.retrieve_metadata(made[0].id) == made[0]
        assert files.download(made[0].id).read() == b"Lamp 0 is blue."
        document: Any = {"type": "document", "source": {"type": "file", "file_id": made[1].id}}
        client.messages.create(model="gpt-4o", max_tokens=9, messages=[{"role": "user", "content": [document]}])
        assert "Lamp 1 is blue." in text_of(upstream.last.body)
        for each in made:
            files.delete(each.id)
        with pytest.raises(anthropic.NotFoundError) as gone:
            files.retrieve_metadata(made[0].id)
        with pytest.raises(anthropic.BadRequestError, match="expires_in_seconds"):
            files.upload(file=("a", b"x"), expires_in_seconds=60)
    told: Any = gone.value.body
    assert (told["type"], told["error"]["type"]) == ("error", "not_found_error")


def test_s14_5_a_file_that_is_uploaded_in_parts(guarded: GatewayProcess, upstream: MockUpstream) -> None:
    """By the SDK's own helper, and by hand in another order; only the file is listed and found."""
    content = bytes(range(256)) * 12_000
    about: Any = {"filename": "a.txt", "bytes": len(content), "mime_type": "text/plain", "purpose": "user_data"}
    with sdk(guarded) as client, sdk(guarded, BOB) as stranger:
        made = client.uploads.upload_file_chunked(
            file=content, filename="a.txt", bytes=len(content), mime_type="text/plain", purpose="user_data",
            part_size=1_000_000, md5=hashlib.md5(content, usedforsecurity=False).hexdigest(),
        )  # fmt: skip
        assert made.file is not None
        assert (made.status, made.file.filename, made.file.bytes) == ("completed", "a.txt", len(content))
        assert client.files.content(made.file.id).content == content
        begun = client.uploads.create(**about, expires_after={"anchor": "created_at", "seconds": 7200})
        assert (begun.status, begun.bytes, begun.expires_at) == ("pending", len(content), begun.created_at + 3600)
        ends = [client.uploads.parts.create(begun.id, data=each).id for each in (content[9:], content[:9])]
        with pytest.raises(openai.NotFoundError) as unknown:
            stranger.uploads.parts.create(begun.id, data=b"x")
        assert unknown.value.param == "upload_id"
        for file_id in (begun.id, ends[0]):
            for ask in (client.files.retrieve, client.files.content, client.files.delete):
                with pytest.raises(openai.NotFoundError):
                    ask(file_id)
        assert [each.id for each in client.files.list()] == [made.file.id]
        for wrong, param in (
            ({"part_ids": ends[:1]}, "part_ids"),
            ({"part_ids": [ends[1], begun.id]}, "part_ids[1]"),
            ({"part_ids": [ends[1], ends[0]], "md5": "0" * 32}, "md5"),
        ):
            with pytest.raises(openai.BadRequestError) as refused:
                client.uploads.complete(begun.id, **cast(Any, wrong))
            assert refused.value.param == param
        ended = client.uploads.complete(begun.id, part_ids=ends[::-1])
        other = ended.file
        assert other is not None
        assert other.expires_at == other.created_at + 7200
        assert client.files.content(other.id).content == content
        again = client.uploads.complete(begun.id, part_ids=ends[::-1])  # as after a lost answer
        assert again.file is not None
        assert (again.file.id, again.model_dump(exclude={"file"})) == (other.id, ended.model_dump(exclude={"file"}))
        for other_words in (
            lambda: client.uploads.complete(begun.id, part_ids=ends),
            lambda: client.uploads.complete(begun.id, part_ids=ends[::-1], md5="0" * 32),
            lambda: client.uploads.parts.create(begun.id, data=b"x"),
            lambda: client.uploads.cancel(begun.id),
        ):
            with pytest.raises(openai.BadRequestError, match="is completed"):
                other_words()
        assert {client.files.delete(each.id).id for each in client.files.list()} == {made.file.id, other.id}
    assert not upstream.requests


def test_s14_5_an_upload_in_parts_takes_no_more_than_its_file_may(guarded: GatewayProcess) -> None:
    """What its parts hold counts, but not beside their file; what is cancelled counts no more."""
    about: Any = {"filename": "a.txt", "mime_type": "text/plain", "purpose": "vision"}
    with sdk(guarded, SMALL) as client:
        begun = client.uploads.create(**about, bytes=700)
        with pytest.raises(openai.APIStatusError) as full:
            client.uploads.parts.create(begun.id, data=b"x" * 1001)
        assert full.value.code == "files_quota_exceeded"
        part_id = client.uploads.parts.create(begun.id, data=b"x" * 700).id
        assert client.uploads.cancel(begun.id).status == "cancelled"
        with pytest.raises(openai.NotFoundError):
            client.uploads.complete(begun.id, part_ids=[part_id])
        begun = client.uploads.create(**about, bytes=1000)
        part_id = client.uploads.parts.create(begun.id, data=b"x" * 1000).id
        made = client.uploads.complete(begun.id, part_ids=[part_id]).file
        assert made is not None
        assert client.files.content(made.id).content == b"x" * 1000
        client.files.delete(made.id)
        again = client.files.create(file=("a.txt", b"x" * 1000), purpose="vision")  # nothing else counts
        client.files.delete(again.id)
    with sdk(guarded) as client:
        with pytest.raises(openai.APIStatusError) as too_large:
            client.uploads.create(**about, bytes=10**15)
        assert (too_large.value.status_code, too_large.value.param) == (413, "bytes")
        for more, param in (
            ({"bytes": 0}, "bytes"),
            ({"bytes": 1, "purpose": "x"}, "purpose"),
            ({"bytes": 1, "filename": ""}, "filename"),
        ):
            with pytest.raises(openai.BadRequestError) as wrong:
                client.uploads.create(**{**about, **more})
            assert wrong.value.param == param


def test_s14_5_a_range_of_a_content(guarded: GatewayProcess) -> None:
    """One range; what is no range, or several, gets the whole, as does one for another state of the file."""
    content = bytes(range(256)) * 12_000
    size = len(content)
    with sdk(guarded) as client, httpx.Client(base_url=guarded.base_url, headers=HEAD, timeout=30) as plain:
        file_id = client.files.create(file=("a.bin", content), purpose="vision").id
        where = f"/files/{file_id}/content"
        for asked, first, last in (
            ("bytes=0-0", 0, 0),
            ("bytes=1048570-1048590", 1_048_570, 1_048_590),
            ("bytes=3000000-", 3_000_000, size - 1),
            ("bytes=-7", size - 7, size - 1),
            (f"bytes=5-{size * 9}", 5, size - 1),
        ):
            answer = plain.get(where, headers={"range": asked})
            assert (answer.status_code, answer.content == content[first : last + 1]) == (206, True), asked
            assert answer.headers["content-range"] == f"bytes {first}-{last}/{size}"
        for asked in (f"bytes={size}-", "bytes=-0"):
            answer = plain.get(where, headers={"range": asked})
            assert (answer.status_code, answer.json()["error"]["code"]) == (416, "range_not_satisfiable")
            assert answer.headers["content-range"] == f"bytes */{size}"
        for more in ({"range": "bytes=0-1,5-6"}, {"range": "bytes=9-2"}, {"range": "lines=1-2"},
                     {"range": "bytes=-"}, {"range": "bytes=0-1", "if-range": '"x"'}):  # fmt: skip
            answer = plain.get(where, headers=more)
            assert (answer.status_code, answer.content == content) == (200, True), more
        client.files.delete(file_id)
        assert plain.get(where, headers={"range": "bytes=0-1"}).status_code == 404


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (part("purpose", b"user_data") + b"--X--\r\n", "file"),
        (part("file", b"abc", "a.txt") + b"--X--\r\n", "purpose"),
        (part("file", b"abc", "a.txt") + part("purpose", b"fun") + b"--X--\r\n", "purpose"),
        (part("file", b"a", "a") + part("file", b"b", "b") + part("purpose", b"vision") + b"--X--\r\n", "file"),
        (part("file", b"abc") + part("purpose", b"vision") + b"--X--\r\n", "file"),
        (part("file", b"abc", "a.txt") + part("purpose", b"vi\xff") + b"--X--\r\n", "purpose"),
        (part("file", b"abc", "a.txt", "X-Bomb: " + "a" * 50_000 + "\r\n") + b"--X--\r\n", "file"),
        (part("purpose", b"x" * 50_000) + b"--X--\r\n", "purpose"),
        (b"".join(part("purpose", b"vision") for _ in range(40)) + b"--X--\r\n", "purpose"),
        (part("file", b"abc", "a.txt") + part("purpose", b"vision"), "file"),  # without its end
        (part("file", b"a", "a") + part("expires_after[seconds]", b"9") + part("purpose", b"vision") + b"--X--\r\n",
         "expires_after[anchor]"),
        (b"\xff\x00nothing of a form", "file"),
        (b"", "file"),
    ],
)  # fmt: skip
def test_s14_5_a_hostile_form_is_a_400_and_leaves_nothing(guarded: GatewayProcess, body: bytes, param: str) -> None:
    with httpx.Client(base_url=guarded.base_url, headers=HEAD, timeout=30) as plain:
        answer = plain.post("/files", content=body, headers=BOUNDARY)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
        assert plain.get("/files").json()["data"] == []


def test_s14_5_what_is_no_form_is_a_400(guarded: GatewayProcess) -> None:
    with httpx.Client(base_url=guarded.base_url, headers=HEAD, timeout=30) as plain:
        for kind in ("application/json", "multipart/form-data", "multipart/form-data; boundary="):
            answer = plain.post("/files", content=b"{}", headers={"content-type": kind})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_form")
        for query in ("limit=0", "limit=10001", "order=up", "after=", "purpose=%00"):
            assert plain.get(f"/files?{query}").status_code == 400
        assert plain.get("/files?after=file-none").status_code == 404
        assert plain.get("/files/%00").status_code == 404


def test_s14_5_a_key_keeps_no_more_than_it_may(guarded: GatewayProcess) -> None:
    with sdk(guarded, SMALL) as client:
        kept = client.files.create(file=("a", b"x" * 900), purpose="user_data")
        with pytest.raises(openai.APIStatusError) as refused:
            client.files.create(file=("b", b"y" * 200), purpose="user_data")
        assert (refused.value.status_code, refused.value.code) == (413, "files_quota_exceeded")
        client.files.delete(kept.id)
        client.files.delete(client.files.create(file=("b", b"y" * 1000), purpose="user_data").id)


def test_s14_5_an_upload_that_breaks_off_leaves_nothing(guarded: GatewayProcess) -> None:
    """The client goes in the middle of its file."""

    def broken() -> Iterator[bytes]:
        yield part("file", b"x" * 3_000_000, "a.bin")[:-2]
        raise RuntimeError("the client is gone")

    with httpx.Client(base_url=guarded.base_url, headers=HEAD, timeout=30) as plain:
        with pytest.raises(RuntimeError, match="gone"):
            plain.post("/files", content=broken(), headers=BOUNDARY)
        assert plain.get("/files").json()["data"] == []


def test_s14_5_a_file_that_is_deleted_while_it_is_sent_breaks_off(start_gateway: GatewayFactory) -> None:
    """A client cannot take its beginning for the whole; in the log it is no fault of the gateway."""
    gateway = start_gateway({"auth": {"keys": KEYS}, "files": {"store": "database"}})
    with httpx.Client(base_url=gateway.base_url, headers=HEAD, timeout=30) as plain, sdk(gateway) as client:
        made = client.files.create(file=("a.bin", b"x" * 24_000_000), purpose="vision")
        with plain.stream("GET", f"/files/{made.id}/content") as answer:
            pieces = answer.iter_raw()
            next(pieces)
            client.files.delete(made.id)
            with pytest.raises(httpx.RemoteProtocolError):
                list(pieces)
        wait_until(lambda: "storage_unavailable" in gateway.log_text(), "the log tells the reason")
        assert "request_failed" not in gateway.log_text()


def test_s14_5_a_killed_upload_is_no_file(start_gateway: GatewayFactory) -> None:
    """SIGKILL in the middle of an upload: no file, and the next one is kept."""
    gateway = start_gateway({"auth": {"keys": KEYS}})

    def killed() -> Iterator[bytes]:
        yield part("purpose", b"vision") + part("file", b"x" * 3_000_000, "a.bin")[:-2]
        gateway.kill9()
        yield b"more"

    with httpx.Client(base_url=gateway.base_url, headers=HEAD, timeout=30) as plain, pytest.raises(httpx.HTTPError):
        plain.post("/files", content=killed(), headers=BOUNDARY)
    gateway.start()
    with sdk(gateway) as client:
        assert list(client.files.list()) == []
        made = client.files.create(file=("a", b"after"), purpose="vision")
        assert client.files.content(made.id).content == b"after"


def test_s14_5_an_upload_is_read_behind_its_answer(guarded: GatewayProcess, upstream: MockUpstream) -> None:
    """§14.5: `wait_for_processing` returns once it was read; what cannot be read says why; what is none is done."""
    locked = locked_pdf(["a"], modern=True)
    with sdk(guarded) as client:
        made = client.files.create(file=("a.docx", docx(["Lamp 3 is kept by Ines."])), purpose="user_data")
        spoilt = client.files.create(file=("a.pdf", locked), purpose="assistants")
        done = client.files.wait_for_processing(made.id, poll_interval=0.05)
        assert (done.status, done.to_dict()["progress"]) == ("processed", 1.0)
        failed = client.files.wait_for_processing(spoilt.id, poll_interval=0.05)
        assert failed.status == "error"
        assert "password" in str(failed.status_details)
        for name, content, purpose in (
            ("a.jsonl", b"{}", "batch"),
            ("a.png", b"\x89PNG\r\n\x1a\n\x00", "user_data"),
            ("scan.docx", docx(["x"]), "vision"),
        ):
            other = client.files.create(file=(name, content), purpose=purpose)  # type: ignore[arg-type]
            assert other.status == "processed"
            client.files.delete(other.id)
        before = cached_documents(guarded)
        body = {"file": {"file_id": made.id}, "type": "file"}
        client.chat.completions.create(model="gpt-4o", messages=[user([body, {"type": "text", "text": "Who?"}])])
        assert "Ines" in text_of(upstream.last.body)
        again = {"attachments": [{"file_id": made.id}]}
        client.chat.completions.create(model="gpt-4o", messages=[user("Who?")], extra_body=again)
        assert "Ines" in text_of(upstream.last.body)
        after = cached_documents(guarded)
        assert (after["misses"] - before["misses"], after["hits"] - before["hits"]) == (0, 2)
        for each in (made, spoilt):
            client.files.delete(each.id)


def test_s4_documents_that_a_message_names_by_id_are_told_apart_by_their_names(
    guarded: GatewayProcess, upstream: MockUpstream
) -> None:
    """I6: also once what was read of them is in the cache, and of one content under two names."""
    with sdk(guarded) as client:
        names = ("plan 2024.md", "plan 2025.md", "copy.md")
        texts = (b"Ann keeps the lamp.", b"Bob keeps the lamp.", b"Ann keeps the lamp.")
        ids = [
            client.files.create(file=(name, text), purpose="user_data").id
            for name, text in zip(names, texts, strict=True)
        ]
        parts: list[Json] = [{"type": "file", "file": {"file_id": each}} for each in ids]
        for _ in range(2):
            client.chat.completions.create(model="gpt-4o", messages=[user([*parts, {"type": "text", "text": "Who?"}])])
            assert upstream.last.body is not None
            told = text_of(upstream.last.body)
            assert re.findall(r'source="file:([^"]*)" title="([^"]*)"', told) == list(zip(ids, names, strict=True))
        for each in ids:
            client.files.delete(each)
