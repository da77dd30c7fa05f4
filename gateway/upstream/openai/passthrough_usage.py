"""What the bodies of a relayed call tell of it: who asks which model for what, and what it took (guarantee §13.8)."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any

from gateway.core import jsons
from gateway.upstream.openai.body_sampler import BodySample, SampledMembers, from_end, last_events

LAST_EVENT = b"[DONE]"
OF_AN_EVENT = (1, 2)
"""How deep `usage` stands in an event: by itself, or in its `response`."""
FIELD = re.compile(
    rb'content-disposition:[^\r\n]{0,200}\bname="?(model|user|n)"?(?=[;\r\n])[^\r\n]{0,200}\r\n'
    rb"(?:[^\r\n]{1,200}\r\n){0,8}\r\n([^\r\n]{1,512})\r\n",
    re.IGNORECASE,
)
"""A field of a form that has one short line."""
FIELDS = ("model", "user", "safety_identifier", "n")
"""What is looked for in a request that is too long to be kept."""
NAMED = ("id", "model", "service_tier")
"""What an answer says of itself."""
NAME_CHARS = 256
ENDS = (".completed", ".incomplete", ".failed", ".done")
"""How the type of an event ends that may be the last one of its answer."""


@dataclass(frozen=True, slots=True)
class PassthroughRequest:
    """A request: the members or fields that could be read; `is_whole`: these are all that it has."""

    fields: dict[str, Any]
    is_whole: bool

    @property
    def model(self) -> str | None:
        """The model that it names."""
        name = self.fields.get("model")
        return name if isinstance(name, str) and name else None


@dataclass(frozen=True, slots=True)
class PassthroughUsage:
    """An answer: its usage, None where it does not say; `named`: what it says of `NAMED`; `is_ended`: its last event
    came, whatever its connection did then; `is_pending`: the model goes on behind it."""

    usage: dict[str, Any] | None = None
    _: KW_ONLY
    named: Mapping[str, str] = field(default_factory=dict)
    is_ended: bool = False
    is_pending: bool = False


def asked(glimpse: BodySample, *, form: bool) -> PassthroughRequest:
    """What a request says; `form`: it is a multipart form, of which files are no fields."""
    if form:
        found = [*FIELD.finditer(glimpse.head), *FIELD.finditer(glimpse.tail)]
        named = {match.group(1).decode().lower(): match.group(2).decode("utf-8", "replace") for match in found}
        return PassthroughRequest(named, is_whole=False)
    members = SampledMembers(glimpse)
    if members.all is not None:
        return PassthroughRequest(members.all, is_whole=True)
    return PassthroughRequest({name: members.get(name) for name in FIELDS}, is_whole=False)


def told(glimpse: BodySample, *, stream: bool) -> PassthroughUsage:
    """What an answer says, from its end if it is a stream."""
    if stream:
        return _of_events(glimpse)
    members = SampledMembers(glimpse)
    usage, status = members.get("usage"), members.get("status")
    named = _named(members.get)
    pending = status in ("queued", "in_progress")
    return PassthroughUsage(usage if isinstance(usage, dict) else None, named=named, is_pending=pending)


def texts(glimpse: BodySample, *, stream: bool) -> tuple[list[str], float] | None:
    """The texts that an answer brought, and how many times as many there are: of a long stream its end stands for all.
    None where they cannot be read."""
    if not stream:
        found = SampledMembers(glimpse).all
        return (list(_said(found)), 1.0) if found is not None else None
    values = [value for event in last_events(glimpse) if (value := _object(event)) is not None]
    said = [text for value in reversed(values) for text in _said(value)]
    return said, max(1.0, glimpse.size / max(1, len(glimpse.tail)))


def _of_events(glimpse: BodySample) -> PassthroughUsage:
    ended, first = False, True
    for event in last_events(glimpse):
        if event == LAST_EVENT:
            ended, first = True, False
            continue
        found = _told_by(event) if b'"usage"' in event else None
        ended = ended or (first and found is not None and found.is_ended)
        if found is not None:
            return replace(found, is_ended=ended)
        first = False
    return PassthroughUsage(is_ended=ended)


def _told_by(event: bytes) -> PassthroughUsage | None:
    """What an event says that has a usage; it may lack its beginning."""
    value = _object(event)
    get: Callable[[str], Any]
    if value is None:
        depth = next((each for each in OF_AN_EVENT if isinstance(from_end(event, "usage", (each,)), dict)), 0)
        get, kind = partial(_last_member, event, (depth,)), from_end(event, "type", (1,))
    else:
        inner = value.get("response")
        holder = value if isinstance(value.get("usage"), dict) or not isinstance(inner, dict) else inner
        get, kind = holder.get, value.get("type")
    usage = get("usage")
    if not isinstance(usage, dict):
        return None
    return PassthroughUsage(usage, named=_named(get), is_ended=str(kind).endswith(ENDS))


def _last_member(event: bytes, depths: tuple[int, ...], name: str) -> Any:
    return from_end(event, name, depths)


def _named(get: Callable[[str], Any]) -> dict[str, str]:
    found = {name: get(name) for name in NAMED}
    return {name: value[:NAME_CHARS] for name, value in found.items() if isinstance(value, str) and value}


def _object(event: bytes) -> dict[str, Any] | None:
    try:
        value = jsons.loads(event)
    except jsons.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _said(value: dict[str, Any]) -> Iterator[str]:
    """The texts of an answer, or of an event of one: of completions and of responses."""
    for choice in _objects(value.get("choices")):
        yield from _strings(choice.get("text"))
    if str(value.get("type")).endswith(".delta"):
        yield from _strings(value.get("delta"))
    for item in _objects(value.get("output")):
        yield from _strings(item.get("arguments"), item.get("input"))
        for part in (*_objects(item.get("content")), *_objects(item.get("summary"))):
            yield from _strings(part.get("text"), part.get("refusal"))


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _strings(*values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str) and value]
