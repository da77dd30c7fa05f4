"""Lossless compaction (contract §4 I5): equal when parsed, never longer, nothing but JSON touched."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.artifacts.compaction import compact


def exactly(text: str) -> Any:
    """The parsed value with every digit and every member, doubled names included."""
    return json.loads(
        text, parse_float=lambda s: ("n", s), parse_int=lambda s: ("n", s), object_pairs_hook=lambda p: ("o", p)
    )


numbers = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=30).map(lambda d: f"{d:f}"),
    st.sampled_from(["1.50", "1e400", "-0", "-0.0", "1E+2", "0.1e-7", "10000000000000000000001", "5e-324"]),
)
strings = st.one_of(
    st.text('ab \n"\\/é🙂\u2028\x7f\x00', max_size=12).map(json.dumps),
    st.sampled_from(['"\\ud83d\\ude00"', '"\\ud83d"', '"\\udc00x"', '"\\/"', '"\\u0000"', '"  spaces  "', '"é"']),
)
spaces = st.sampled_from(["", " ", "\n", "\t", "\r\n  "])


@st.composite
def documents(draw: st.DrawFn, depth: int = 0) -> str:
    """JSON text with spacing, escapes, doubled names and numbers of any size."""
    kind = draw(st.sampled_from(["array", "object", "leaf"] if depth else ["array", "object"]))
    if depth > 3 or kind == "leaf":
        return draw(st.one_of(numbers, strings, st.sampled_from(["true", "false", "null"])))
    gap = draw(spaces)
    items = [draw(documents(depth + 1)) for _ in range(draw(st.integers(0, 3)))]
    if kind == "array":
        return f"[{gap}" + f"{gap},{gap}".join(items) + f"{gap}]"
    names = [draw(st.sampled_from(['"a"', '"a"', '"b c"', '"\\u00e9"'])) for _ in items]
    members = [f"{name}{gap}:{gap}{item}" for name, item in zip(names, items, strict=True)]
    return f"{{{gap}" + f"{gap},{gap}".join(members) + f"{gap}}}"


@given(text=documents(), outer=spaces)
def test_compacted_json_is_equal_when_parsed_and_never_longer(text: str, outer: str) -> None:
    given_text = f"{outer}{text}{outer}"
    shorter = compact(given_text)
    assert len(shorter) <= len(given_text)
    assert exactly(shorter) == exactly(given_text)
    assert compact(shorter) == shorter
    shorter.encode()


@given(text=st.text('{}[]",:1ab \n\\', max_size=40))
def test_what_is_no_json_stays_as_it_is(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        assert compact(text) == text


@pytest.mark.parametrize(
    "text",
    ["plain  words", '"a  string"', " 12 ", "{'a':  1}", "{  } trailing", "[1,]", "", "   ", '{"a":  1}\n{"b":  2}',
     "id,  name\n1,  x", "[  NaN  ]", "[ Infinity, -Infinity ]", "[" * 100_000],
)  # fmt: skip
def test_nothing_but_one_json_array_or_object_is_touched(text: str) -> None:
    assert compact(text) == text


def test_spacing_leaves_and_nothing_else() -> None:
    text = '{\n  "a": [1, 2.50, 1e5],\n  "b": {"c  d": "e  f", "a": null}\n}'
    assert compact(text) == '{"a":[1,2.50,1e5],"b":{"c  d":"e  f","a":null}}'


def test_a_number_keeps_its_value_beyond_a_doubles_precision() -> None:
    digits = "0.1000000000000000055511151231257827021181583404541015625"
    assert json.loads(compact(f"[ {digits} ]"), parse_float=Decimal) == [Decimal(digits)]
