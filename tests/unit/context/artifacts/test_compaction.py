"""Lossless compaction (guarantee §4 I5): equal when parsed, never longer, nothing but JSON and CSV touched."""

import csv
import io
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.artifacts.lossless_compaction import compact
from tests.support.growth import is_linear


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


@given(lines=st.lists(documents(), min_size=2, max_size=5), end=st.sampled_from(["\n", "\r\n"]))
def test_json_lines_stay_lines_and_are_equal_when_parsed(lines: list[str], end: str) -> None:
    flat = [line.replace("\n", " ").replace("\r", " ") for line in lines]
    shorter = compact(end.join(flat))
    assert [exactly(line) for line in shorter.split("\n")] == [exactly(line) for line in flat]


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
    ["plain  words", '"a  string"', " 12 ", "{'a':  1}", "{  } trailing", "[1,]", "", "   ", '{"a":  1}\nand {"b":  2}',
     '{"a":  1}\n12', "id,  name\n1,  x", "[  NaN  ]", "[ Infinity, -Infinity ]", "[" * 100_000],
)  # fmt: skip
def test_what_is_neither_json_nor_a_table_is_not_touched(text: str) -> None:
    assert compact(text) == text


def test_spacing_leaves_and_nothing_else() -> None:
    text = '{\n  "a": [1, 2.50, 1e5],\n  "b": {"c  d": "e  f", "a": null}\n}'
    assert compact(text) == '{"a":[1,2.50,1e5],"b":{"c  d":"e  f","a":null}}'


def test_a_number_keeps_its_value_beyond_a_doubles_precision() -> None:
    digits = "0.1000000000000000055511151231257827021181583404541015625"
    assert json.loads(compact(f"[ {digits} ]"), parse_float=Decimal) == [Decimal(digits)]


def test_escapes_become_characters_where_json_can_hold_them() -> None:
    text = r'{ "\u00e9": "\ud83d\ude00 \ud83d \u0022\u005c\\u00e9\\\u00e9 \u0001 a\/b" }'
    assert compact(text) == r'{"é":"😀 \ud83d \"\\\\u00e9\\é \u0001 a/b"}'
    assert json.loads(compact(text)) == json.loads(text)


def test_a_fence_still_closes_on_a_line_of_its_own() -> None:
    assert compact('\n{ "a": 1 }\n') == '\n{"a":1}\n'


fields = st.text('ab 1,;\t|"\n\r é', max_size=8)


@given(
    rows=st.lists(st.lists(fields, min_size=3, max_size=3), min_size=1, max_size=8),
    separator=st.sampled_from([",", "\t", ";", "|"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_a_compacted_table_is_equal_when_parsed_and_never_longer(
    rows: list[list[str]], separator: str, quoting: Any, end: str
) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=separator, quoting=quoting, lineterminator=end).writerows([["x", "y z", "n"], *rows])
    text = out.getvalue()
    shorter = compact(text)
    assert len(shorter) <= len(text)
    for padded in (False, True):
        read = [
            list(csv.reader(io.StringIO(each, newline=""), delimiter=separator, skipinitialspace=padded))
            for each in (text, shorter)
        ]
        assert read[0] == read[1]
    assert compact(shorter) == shorter


def test_needless_quotes_and_long_line_ends_leave_a_table() -> None:
    text = '"id","name"\r\n"1","a, b"\r\n"2","say ""x"""\r\n"3","x"\r\n'
    assert compact(text) == 'id,name\n1,"a, b"\n2,"say ""x"""\n3,x\r\n'


def test_padding_is_data() -> None:
    assert compact("id,name\r\n1,  a \r\n2,b") == "id,name\n1,  a \n2,b"
    quoted = 'id,name\r\n1," a"\r\n2,b'  # without quotes some readers would skip the blank
    assert compact(quoted) == quoted


@pytest.mark.parametrize(
    "text",
    [
        '"a", "b",\n"c", "d",\n"e", "f",',  # a list in a program
        '"a","b",\n"c","d",\n"e","f",',
        'He said "yes", she said\r\n"no", they said\r\n"well", and left',
        "id,name\r\n1,a\r\n2,b,c",
        '"id","id"\n"1","2"\n"3","4"',
        'a "quoted" word,b\n"1","2"\n"3","4"',
        'id\n"1"\n"2"',
        "GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html, */*\r\n",
        'id,name\n"1,a\n2,b\n3,c',
    ],
)
def test_what_only_looks_like_a_table_keeps_its_quotes_and_line_ends(text: str) -> None:
    assert compact(text) == text


HOSTILE = [
    "{",
    "[",
    '"',
    "\\",
    ",",
    "[ ",
    '{"a": ',
    '"a",\n',
    'a,"b"\n',
    "{}\n",
    'a,b\n"',
    '""',
    '[\n"',
    "\r\n",
    "\\u00",
]


@pytest.mark.long
@pytest.mark.parametrize("piece", HOSTILE)
def test_s7_no_text_takes_quadratic_time(piece: str) -> None:
    """A quarter of a million characters."""

    def both(size: int) -> None:
        compact(piece * (size // len(piece)))
        compact("id,name\r\n" + piece * (size // len(piece)))

    assert is_linear(both, 250_000)
