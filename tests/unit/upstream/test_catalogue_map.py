"""LiteLLM's map is cut into its members without being parsed; both ways must agree."""

import json

from gateway.upstream.routing.catalogue import _map_path, entries_of


def test_every_member_of_the_map_is_what_a_full_parse_gives() -> None:
    path = _map_path()
    assert path is not None
    raw = path.read_bytes()
    whole = json.loads(raw)
    whole.pop("sample_spec")
    cut = {name: json.loads(entry) for name, entry in entries_of(raw).items()}
    assert cut == whole


def test_a_map_written_otherwise_is_parsed_as_a_whole() -> None:
    assert entries_of(b'{"a":{"x":1},"sample_spec":{}}') == {"a": b'{"x":1}'}
