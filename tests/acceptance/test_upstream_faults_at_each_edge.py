"""One fault of each class through every second API, over each API of the upstream's (guarantee §7, §10): `make chaos`
has all of them (`tests/chaos/test_upstream_faults.py`)."""

import pytest

from tests.support.faults.ways import CLASSES, WAYS, Crossing, Way, flooded
from tests.support.faults.words import ANTHROPIC, CHAT, RESPONSES

MORE = {
    "no answer": ("HTML", "an empty body", "JSON that is no object", "an object of nothing", "a reset"),
    "cut streams": ("a reset after an event", "half an event and a good end", "silence", "no JSON"),
    "nothing yet": ("a head and a close", "a head and silence"),
    "statuses": [f"status {each}" for each in (400, 404, 409, 413, 422, 500, 503)],
    "waits": ("headers of its own",),
    "keys": ("status 403", "401 in a good answer", "a key at 400"),
    "errors inside": ("a fault, in the middle",),
}
"""What is tried of chats alone besides."""


@pytest.mark.parametrize("kind", MORE)
def test_s7_further_faults_of_a_chats_upstream(crossing: Crossing, kind: str) -> None:
    """Status, body and waits are kept; a stream that breaks ends with an error event, and its turn is partial."""
    table = CLASSES[kind](CHAT)
    failures = crossing.failures(WAYS[0], {name: table[name] for name in MORE[kind]})
    assert not failures, failures[0]


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_s7_a_fault_of_each_class_at_each_edge(crossing: Crossing, way: Way, kind: str) -> None:
    """§10.8: it is told in the client's own shape and status, leaves its row in the ledger, and leaks nothing; the next
    request is answered as if nothing had been."""
    name, fault = next(iter(CLASSES[kind](way.words).items()))
    if kind == "floods":
        flooded(crossing, way, fault)
        return
    failures = crossing.failures(way, {name: fault})
    assert not failures, failures[0]


def test_s7_each_class_has_its_faults() -> None:
    """What stands for all of a class is one of many."""
    counts = [{name: len(make(words)) for name, make in CLASSES.items()} for words in (CHAT, RESPONSES, ANTHROPIC)]
    assert all(min(each.values()) >= 7 for each in counts)
    assert sum(number for name, number in counts[0].items() if name != "shapes") >= 230
