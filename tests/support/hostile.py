"""JSON that no honest client sends."""

import gzip
import json
from typing import Any

import httpx

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    10**30,
    "",
    " ",
    "x" * 10**5,
    "\0",
    "a\r\nb: c",
    "' OR 1=1 --",
    "../../etc/passwd",
    [],
    {},
    [[]],
    [None],
    [{}],
    {"a": {"b": [1e308]}},
    {"\0": "\0"},
    {"id": {}, "type": [], "text": {}, "name": []},
    float(2**63),
]


def nothing_is_left(client: httpx.Client, answer: httpx.Response) -> bool:
    """Whether the refused request left neither turn nor bill."""
    return client.get(f"/chat/completions/{answer.headers['x-request-id']}").status_code == 404


def shaped(content: bytes = b'"hello"', more: bytes = b"") -> bytes:
    """A request with that content and those further members."""
    return b'{"model":"gpt-4o","messages":[{"role":"user","content":' + content + b"}]" + more + b"}"


def many(number: int, piece: Any) -> bytes:
    """A list of that many."""
    return json.dumps([piece] * number).encode()


MEMBERS = json.dumps({f"k{i}": i for i in range(100_000)}).encode()


REFUSED = {
    "a list": b"[]",
    "a text": b'"hello"',
    "nothing": b"",
    "null": b"null",
    "white space": b" \n",
    "two documents": shaped() + shaped(),
    "rubbish behind": shaped() + b"x",
    "a byte order mark": b"\xef\xbb\xbf" + shaped(),
    "UTF-16": shaped().decode().encode("utf-16"),
    "UTF-32": shaped().decode().encode("utf-32"),
    "Latin-1": shaped('"é"'.encode("latin-1")),
    "overlong UTF-8": shaped(b'"\xc0\xaf"'),
    "a surrogate in UTF-8": shaped(b'"\xed\xa0\x80"'),
    "half a pair in the model": b'{"model":"\\ud800"}',
    "a control character": shaped(b'"a\nb"'),
    "a zero byte": shaped(b'"a\0b"'),
    "NaN": shaped(more=b',"temperature":NaN'),
    "Infinity": shaped(more=b',"temperature":-Infinity'),
    "1e400": shaped(more=b',"temperature":1e400'),
    "1E+999": shaped(more=b',"x":[1E+999]'),
    "5,000 digits": shaped(more=b',"seed":' + b"9" * 5_000),
    "a leading zero": shaped(more=b',"n":01'),
    "a trailing comma": shaped(more=b","),
    "single quotes": shaped(b"'hello'"),
    "a comment": b"/* a */" + shaped(),
    "100,000 lists": shaped(b"[" * 100_000 + b"]" * 100_000),
    "100,000 open lists": shaped(b"[" * 100_000),
    "100,000 objects": shaped(more=b',"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "300 lists": shaped(more=b',"x":' + b"[" * 300 + b"]" * 300),
    "1,000 lists in arguments": shaped(more=b',"tools":[{"function":{"parameters":' + b"[" * 900 + b"]" * 900 + b"}}]"),
    "a form": b"model=gpt-4o&messages=hello",
    "a multipart form": b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\ngpt-4o\r\n--x--\r\n',
    "gzip without saying so": gzip.compress(shaped()),
    "100,000 messages of nothing": b'{"model":"gpt-4o","messages":' + many(100_000, None) + b"}",
    "100,000 members": MEMBERS,
    "100,000 attachments of nothing": shaped(more=b',"attachments":' + many(100_000, {})),
    "100,000 tools of nothing": shaped(more=b',"tools":' + many(100_000, 1)),
    "100,000 parts of nothing": shaped(many(100_000, {})),
    "50,000 results": b'{"model":"gpt-4o","messages":'
    + many(50_000, {"role": "tool", "tool_call_id": "c", "content": ""})
    + b"}",
}
