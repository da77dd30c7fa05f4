"""Forms with names that are no UTF-8 (guarantee §14.5)."""

from typing import Any

import pytest

from gateway.api.files.endpoint import UploadForm
from gateway.core.errors import InvalidRequest

FORM = b'--X\r\nContent-Disposition: form-data; name="file"; filename="\xe4.txt"\r\n\r\nabc\r\n--X--\r\n'


async def test_s14_5_a_name_that_is_no_utf_8_is_told_plainly() -> None:

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": FORM}

    scope = {"type": "http", "headers": [(b"content-type", b"multipart/form-data; boundary=X")]}
    with pytest.raises(InvalidRequest) as raised:
        [piece async for piece in UploadForm(scope, receive, 1000).pieces()]
    assert raised.value.param == "file"
    assert "must be UTF-8" in raised.value.message
    assert "codec" not in raised.value.message
