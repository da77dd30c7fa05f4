"""Names of files in forms, in the encodings that clients send (guarantee §14.5)."""

from typing import Any

import pytest

from gateway.api.files.endpoint import UploadForm
from gateway.core.errors import InvalidRequest

FORM = b'--X\r\nContent-Disposition: form-data; name="file"; %s\r\n\r\nabc\r\n'
PURPOSE = b'--X\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--X--\r\n'


def form(name: bytes) -> UploadForm:

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": FORM.replace(b"%s", name) + PURPOSE}

    scope = {"type": "http", "headers": [(b"content-type", b"multipart/form-data; boundary=X")]}
    return UploadForm(scope, receive, 1000)


async def test_s14_5_a_name_that_is_no_utf_8_is_told_plainly() -> None:
    with pytest.raises(InvalidRequest) as raised:
        [piece async for piece in form(b'filename="\xe4.txt"').pieces()]
    assert raised.value.param == "file"
    assert "must be UTF-8" in raised.value.message
    assert "codec" not in raised.value.message


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (b"filename=\"=?utf-8?B?w6QubWQ=?=\"; filename*=utf-8''%C3%A4.md", "ä.md"),
        (b"filename*=UTF-8'de'%C3%A4.md", "ä.md"),
        (b"filename*=iso-8859-1''%E4.md", "ä.md"),
        (b"filename*=utf-8''%FF.md", "\ufffd.md"),
        (b'filename="a filename*=b; c.md"', "a filename*=b; c.md"),
        (b"filename=a.md; filename*=utf-8''b.md; filename*0*=c", "a.md"),
        (b'filename="100%22.md"', '100".md'),
    ],
)
async def test_s14_5_a_name_is_read_in_the_forms_that_clients_write(sent: bytes, name: str) -> None:
    upload = form(sent)
    assert [piece async for piece in upload.pieces()] == [b"abc"]
    assert upload.said().name == name
