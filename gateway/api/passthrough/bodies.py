"""Relayed bodies whose `model` is read: JSON and multipart forms, under any content type (guarantee §1).

The gateway sends upstream what it has parsed, serialized again: so an upstream that reads a duplicate member, a second
form field or an odd charset differently cannot be made to serve another model.
"""

import re
import secrets
from contextlib import suppress
from dataclasses import replace
from email.message import Message
from email.utils import collapse_rfc2231_value
from typing import Any

from multipart import (
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
    content_disposition_quote,
    parse_options_header,
)

from gateway.core import errors, jsons
from gateway.core.frozen_records import record
from gateway.core.types.chat import Headers

MODEL = "model"
JSON_TYPE = b"application/json"
FORM = "multipart/form-data"
MAX_MULTIPART_PARTS = 1000
MAX_MODEL_BYTES = 2048
MULTIPART_CONTROL_CHAR = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
PLAIN_ENCODINGS = ("7bit", "8bit", "binary")
Written = tuple[bytes, bytes]
"""A body and its content type."""


@record
class JsonBody:
    fields: dict[str, Any]

    file_bytes = 0

    @property
    def model(self) -> str | None:
        """The model that the body names.
        Raises InvalidRequest: it is no name, or is in a member that only some upstreams read as the model."""
        refuse_odd_spelling(self.fields)
        name = self.fields.get(MODEL)
        if name is not None and not isinstance(name, str):
            raise errors.InvalidRequest("model must be a string.", param=MODEL, code="invalid_value")
        return name

    def written(self, parameters: dict[str, Any], model: str) -> Written:
        """Serializes the body for an upstream that knows the model as `model`; `parameters` are added."""
        return jsons.dumps({**parameters, **self.fields, MODEL: model}), JSON_TYPE


@record
class FormPart:
    """A field of a form, or a file."""

    name: str
    filename: str | None
    content_type: str | None
    content: bytes


@record
class FormBody:
    parts: tuple[FormPart, ...]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that are not files, as texts."""
        return {each.name: each.content.decode("utf-8", "replace") for each in self.parts if each.filename is None}

    @property
    def file_bytes(self) -> int:
        return sum(len(each.content) for each in self.parts if each.filename is not None)

    @property
    def model(self) -> str | None:
        """The model that the form names.
        Raises InvalidRequest: it names several, or names it in a field that only some upstreams read as the model."""
        refuse_odd_spelling(part.name for part in self.parts)
        found = [part for part in self.parts if part.name == MODEL]
        if len(found) > 1 or any(part.filename is not None or len(part.content) > MAX_MODEL_BYTES for part in found):
            raise errors.InvalidRequest("model must be one field of the form.", param=MODEL, code="invalid_value")
        try:
            return found[0].content.decode() if found else None
        except UnicodeDecodeError:
            raise errors.InvalidRequest("model must be UTF-8.", param=MODEL, code="invalid_value") from None

    def written(self, parameters: dict[str, Any], model: str) -> Written:
        """Serializes the form for an upstream that knows the model as `model`, with a new boundary. Adds those of the
        parameters that a form can hold."""
        given = {part.name for part in self.parts}
        added = [
            FormPart(name, None, None, str(value).encode())
            for name, value in parameters.items()
            if name not in given and isinstance(value, str | int | float) and not isinstance(value, bool)
        ]
        parts = [replace(part, content=model.encode()) if part.name == MODEL else part for part in self.parts]
        boundary = secrets.token_hex(16).encode()
        pieces = []
        for part in (*parts, *added):
            pieces += [b"--", boundary, b"\r\n", _head(part), b"\r\n", part.content, b"\r\n"]
        return b"".join((*pieces, b"--", boundary, b"--\r\n")), b"multipart/form-data; boundary=" + boundary


Body = JsonBody | FormBody


def understood(raw: bytes, headers: Headers) -> Body | None:
    """Parses a body as JSON object or multipart form; returns None for any other, and for a compressed one."""
    if any(name == b"content-encoding" and value.strip().lower() not in (b"", b"identity") for name, value in headers):
        return None
    kinds = [value.decode("latin-1") for name, value in headers if name == b"content-type"]
    kind, options = parse_options_header(kinds[0]) if len(kinds) == 1 else ("", {})
    if kind == FORM:
        return _form(raw, options.get("boundary", ""))
    fields = jsons.object_in(raw)
    return None if fields is None else JsonBody(fields)


def refuse_odd_spelling(names: Any) -> None:
    """Raises InvalidRequest: one of the names is `model` in another spelling, which some upstreams read as `model`."""
    odd = next((name for name in names if name != MODEL and name.strip().lower() == MODEL), None)
    if odd is not None:
        raise errors.InvalidRequest(f"{odd!r} must be written 'model'.", param=MODEL, code="invalid_value")


def _form(raw: bytes, boundary: str) -> FormBody | None:
    parts: list[FormPart] = []
    segment: MultipartSegment | None = None
    content: list[bytes] = []
    try:
        with PushMultipartParser(boundary, max_segment_count=MAX_MULTIPART_PARTS, strict=True) as parser:
            for piece in parser.parse(raw):
                if isinstance(piece, MultipartSegment):
                    segment, content = piece, []
                elif piece:
                    content.append(bytes(piece))
                elif segment is not None:
                    parts.append(_part(segment, b"".join(content)))
    except (MultipartError, ValueError):
        return None
    return FormBody(tuple(parts))


def _part(segment: MultipartSegment, content: bytes) -> FormPart:
    """Raises ValueError: the head has control characters, or the content an encoding that hardly any server reads."""
    encoding = segment.header("Content-Transfer-Encoding")
    if encoding and encoding.strip().lower() not in PLAIN_ENCODINGS:
        raise ValueError("an encoded part")
    if any(MULTIPART_CONTROL_CHAR.search(value) for _, value in segment.headerlist):
        raise ValueError("a control character in a header")
    return FormPart(segment.name, file_name(segment), segment.header("Content-Type"), content)


def file_name(segment: MultipartSegment) -> str | None:
    """Returns the name of a part's file; None: it is no file. `filename*` is read first: beside it, .NET's clients send
    a `filename` that is encoded as in mails."""
    disposition = Message()
    disposition["Content-Disposition"] = segment.header("Content-Disposition") or ""
    found: str | None = segment.filename
    with suppress(TypeError, ValueError):  # the library's: numbered beside whole values, bytes that are no UTF-8, a NUL
        options: list[tuple[str, Any]] = disposition.get_params([], "Content-Disposition")
        for name, value in options:
            if name.lower() == "filename" and not isinstance(value, str):
                found = collapse_rfc2231_value(value)
    return found


def _head(part: FormPart) -> bytes:
    named = f"; filename={content_disposition_quote(part.filename)}" if part.filename is not None else ""
    kind = f"Content-Type: {part.content_type}\r\n" if part.content_type else ""
    text = f"Content-Disposition: form-data; name={content_disposition_quote(part.name)}{named}\r\n{kind}"
    return text.encode("utf-8", "surrogateescape")
