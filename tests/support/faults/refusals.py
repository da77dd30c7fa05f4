"""Errors that upstreams tell of, wherever they stand and in whatever shape; and answers of odd shapes."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from tests.support.faults.overflows import OVERFLOWS
from tests.support.faults.table import INVALID, Fault, Steps, Table
from tests.support.faults.words import Words
from tests.support.raw import LAST, SSE_HEAD, End, event, whole

STATUSES = (
    *(429, 400, 402, 404, 405, 406, 408, 409, 410, 413, 415, 418, 421, 422, 424, 425, 426, 428, 431, 451, 460, 499),
    *(500, 501, 502, 503, 504, 507, 508, 511, 520, 521, 522, 523, 524, 525, 526, 527, 529, 530, 598, 599),
)
NO_STATUS = (600, 700, 999)
"""Beyond what HTTP has."""


def refused(status: int, body: bytes, **headers: str) -> Fault:
    """An error's status with that body."""
    return Fault(steps=(whole(body, status, **headers), End.KEEP), status=status)


def statuses(words: Words) -> Table:
    """Status, message and body are kept, nothing is tried again, and it costs nothing."""
    found: Table = {}
    for status in STATUSES:
        said = f"no {status}"
        original = words.error("overloaded_error", said, None)
        found[f"status {status}"] = replace(
            refused(status, json.dumps(original).encode()), said=said, original=original
        )
    for status in NO_STATUS:
        found[f"status {status}"] = Fault(steps=(whole(b"{}", status), End.KEEP), code=INVALID, anyhow=True)
    return found


BODIES: dict[str, bytes] = {
    "HTML": b"<html><h1>502 Bad Gateway</h1><hr>nginx/1.25</html>",
    "plain text": b"upstream connect error or disconnect/reset before headers",
    "nothing": b"",
    "a list": b"[1, 2]",
    "a string": b'"down"',
    "null": b"null",
    "a number": b"7",
    "an object of nothing": b"{}",
    "half of JSON": b'{"error": {"message": "do',
    "not UTF-8": b"\xff\xfe\xfd",
    "a zero byte": b"down\0down",
    "half a pair": b'{"error": {"message": "\\ud800 down"}}',
    "an error of null": b'{"error": null}',
    "an error of a number": b'{"error": 7}',
    "an error of a list": b'{"error": ["down"]}',
    "an error whose message is none": b'{"error": {"message": null, "type": null, "code": null}}',
    "an error whose message is an object": b'{"error": {"message": {"a": 1}, "type": [], "code": {}}}',
    "an error whose type is an object": b'{"type": "error", "error": {"type": {}, "message": {}}}',
    "a detail alone": b'{"detail": "down"}',
    "details in a list": b'{"detail": [{"loc": ["body", "x"], "msg": "down"}]}',
    "a number of 5,000 digits": b'{"error": {"message": "down", "code": ' + b"9" * 5000 + b"}}",
    "a thousand brackets": b"[" * 100_000,
    "line ends in its message": json.dumps({"error": {"message": "a\r\n\r\ndata: [DONE]\n\nb"}}).encode(),
    "a megabyte of message": json.dumps({"error": {"message": "y" * 2**20}}).encode(),
}


def bodies(words: Words) -> Table:
    """Of an error that is told in no shape at all, the status is kept."""
    return {f"{name} at {status}": refused(status, body) for name, body in BODIES.items() for status in (500, 429)}


def _in_days(days: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(days=days), usegmt=True)


SANE = {text: text for text in ("7", "0", "1.5", "86400")} | {"soon": _in_days(0.01), "yesterday": _in_days(-1)}
INSANE = {
    text: text for text in ("-1", "nan", "inf", "1e308", "1e3", "99999999", "in a while", "", "0x10", "7 days", "٧")
}
INSANE |= {"in years": _in_days(4000), "no day": "Wed, 99 Oct 2026 07:28:00 GMT"}
INSANE |= {"no time": "Wed, 21 Oct 2026 27:28:00 GMT", "no hurry": "Wed, 21 Oct 9999 07:28:00 GMT"}


def waits(words: Words) -> Table:
    """Only a sane wait is relayed: seconds or a date within seven days."""
    original = words.error("rate_limit_error", "slow down", "rate_limit_exceeded")
    found: Table = {}
    for name, value in {**SANE, **INSANE}.items():
        fault = refused(429, json.dumps(original).encode(), retry_after=value.encode().decode("latin-1"))
        kept = {"retry-after": value if name in SANE else None}
        found[f"wait: {name}"] = replace(fault, said="slow down", headers=kept, streamed=(name in SANE,))
    unsaid = {"set-cookie": "a=b", "location": "http://elsewhere", "x-internal": "10.0.0.1"}
    fault = refused(429, json.dumps(original).encode(), **{k.replace("-", "_"): v for k, v in unsaid.items()})
    found["headers of its own"] = replace(fault, said="slow down", headers=dict.fromkeys(unsaid))
    return found


