"""What is read of bodies that flow by: the right member or none, however they are split (guarantee §13.8)."""

import gzip
import json
import zlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.upstream.http.passthrough import (
    BodySample,
    SampledMembers,
    UnpackingSample,
    asked,
    from_end,
    from_start,
    last_events,
    texts,
    told,
)

TEXT = st.text(st.sampled_from('usage"\\{}[]:, ä\n'), max_size=30) | st.just("usage") | st.just('"usage":{"a":1}')
LEAF = st.none() | st.booleans() | st.integers(-5, 10**12) | TEXT
INNER = st.recursive(
    LEAF, lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXT, each, max_size=3), max_leaves=8
)
USAGE = st.fixed_dictionaries({"prompt_tokens": st.integers(0, 10**6)}, optional={"details": INNER})
OTHERS = st.dictionaries(TEXT.filter(lambda name: name != "usage"), INNER, max_size=5)
CUTS = st.lists(st.integers(0, 3000), max_size=12)


def glimpsed(body: bytes, cuts: Iterable[int] = (), **limits: int) -> BodySample:
    """A body that has passed in pieces."""
    sample = BodySample(**limits)
    places = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    for start, end in pairwise(places):
        sample.add(body[start:end])
    return sample


def around(before: dict[str, Any], usage: Any, after: dict[str, Any], indent: int | None = None) -> bytes:
    """An object with its usage between other members."""
    names = {**{f"a{name}": value for name, value in before.items()}, "usage": usage}
    return json.dumps({**names, **{f"z{name}": value for name, value in after.items()}}, indent=indent).encode()


@given(OTHERS, USAGE, OTHERS, CUTS, st.sampled_from([None, 2]))
def test_a_short_body_tells_all(
    before: dict[str, Any], usage: dict[str, Any], after: dict[str, Any], cuts: list[int], indent: int | None
) -> None:
    body = around(before, usage, after, indent)
    sample = glimpsed(body, cuts)
    assert (sample.whole, sample.size) == (body, len(body))
    assert SampledMembers(sample).get("usage") == usage


@given(OTHERS, USAGE, OTHERS, CUTS, st.integers(1, 200), st.integers(0, 100))
def test_a_long_body_tells_the_right_member_or_none(
    before: dict[str, Any], usage: dict[str, Any], after: dict[str, Any], cuts: list[int], end: int, more: int
) -> None:
    """Never another one of that name, nor a part of a text; and always one that stands in an end."""
    body = around(before, usage, after)
    sample = glimpsed(body, cuts, whole=end + more, end=end)
    assert sample.size == len(body)
    assert body.startswith(sample.head)
    assert body.endswith(sample.tail)
    assert min(end, len(body)) <= len(sample.tail) <= max(end + more, len(body) if sample.whole is not None else 0)
    found = SampledMembers(sample).get("usage")
    assert found in (usage, None)
    written = json.dumps({"usage": usage})[1:-1].encode()
    if len(body) - body.index(written) < end or body.index(written) + len(written) < min(end, len(sample.head)):
        assert found == usage


@given(st.binary(max_size=300), st.sampled_from(["usage", "a"]))
def test_bytes_of_any_kind_tell_nothing_wrong(body: bytes, name: str) -> None:
    """And raise nothing."""
    for text in (body, b'{"usage":' + body, body + b'"usage":{}}', b'data: {"usage":{' + body):
        from_end(text, name, (1, 2))
        from_start(text, name)
        for stream in (False, True):
            told(glimpsed(text), stream=stream)
            texts(glimpsed(text), stream=stream)
        asked(glimpsed(text), form=True)


