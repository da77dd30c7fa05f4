"""What is JSON here, and what comes of it when it is written again."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import jsons

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
PADDING = '"' + "x" * jsons.SMALL_BYTES + '"'


def nested(depth: int, inner: str = "1") -> str:
    """`inner` inside `depth` lists and objects."""
    return '{"a":' * (depth // 2) + "[" * (depth - depth // 2) + inner + "]" * (depth - depth // 2) + "}" * (depth // 2)


@given(VALUES, st.booleans())
def test_values_keep_their_value(value: Any, padded: bool) -> None:
    """Small documents and large ones, which are looked at differently; whole numbers of any size."""
    raw = json.dumps([value, "x" * jsons.SMALL_BYTES * padded]).encode()
    assert jsons.loads_exact(raw)[0] == json.loads(raw)[0] == value
    assert json.loads(jsons.dumps(jsons.loads_exact(raw)))[0] == value


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**19, 10**40, 10**300])
@pytest.mark.parametrize("place", ["[%s]", '{"a":{"b":[0.5,%s]}}', '[1,{"a":[[%s]]},1.5]'])
@pytest.mark.parametrize("padded", [False, True])
def test_huge_whole_numbers_stay_whole(number: int, place: str, padded: bool) -> None:
    raw = f"[{place % number},{PADDING if padded else 1}]".encode()
    assert jsons.loads_exact(raw) == json.loads(raw)


@pytest.mark.parametrize("padded", [False, True])
def test_depth_is_bounded_where_it_can_still_be_written(padded: bool) -> None:
    """200 levels pass and can be written, also inside others; beyond that it is no JSON of ours."""
    more = PADDING if padded else "1"
    value = jsons.loads_exact(f"[{more},{nested(jsons.MAX_DEPTH - 1)}]".encode())
    assert orjson.loads(jsons.dumps([[[value]]])) == [[[value]]]
    for depth in (jsons.MAX_DEPTH + 10, 1_000, 100_000):
        with pytest.raises(jsons.JSONDecodeError):
            jsons.loads_exact(f"[{more},{nested(depth)}]".encode())


def test_brackets_in_texts_are_no_depth() -> None:
    raw = json.dumps({"a": "[{" * 3_000, "b": ["[" * 300]}).encode()
    assert jsons.loads_exact(raw) == json.loads(raw)


HALVES = [b'"\\ud83d"', b'{"a":"\\ude00x"}', b'["\\ud83d\\u0041",100000000000000000000000]', b'{"\\ud83d":"\xc3\xa4"}']


@pytest.mark.parametrize("raw", HALVES)
def test_s1_half_a_surrogate_pair_of_an_answer_goes_on_as_it_came(raw: bytes) -> None:
    """§1: odd answers come back untouched; requests with one are no JSON (§7)."""
    value = jsons.loads_answer(raw)
    assert value == json.loads(raw) == json.loads(jsons.dumps(value))
    with pytest.raises(jsons.JSONDecodeError):
        jsons.loads_exact(raw)


@pytest.mark.parametrize(
    "raw", [b'["\\ud83d"', b'["\\ud83d",nan]', b"[NaN", b"\xff", b'["\\ud83d",' + b"[" * 5000 + b"]" * 5001]
)
def test_what_is_no_json_is_none_with_half_a_pair_either(raw: bytes) -> None:
    with pytest.raises(jsons.JSONDecodeError):
        jsons.loads_answer(raw)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'["\\ud83d",NaN,Infinity,-Infinity,1e999,-1e999]', ["\ud83d", *[None] * 5]),
        (b'{"a":"\xff\xc3","b":100000000000000000000000}', {"a": "\ufffd\ufffd", "b": 10**23}),
        (b'["a\n\tb\x00"]', ["a\n\tb\x00"]),
    ],
)
def test_s1_9_an_answer_that_was_paid_for_is_read_leniently(raw: bytes, value: Any) -> None:
    assert jsons.loads_answer(raw) == value
    with pytest.raises(jsons.JSONDecodeError):
        jsons.loads_exact(raw)


def test_halves_are_stored_as_the_sign_that_they_make() -> None:
    """And one alone as U+FFFD: no provider takes it back."""
    text = {"a": "\ud83d" + "\ude00", "b": ["\ude00 ä", 10**30]}
    whole = {"a": "😀", "b": ["\ufffd ä", 10**30]}
    assert jsons.loads_stored(jsons.dumps_stored(text)) == whole
    jsons.dumps_stored(text).encode()
    assert jsons.canonical(text) == jsons.canonical(whole)
    assert jsons.canonical({"a": "\ud83d" + "\ude00"}) == jsons.canonical({"a": "😀"})


def test_of_two_members_with_one_name_the_last_counts() -> None:
    """For whoever reads the forwarded body too: it is written anew."""
    value = jsons.loads_exact(b'{"model":"a","model":"b","x":{"y":1,"y":2}}')
    assert jsons.dumps(value) == b'{"model":"b","x":{"y":2}}'


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b"[1e400]",
        b"[1" + b"0" * 400 + b"]",
        b"[1" + b"0" * 5_000 + b"]",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b'"\x00"',
        b'"\n"',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b"{} {}",
        b"{}x",
        b"{'a':1}",
        b"[1,]",
        b"[01]",
        b"[+1]",
        b"// a\n{}",
    ],
)
def test_what_is_no_json(raw: bytes) -> None:
    with pytest.raises(jsons.JSONDecodeError):
        jsons.loads_exact(raw)


@given(st.text(alphabet='ab{[]},:"\u20ac\ud83d'), st.integers(0, 40))
def test_the_parts_of_a_text_are_counted_alike_whole_and_in_pieces(text: str, at: int) -> None:
    """Also as bytes: objects and lists by how they begin, values by their commas."""
    expected = jsons.PART_BYTES * (text.count("{") + text.count("[")) + jsons.VALUE_BYTES * text.count(",")
    assert jsons.part_bytes(text) == jsons.part_bytes(text.encode("utf-8", "surrogatepass")) == expected
    assert jsons.part_bytes(text[:at]) + jsons.part_bytes(text[at:]) == expected


@given(VALUES)
def test_what_is_stored_is_read_as_it_was(value: Any) -> None:
    """Whole numbers of any size keep their value and kind."""
    again = jsons.loads_stored(jsons.dumps_stored(value))
    assert repr(again) == repr(value)


def test_only_huge_numbers_cost_more_than_a_plain_read() -> None:
    assert [jsons.dumps_stored(n)[0] for n in (2**64 - 1, -(2**63), 2**64, -(2**63) - 1)] == ["1", "-", " ", " "]


def test_what_is_json_already_is_written_beside_huge_numbers_and_halves() -> None:
    value = {"n": 10**30, "s": "\ud83d", "bill": jsons.Fragment(b'{"total":0.5}')}
    assert json.loads(jsons.dumps(value)) == {"n": 10**30, "s": "\ud83d", "bill": {"total": 0.5}}
