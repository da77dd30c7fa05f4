"""Server-sent events (the HTML standard's rules): any split of the bytes gives the same events."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import UpstreamInvalidResponse
from gateway.upstream.http.mending import MAX_EVENT_BYTES, EventParser

STREAMS: dict[str, tuple[bytes, list[bytes]]] = {
    "plain": (b"data: one\n\ndata: two\n\n", [b"one", b"two"]),
    "carriage returns": (b"data: one\r\n\r\ndata: two\r\n\r\n", [b"one", b"two"]),
    "old Mac": (b"data: one\r\rdata: two\r\r", [b"one", b"two"]),
    "mixed": (b"data: one\n\r\ndata: two\r\n\ndata: three\r\r\n",
              [b"one", b"two", b"three"]),
    "no space": (b"data:one\n\n", [b"one"]),
    "one space of two": (b"data:  one\n\n", [b" one"]),
    "several lines": (b"data: one\ndata: two\n\n", [b"one\ntwo"]),
    "empty data": (b"data\n\ndata:\n\n", [b"", b""]),
    "comments": (b": hi\n\n:\ndata: one\n: there\n\n", [b"one"]),
    "names": (b"event: ping\ndata: one\n\ndata: two\n\n", [b"one", b"two"]),
    "a name without data": (b"event: ping\n\ndata: two\n\n", [b"two"]),
    "other fields": (b"id: 7\nretry: 10\nfoo: bar\ndata: one\n\n", [b"one"]),
    "colons": (b"data: a: b:c\n\n", [b"a: b:c"]),
    "a mark at the beginning": (b"\xef\xbb\xbfdata: one\n\n", [b"one"]),
    "a cut off end": (b"data: one\n\ndata: two", [b"one"]),
    "an unfinished event": (b"data: one\n\ndata: two\n", [b"one"]),
    "an error in a field of its own": (b"data: one\n\nerror: two\ndata: three\n\n", [b"one", b"two", b"three"]),
    "an error in no field": (b'data: one\n\n{"error": 1}\n', [b"one", b'{"error": 1}']),
    "unicode": ("data: größer ✓ 🙂\u2028\x85\n\n".encode(), ["größer ✓ 🙂\u2028\x85".encode()]),
    "nothing": (b"", []),
}  # fmt: skip


def read(pieces: Iterable[bytes]) -> list[bytes]:
    parser = EventParser()
    return [data for piece in pieces for data in parser.feed(piece)]


@pytest.mark.parametrize(("raw", "expected"), STREAMS.values(), ids=list(STREAMS))
def test_a_stream_is_read_as_the_standard_says_in_one_piece_and_byte_by_byte(raw: bytes, expected: list[bytes]) -> None:
    assert read([raw]) == expected
    assert read(raw[n : n + 1] for n in range(len(raw))) == expected


lines = st.sampled_from([b"data: a", b"data:b", b"data", b": c", b"event: e", b"id: 1", b"error: f", b"", b"", b"x"])
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
streams = st.lists(st.tuples(lines, ends), max_size=12).map(lambda parts: b"".join(a + b for a, b in parts))


@given(raw=streams, cuts=st.lists(st.integers(0, 120), max_size=10))
def test_any_split_of_the_bytes_gives_the_same_events(raw: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(raw) + 120]
    assert read(raw[a:b] for a, b in itertools.pairwise(places)) == read([raw])


@given(raw=st.binary(max_size=200))
def test_no_bytes_are_an_error(raw: bytes) -> None:
    assert all(isinstance(data, bytes) for data in read([raw]))


def test_an_event_that_is_too_long_is_refused_and_many_short_ones_are_not() -> None:
    piece = b"x" * (MAX_EVENT_BYTES // 4)
    with pytest.raises(UpstreamInvalidResponse):
        read([b"data: ", *[piece] * 5])
    assert len(read([b"data: " + piece + b"\n\n"] * 6)) == 6


def test_a_long_event_comes_whole_out_of_small_pieces() -> None:
    (event,) = read([b"data: ", *[b"x" * 1400] * 1500, b"\r", b"\n\r\n"])
    assert event == b"x" * 2_100_000