def test_hostile_texts_take_no_long_time() -> None:
    """Each text is gone over once: thousands of quotes that are escaped, or of brackets, or of names."""
    for piece in (b'\\"', b'"', b"[", b'"usage"', b'"usage":', b'"usage":{', b"\\"):
        text = piece * (2**16 // len(piece))
        from_end(text, "usage", (1,))
        from_start(b"{" + text, "usage")
        told(glimpsed(b"data: " + text), stream=True)
    for piece in (b"content-disposition:", b'content-disposition: name="model"\r\n', b"\r\nx: y"):
        asked(glimpsed(piece * (2**16 // len(piece))), form=True)


EVENT = {"type": "response.completed", "response": {"id": "resp_1", "usage": {"input_tokens": 3}, "metadata": {}}}


@given(CUTS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.integers(0, 900), st.booleans())
@example([246], b"\n", 35, False)  # what is left of it begins like a comment
def test_the_last_event_of_a_stream(cuts: list[int], end: bytes, padding: int, done: bool) -> None:
    """Also where its beginning is gone, whatever the lines end with, and with comments behind it."""
    text = {"type": "output_text", "text": '"usage": {' * padding}
    event = json.dumps({**EVENT, "response": {"output": [text], **EVENT["response"]}})  # type: ignore[dict-item]
    lines = ["event: response.created", 'data: {"response":{"usage":null}}', "", f"data: {event}", "", ": ping", ""]
    stream = end.join(line.encode() for line in [*lines, *(["data: [DONE]", ""] if done else [])])
    found = told(glimpsed(stream, cuts, whole=600, end=400), stream=True)
    assert (found.usage, found.named) == ({"input_tokens": 3}, {"id": "resp_1"})
    assert found.is_ended or padding * 10 > 200  # the type of an event may be in what is gone


def test_a_stream_that_goes_on_has_not_ended() -> None:
    """Usage with every chunk is known as far as it came."""
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    chunk = b"data: %s\n\n" % json.dumps({"choices": [{"text": "a", "usage": {"x": 1}}], "usage": usage}).encode()
    found = told(glimpsed(chunk * 3), stream=True)
    assert (found.usage, found.is_ended) == (usage, False)
    assert told(glimpsed(chunk + b"data: [DONE]\n\n"), stream=True).is_ended
    nothing = told(glimpsed(b'data: {"choices": [{"text": "a"}], "usage": null}\n\n'), stream=True)
    assert (nothing.usage, nothing.is_ended) == (None, False)


def test_texts_of_a_long_stream_stand_for_all_of_it() -> None:
    delta = b'data: {"type": "response.output_text.delta", "delta": "word "}\n\n'
    said, times = texts(glimpsed(delta * 100, range(0, 9000, 64)), stream=True) or ([], 0.0)
    assert (said, times) == (["word "] * 100, 1.0)
    said, times = texts(glimpsed(delta * 100, range(0, 9000, 64), whole=2000, end=1000), stream=True) or ([], 0.0)
    assert len(said) * times == pytest.approx(100, rel=0.1)


@given(st.binary(max_size=2000), CUTS, st.sampled_from(["gzip", "deflate", "identity"]))
def test_packed_bodies(body: bytes, cuts: list[int], encoding: str) -> None:
    packed = {"gzip": gzip.compress(body), "deflate": zlib.compress(body), "identity": body}[encoding]
    seen = UnpackingSample(encoding)
    places = sorted({0, len(packed), *(cut for cut in cuts if cut < len(packed))})
    for start, end in pairwise(places):
        seen.add(packed[start:end])
    assert seen.readable
    assert seen.sample.whole == body


def test_what_cannot_be_unpacked_is_not_read() -> None:
    for encoding, body in (("br", b"{}"), ("gzip", b"{}"), ("gzip, gzip", gzip.compress(b"{}"))):
        seen = UnpackingSample(encoding)
        seen.add(body)
        assert not seen.readable


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n%b\r\n'
    b'--b\r\ncontent-disposition: form-data; name="model"\r\nContent-Type: text/plain\r\n\r\nwhisper-1\r\n'
    b"--b\r\nContent-Disposition: form-data; name=user\r\n\r\nann\r\n--b--\r\n"
)


@pytest.mark.parametrize("size", [0, 10, 300_000])
def test_fields_of_a_form(size: int) -> None:
    found = asked(glimpsed(FORM % bytes(size), range(0, 400_000, 1000)), form=True)
    assert (found.fields, found.model) == ({"model": "whisper-1", "user": "ann"}, "whisper-1")


def test_events_from_the_last_one_backwards() -> None:
    stream = b'id: 1\nevent: a\ndata: {"a": 1}\n\n: ping\ndata:2\n\nretry: 3\n\n'
    assert list(last_events(glimpsed(stream))) == [b"2", b'{"a": 1}']


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"a\\"usage": {"x": 1}}', None),
        (b'{"a": "\\"usage", "b": {"usage": 1}, "usage": {"x": 2}}', {"x": 2}),
        (b'end of a text \\"usage\\": {", "usage" : 3 }', 3),
        (b'{"b": {"usage": {"x": 1}}}', None),
        (b'{"usage": "usage"}', "usage"),
        (b'{"usage": {"x": 1', None),
    ],
)
def test_keys_from_the_end(text: bytes, found: Any) -> None:
    """A quote that is escaped begins no key; what stands in another object is another one's."""
    assert from_end(text, "usage", (1,)) == found
