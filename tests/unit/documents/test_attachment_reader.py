"""What is attached to a request becomes a text, or an error that names the field (guarantee §2)."""

import base64
from typing import Any

import pytest

from gateway.core.clock import SystemClock
from gateway.core.errors import GatewayError, InvalidRequest, NotFound
from gateway.core.types.artifacts import RequestAttachment
from gateway.core.types.chat import RequestCaller, StoredFile
from gateway.documents.file_reader import AttachmentReader, FileReader
from gateway.storage.cache.memory_cache import MemoryCache
from tests.unit.making import chat, user

PAGE = "<!doctype html><html><body><p>Ines &amp; Ada splice.</p></body></html>"
NOTES = "Bea keeps the lamp."


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class OneFile:
    """Holds the file `file-1`, kept here or upstream (adapter of `core.ports.documents.FileStore`)."""

    def __init__(self, *, own: bool) -> None:
        self._own = own

    def keeps(self, caller: RequestCaller) -> bool:
        return self._own

    async def name(self, file_id: str, caller: RequestCaller) -> str:
        return (await self.fetch(file_id, caller)).name

    async def fetch(self, file_id: str, caller: RequestCaller) -> StoredFile:
        if file_id != "file-1":
            raise NotFound("No such file.")
        return StoredFile("notes.txt", "text/plain", NOTES.encode(), own=self._own)


async def read(*attached: dict[str, Any], own: bool = False) -> tuple[RequestAttachment, ...]:
    reader = AttachmentReader(OneFile(own=own), FileReader(MemoryCache(2**16, SystemClock()), 60.0))
    attachments = tuple(RequestAttachment(**each) for each in attached)
    return (await reader.with_contents(chat([user("q")], attachments=attachments))).attachments


@pytest.mark.parametrize(
    ("attached", "content", "title"),
    [
        ({"content": NOTES}, NOTES, None),
        ({"content": NOTES, "filename": "a.txt"}, NOTES, "a.txt"),
        ({"content": NOTES, "filename": "a.txt", "title": "Rota"}, NOTES, "Rota"),
        ({"content": PAGE, "filename": "a.html"}, "Ines & Ada splice.", "a.html"),
        ({"file_data": base64_of(NOTES), "filename": "a.txt"}, NOTES, "a.txt"),
        ({"file_data": f"data:text/plain;base64,{base64_of(NOTES)}", "title": "Rota"}, NOTES, "Rota"),
        ({"file_id": "file-1"}, NOTES, "notes.txt"),
        ({"attachment_id": "file-1", "title": "Rota"}, NOTES, "Rota"),
    ],
)
async def test_each_becomes_a_text(attached: dict[str, Any], content: str, title: str | None) -> None:
    (found,) = await read(attached)
    assert (found.content, found.title, found.file_data) == (content, title, None)


@pytest.mark.parametrize("own", [True, False])
async def test_the_id_stays_of_what_is_kept_here(own: bool) -> None:
    (found,) = await read({"file_id": "file-1"}, own=own)
    assert found.file_id == ("file-1" if own else None)


@pytest.mark.parametrize(
    ("attached", "kind", "param", "says"),
    [
        ({"attachment_id": "file-2"}, NotFound, "attachments[1].attachment_id", "No such file."),
        ({"file_id": "file-2"}, NotFound, "attachments[1].file_id", "No such file."),
        ({"file_data": "%"}, InvalidRequest, "attachments[1].file_data", "its data is not base64"),
        ({"file_data": base64_of(" ")}, InvalidRequest, "attachments[1].file_data", "it has no text"),
        ({"content": "data:text/plain;base64,%"}, InvalidRequest, "attachments[1].content", "its data is not base64"),
    ],
)
async def test_an_error_names_the_field(
    attached: dict[str, Any], kind: type[GatewayError], param: str, says: str
) -> None:
    with pytest.raises(kind, match=says) as caught:
        await read({"content": NOTES}, attached)
    assert caught.value.param == param


async def test_what_cannot_be_read_is_named_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.documents.test_attachment_reader.NOTES", "\x00\x01\x02" * 9)
    with pytest.raises(InvalidRequest, match=r"^The file 'file-1' of attachments\[0\]\.file_id cannot be read: "):
        await read({"file_id": "file-1"})