def overflows(words: Words) -> Table:
    """Each provider's words for a prompt that is too long are the client's API's."""
    found: Table = {}
    for name, (status, original, _) in OVERFLOWS.items():
        body = original.encode() if isinstance(original, str) else json.dumps(original).encode()
        fault = Fault(steps=(whole(body, status), End.KEEP), status=400, code="context_length_exceeded")
        found[f"overflow: {name}"] = replace(fault, original=original)
    return found


KEY = "Incorrect API key provided: sk-upstream"


def keys(words: Words) -> Table:
    """The operator's key is never told: 401 and 403 are a 502 without the body, and in others it is crossed out."""
    refusal = json.dumps(words.error("authentication_error", KEY, 401)).encode()
    found: Table = {}
    for status in (401, 403):
        found[f"status {status}"] = Fault(steps=(whole(refusal, status), End.KEEP), code="upstream_auth")
    found["401 in a good answer"] = Fault(steps=(whole(refusal), End.KEEP), code="upstream_auth")
    for status in (400, 500, 429):
        body = words.error("x", "the key sk-upstream may not do this", None)
        fault = refused(status, json.dumps(body).encode())
        found[f"a key at {status}"] = replace(fault, said="the key *** may not do this")
    found["a key in HTML"] = refused(500, b"<html>sk-upstream</html>")
    found["a key in a redirect"] = Fault(
        steps=(whole(b"", 307, location="http://elsewhere.invalid/?key=sk-upstream"), End.KEEP),
        code=INVALID,
        charged=True,
    )
    return found


def inside(words: Words) -> Table:
    """An error in an answer of a good status, plain or as a stream's first event: the status that it names, else 502
    or that of its kind."""
    told: dict[str, tuple[str, str, Any]] = {
        "an error of none known": ("odd", "strange things", None),
        "a limit": ("rate_limit_error", "slow down", "rate_limit_exceeded"),
        "too much to do": ("overloaded_error", "Overloaded", None),
        "a fault": ("api_error", "Internal server error", None),
        "a number": ("x", "provider down", 503),
        "a number as text": ("x", "provider down", "503"),
    }
    found: Table = {}
    for name, (kind, said, code) in told.items():
        body = words.error(kind, said, code)
        plain = (whole(json.dumps(body).encode()), End.KEEP)
        found[f"{name}, in one piece"] = Fault(steps=plain, streamed=(False,), status=0, said=said)
        first = (SSE_HEAD, event(words.error_event(kind, said, code)), LAST, End.KEEP)
        found[f"{name}, as the first event"] = Fault(steps=first, streamed=(True,), status=0, said=said)
        late = (words.begun, event(words.error_event(kind, said, code)), LAST, End.KEEP)
        found[f"{name}, in the middle"] = Fault(
            steps=late, streamed=(True,), status=200, said=said, code="", charged=True
        )
    return found


ODD: list[Any] = [None, True, -1, 10**30, "", "x", "\0", [], {}, [1], [{}], {"a": [None]}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, from the outermost in."""
    if path:
        yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from places(member, (*path, key))


def changed(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """The document with `odd` at that place."""
    if not path:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], odd)
    return copy


def shapes(words: Words) -> Table:
    """An answer, or an event of a stream, with each of its fields of each odd kind, or without it: an answer or a 502,
    whichever; never a fault of the gateway's own."""
    found: Table = {}
    for path in places(words.answer):
        for odd in ODD:
            body = json.dumps(changed(words.answer, path, odd)).encode()
            fault = Fault(steps=(whole(body), End.KEEP), streamed=(False,), code=INVALID, anyhow=True)
            found[f"{_named(path)} = {odd!r}"] = fault
    for number, each in enumerate(words.events):
        for path in places(each):
            for odd in ODD:
                events = [*words.events]
                events[number] = changed(each, path, odd)
                steps: Steps = (SSE_HEAD, *map(event, events), LAST, End.KEEP)
                fault = Fault(steps=steps, streamed=(True,), code=INVALID, anyhow=True)
                found[f"event {number}: {_named(path)} = {odd!r}"] = fault
    return found


def _named(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


TOLD: dict[str, Callable[[Words], Table]] = {
    "statuses": statuses,
    "bodies of errors": bodies,
    "waits": waits,
    "overflows": overflows,
    "keys": keys,
    "errors inside": inside,
    "shapes": shapes,
}
"""By class. The first of each class stands for all of it in a selection."""
