"""Requests of all kinds and whole conversations by each of the three APIs, and by one after the other: the same is
forwarded, and the invariants hold (guarantee §4, §10)."""

import asyncio
import copy
import os

import pytest

from gateway.core.errors import ContextLengthExceeded
from tests.properties.cases import FLAVOURS, Flavour, Json, at_edge, single
from tests.properties.running import check_talks, gateway
from tests.support.edges import EDGES, Edge
from tests.support.in_process_edges import AtEdges, BeforeAnthropic, BeforeResponses

SEEDS = int(os.environ.get("EDGE_CASES", "2"))
"""Of each flavour, each asked by all of the APIs; `make chaos` has more."""
CONVERSATIONS = int(os.environ.get("EDGE_CONVERSATIONS", "2"))
DOCUMENT_CHARS = 1200
UNEQUAL = ("conversation_id", "request_id", "timings_ms")


@pytest.mark.parametrize("flavour", FLAVOURS, ids=[flavour.name for flavour in FLAVOURS])
def test_s10_1_each_api_forwards_the_same(flavour: Flavour) -> None:
    """Equal as JSON where the APIs can say the same; so are the figures of the window."""
    assert check_alike(flavour, range(SEEDS)) >= SEEDS / 2


@pytest.mark.parametrize("edges", [("responses",), ("messages",), EDGES], ids="-".join)
def test_s4_the_invariants_hold_from_turn_to_turn_at_each_api(edges: tuple[Edge, ...]) -> None:
    """I7 above all: what was forwarded for one API is what the next one's request begins with."""
    assert check_talks(range(CONVERSATIONS), edges=edges) > CONVERSATIONS


@pytest.mark.parametrize("kind", [BeforeResponses, BeforeAnthropic])
def test_s4_the_invariants_hold_at_upstreams_of_other_apis(kind: type[AtEdges]) -> None:
    """Requests go up in their own words where the upstream speaks them, and as chats where they came as chats."""
    assert check_talks(range(CONVERSATIONS), edges=EDGES, kind=kind) > CONVERSATIONS


def check_alike(flavour: Flavour, seeds: range) -> int:
    """How many requests were forwarded, the same by all. Raises AssertionError: one was not; with its seed."""
    return asyncio.run(_alike(flavour, seeds))


ESTIMATED = ("tokens_used", "tokens_estimated", "breakdown", "utilization")


async def _alike(flavour: Flavour, seeds: range) -> int:
    forwarded = 0
    async with gateway(DOCUMENT_CHARS, lambda _: {"content": "ok"}) as made:
        for seed in seeds:
            body = at_edge(single(seed, flavour), EDGES[1]).body
            first, *others = [await _outcome(made, edge, body) for edge in EDGES]
            for edge, other in zip(EDGES[1:], others, strict=True):
                same = other == first or (other and first and _counted(other, first) == _counted(first, other))
                assert same, f"{flavour.name} {seed} by {edge}"
            forwarded += first is not None
    return forwarded


def _counted(one: tuple[Json, ...], other: tuple[Json, ...]) -> tuple[Json, ...]:
    """An outcome without figures that one of both only estimates: so near a bound that a few bytes decide."""
    messages, bill, _ = one
    used = bill["context_utilization"]
    if not any(each[1]["context_utilization"]["tokens_estimated"] for each in (one, other)):
        return one
    return messages, {**bill, "context_utilization": {k: v for k, v in used.items() if k not in ESTIMATED}}


async def _outcome(made: AtEdges, edge: Edge, body: Json) -> tuple[Json, ...] | None:
    """Messages, figures and costs of a dry run; None where it cannot be made to fit."""
    made.edge = edge
    try:
        found = await made.ask(copy.deepcopy(body))
    except ContextLengthExceeded:
        return None
    bill = {name: value for name, value in found["response_metadata"].items() if name not in UNEQUAL}
    return found["messages"], bill, found["estimated_cost"]
