"""An import is checked at the edge: whatever is wrong with the document, a 400 names the field (guarantee §7)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.api.conversations.import_check import parse_export
from gateway.core import jsons
from gateway.core.errors import InvalidRequest
from tests.integration.exports import Json, bare, user_message


def good() -> Json:
    """Three messages in a row, with one of everything."""
    messages = [user_message(0, None, instructions=0), user_message(1, 0), user_message(2, 1)]
    inner = {"title": None, "label": None, "source": "attachment:0:x", "content": "text", "attachment_type": "document"}
    attached = {
        "number": 0,
        "artifact_id": "art_1",
        "document": inner,
        "said": "00ff",
        "created_at": "2026-01-31T12:00Z",
    }
    instructions = [[{"role": "system", "content": "be brief"}]]
    more = {"attachments": [attached], "requests": [{"id": "req_1"}], "sessions": ["s"]}
    return bare(messages, instructions=instructions, **more)


def put(path: str, value: Any) -> Callable[[Json], None]:
    """Puts a value at a place such as `messages.3.parent`; `...` takes the field away."""

    def change(document: Any) -> None:
        *names, last = [int(name) if name.isdigit() else name for name in path.split(".")]
        for name in names:
            document = document[name]
        if value is ...:
            del document[last]
        else:
            document[last] = value

    return change


NUL = "a\x00b"
CALL = {"id": 5, "function": {"name": "f", "arguments": "{}"}}
THING: Json = {
    "type": "email",
    "thing_id": "1",
    "name": "x",
    "aliases": [],
    "action": "mentioned",
    "times": 1,
    "created_at": "2026-01-31T12:00Z",
    "mentioned_at": "2026-01-31T12:00Z",
}
EVENT = {"type": "tool_step", "step": "first"}
CASES = [
    ("object", put("object", "conversation")),
    ("object", put("object", ...)),
    ("attachments[0].number", put("attachments.0.number", 2**31 - 2)),
    ("things[0].times", put("things", [{**THING, "times": 2**31 - 1}])),
    ("version", put("version", 2)),
    ("version", put("version", True)),
    ("version", put("version", None)),
    ("created_at", put("created_at", "yesterday")),
    ("created_at", put("created_at", "2026-01-31T12:00:00")),
    ("created_at", put("created_at", "0001-01-01T00:00:00+14:00")),
    ("created_at", put("created_at", 5)),
    ("metadata", put("metadata", {"k": 5})),
    ("metadata", put("metadata", {str(n): "v" for n in range(17)})),
    ("metadata", put("metadata", [])),
    ("head", put("head", "msg_9")),
    ("head", put("head", 0)),
    ("head", put("head", ["msg_0"])),
    ("head", put("messages.2.status", "failed")),
    ("instructions_in_force", put("instructions_in_force", 1)),
    ("instructions_in_force", put("instructions_in_force", -1)),
    ("sessions", put("sessions", {})),
    ("sessions[0]", put("sessions.0", "")),
    ("sessions[0]", put("sessions.0", NUL)),
    ("sessions[0]", put("sessions.0", "x" * 257)),
    ("instructions", put("instructions", ...)),
    ("instructions[0]", put("instructions.0", [])),
    ("instructions[0][0].role", put("instructions.0.0.role", "user")),
    ("instructions[0][0].content", put("instructions.0.0.content", 5)),
    ("messages", put("messages", {"0": {}})),
    ("messages", put("messages", ...)),
    ("messages", put("messages", [{}] * 100_001)),
    ("messages[1]", put("messages.1", None)),
    ("messages[1].id", put("messages.1.id", ...)),
    ("messages[1].id", put("messages.1.id", "msg_0")),
    ("messages[1].id", put("messages.1.id", NUL)),
    ("messages[1].parent", put("messages.1.parent", "msg_9")),
    ("messages[1].parent", put("messages.1.parent", "msg_1")),
    ("messages[0].parent", put("messages.0.parent", "msg_2")),
    ("messages[1].parent", put("messages.1.parent", {"id": "msg_0"})),
    ("messages[2].parent", put("messages.1.status", "failed")),
    ("messages[1].sequence_number", put("messages.1.sequence_number", -1)),
    ("messages[1].sequence_number", put("messages.1.sequence_number", 2**31)),
    ("messages[1].sequence_number", put("messages.1.sequence_number", 1.0)),
    ("messages[1].sequence_number", put("messages.1.sequence_number", True)),
    ("messages[2].parent", put("messages.2.sequence_number", 1)),
    ("messages[1].role", put("messages.1.role", "assistant")),
    ("messages[1].body.role", put("messages.1.body.role", "wizard")),
    ("messages[1].body", put("messages.1.body", "hello")),
    ("messages[1].body.content", put("messages.1.body.content", {"a": 1})),
    ("messages[1].body.tool_calls[0].id", put("messages.1.body", {"role": "assistant", "tool_calls": [CALL]})),
    ("messages[1].status", put("messages.1.status", "done")),
    ("messages[1].status", put("messages.1.status", ["complete"])),
    ("messages[1].rendered", put("messages.1.rendered", {"role": "assistant", "content": "x"})),
    ("messages[1].rendered", put("messages.1.rendered", "x")),
    ("messages[1].standing[0]", put("messages.1.standing", [5])),
    ("messages[1].reasoning_events[0]", put("messages.1.reasoning_events", [5])),
    ("messages[1].reasoning_events", put("messages.1.reasoning_events", [EVENT])),
    ("messages[1].reasoning_events", put("messages.1.reasoning_events", [{"type": "tool_step", "called_at": "x"}])),
    ("messages[1].instructions", put("messages.1.instructions", 1)),
    ("messages[1].request", put("messages.1.request", NUL)),
    ("messages[1].request", put("messages.1.request", "")),
    ("messages[1].choice", put("messages.1.choice", 2**40)),
    ("messages[1].origin", put("messages.1.origin", NUL)),
    ("messages[1].restored", put("messages.1.restored", 1)),
    ("messages[1].created_at", put("messages.1.created_at", None)),
    ("attachments[0].number", put("attachments.0.number", -1)),
    ("attachments[0].number", put("attachments.0.number", 2**31 - 1)),
    ("attachments[0].artifact_id", put("attachments.0.artifact_id", "</block>")),
    ("attachments[0].document", put("attachments.0.document", "text")),
    ("attachments[0].document.content", put("attachments.0.document.content", ...)),
    ("attachments[0].document.more", put("attachments.0.document.more", 1)),
    ("attachments[0].said", put("attachments.0.said", "xyz")),
    ("requests[0].id", put("requests.0.id", 5)),
    ("requests[1].id", put("requests", [{"id": "req_1"}, {"id": "req_1"}])),
    ("requests[0]", put("requests.0", [])),
]


def test_the_document_that_the_cases_spoil_is_good() -> None:
    made = parse_export(jsons.dumps(good()))
    assert [each.parent for each in made.messages] == [None, 0, 1]
    assert (made.head, made.sessions, made.attachments[0].said) == (2, ("s",), b"\x00\xff")


@pytest.mark.long
@pytest.mark.parametrize(("param", "change"), CASES, ids=[f"{n}-{param}" for n, (param, _) in enumerate(CASES)])
def test_what_is_wrong_is_named(param: str, change: Callable[[Json], None]) -> None:
    """§7: bad input is a 4xx that names the field."""
    document = good()
    change(document)
    with pytest.raises(InvalidRequest) as raised:
        parse_export(jsons.dumps(document))
    assert (raised.value.param, raised.value.status) == (param, 400)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"null", b"{", b'{"a": NaN}', b"\xff", b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", b"[" * 10**6]
)
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    """§7, however deep."""
    with pytest.raises(InvalidRequest) as raised:
        parse_export(raw)
    assert raised.value.code == "invalid_json"


def test_the_length_of_an_id_is_told_in_characters() -> None:
    """It was told in members, as that of a list."""
    document = good()
    put("messages.0.request", "r" * 65)(document)
    with pytest.raises(InvalidRequest, match=r"^messages\[0\]\.request must have at most 64 characters\.$"):
        parse_export(jsons.dumps(document))


def test_a_byte_order_mark_is_none_of_the_document() -> None:
    """Editors put one in front of a file that they save; the second reading, which keeps all digits, skips it, too."""
    document = good()
    document["requests"][0]["cost"] = 1234.123456789
    assert parse_export(b"\xef\xbb\xbf" + jsons.dumps(document)) == parse_export(jsons.dumps(document))
    for encoding in ("utf-16", "utf-16-be"):  # as Windows' shell writes what a command prints
        text = jsons.dumps_text(document) if encoding == "utf-16" else "\ufeff" + jsons.dumps_text(document)
        assert parse_export(text.encode(encoding)) == parse_export(jsons.dumps(document))


def test_s1_9_half_a_sign_is_mended_in_imports_too() -> None:
    """§1.9, as deep as documents may be nested."""
    deep: Any = "\ud83d"
    for _ in range(jsons.MAX_DEPTH - 2):
        deep = [deep]
    for wrong in ("\ud83d", deep):
        document = good()
        put("messages.0.body", {"role": "user", "content": "a\ud83d", "extra": wrong})(document)
        assert parse_export(json.dumps(document).encode()).messages[0].message.content == "a\ufffd"


def test_frames_of_earlier_versions_are_ignored() -> None:
    """§9: what models were sent is no longer part of an export; whatever a document holds of it, it is read."""
    made = parse_export(jsons.dumps({**good(), "frames": [{"message": 5}]}))
    assert len(made.messages) == 3


def test_branches_from_the_very_beginning_are_fine() -> None:
    """§3.4: a first message that was edited begins a branch of its own."""
    made = parse_export(jsons.dumps(bare([user_message(0, None), user_message(1, None)])))
    assert [each.parent for each in made.messages] == [None, None]
