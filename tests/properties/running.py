"""Runs many random requests through the gateway, and makes the first that breaks an invariant as small as it can."""

import asyncio
import copy
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.core.config.settings import Settings
from gateway.core.errors import ContextLengthExceeded
from gateway.core.types.chat import ModelFacts
from tests.properties.cases import DOCUMENT_CHARS, Case, Flavour, Json, as_pinned, at_edge, single, some_pinned
from tests.properties.checks.budget import check_refusal
from tests.properties.checks.everything import check_answer
from tests.properties.checks.seen import Broken, hold
from tests.properties.plans import with_plans
from tests.properties.talks import Player, Script
from tests.support.edges import EDGES, Edge
from tests.support.in_process import Answers
from tests.support.in_process_edges import AtEdges

FACTS = {
    "exact": ModelFacts("gpt-4o", tokenizer="o200k_base", max_input_tokens=10**6),
    "loose": ModelFacts("gpt-4o", tokenizer="o200k_base", max_input_tokens=10**6, token_margin=1.2),
    "narrow": ModelFacts("gpt-4o", tokenizer="o200k_base", context_window=4000, max_output_tokens=500),
}
CASES = int(os.environ.get("PROPERTY_CASES", "16"))
"""Of each flavour, by each API in turn; `make chaos` has 900, and many thousand of its own."""
NOT_YET: tuple[str, ...] = ()
"""What does not hold everywhere yet: counted, and no failure."""
AGAIN = 10
"""Every so manieth request is asked twice: the same must be forwarded."""
SHRINKING = 150
SHOWN_CHARS = 6000


@dataclass
class Tally:
    """What came of how many."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    """Breaches of what does not hold everywhere yet."""


@asynccontextmanager
async def gateway(document_chars: int, answers: Answers, *, match: str = "off", kind: type[AtEdges] = AtEdges) -> Any:
    """A gateway in this process with an empty storage."""
    settings = Settings.model_validate(
        {
            "storage": {"url": "sqlite:///:memory:"},
            "context": {"document_min_chars": document_chars},
            "conversation": {"match": match},
        }
    )
    made = await kind(settings, FACTS, answers).prepare()
    try:
        yield made
    finally:
        await made.close()


def check_singles(flavour: Flavour, seeds: Iterable[int], planned: str = "", *, pins: bool = False) -> Tally:
    """`planned`: see `Case.planned`; a random plan is followed for each; `pins`: some of their messages are pinned.
    Raises AssertionError: one broke an invariant; with its seed and a smaller one that breaks the same."""
    with with_plans(planned):
        return asyncio.run(_singles(flavour, seeds, planned, pins=pins))


async def _singles(flavour: Flavour, seeds: Iterable[int], planned: str, *, pins: bool) -> Tally:
    tally = Tally()
    async with both() as gateways:
        for seed in seeds:
            case = replace(single(seed, flavour), planned=planned)
            if pins:
                case = replace(case, pinned=some_pinned(seed, case.messages))
            else:
                case = at_edge(case, EDGES[seed % len(EDGES)])
            try:
                tally.outcomes[await check(gateways, case, again=seed % AGAIN == 0)] += 1
            except Broken as broken:
                tally.cases += 1
                if broken.name in NOT_YET:
                    tally.known[broken.name] += 1
                    continue
                small, why = await _smaller(gateways, case, broken)
                shown = json.dumps(small.body, ensure_ascii=False, indent=1)[:SHOWN_CHARS]
                raise AssertionError(
                    f"{flavour.name} {seed} by {case.edge}: {broken}\nsmaller: {why}\n{shown}"
                ) from broken
            else:
                tally.cases += 1
    return tally


@asynccontextmanager
async def both() -> Any:
    """Gateways by what counts as over-long in a user message."""
    long, short = sorted(set(DOCUMENT_CHARS), reverse=True)
    async with gateway(long, lambda _: {"content": "ok"}) as one, gateway(short, lambda _: {"content": "ok"}) as other:
        yield {long: one, short: other}


async def outcome(gateways: dict[int, AtEdges], case: Case) -> Json | None:
    """The dry run's answer; None where it cannot be made to fit."""
    try:
        body = copy.deepcopy(case.body)
        body["messages"] = as_pinned(body["messages"], case.pinned)
        asked = gateways[case.document_chars]
        asked.edge = case.edge
        return await asked.ask(body)
    except ContextLengthExceeded:
        return None


async def check(gateways: dict[int, AtEdges], case: Case, *, again: bool = False) -> str:
    """How the request was met: `refused`, or the bill's `strategy`. Raises Broken: an invariant does not hold."""
    found = await outcome(gateways, case)
    if found is None:
        check_refusal(case, case.messages)
        return "refused"
    figures = found["response_metadata"]["context_utilization"]
    check_answer(case, case.messages, found["messages"], figures)
    if again:
        other = await outcome(gateways, case)
        same = other is not None and other["messages"] == found["messages"]
        hold("repeatable", same, "the same request was forwarded otherwise")
    return str(figures["strategy"])


async def _smaller(gateways: dict[int, AtEdges], case: Case, broken: Broken) -> tuple[Case, Broken]:
    """The smallest request found that breaks the same invariant."""
    for _ in range(SHRINKING):
        for attempt in _attempts(case):
            try:
                await check(gateways, attempt, again=broken.name == "repeatable")
            except Broken as again:
                if again.name == broken.name:
                    case, broken = attempt, again
                    break
            except Exception:  # no request that a client could send
                continue
        else:
            return case, broken
    return case, broken


def _attempts(case: Case) -> Iterator[Case]:
    """The request without a turn, without a step, without something beside it, with shorter texts."""
    messages = case.messages
    starts = [i for i, m in enumerate(messages) if m["role"] == "user"]
    for start, end in zip([0, *starts], starts, strict=False):
        if end > start:
            yield _with(case, messages=messages[:start] + messages[end:])
    for index, message in enumerate(messages):
        end = index + 1
        while message.get("tool_calls") and end < len(messages) and messages[end]["role"] == "tool":
            end += 1
        if message["role"] in ("assistant", "system", "developer"):
            yield _with(case, messages=messages[:index] + messages[end:])
    for name in ("tools", "response_format", "attachments", "max_tokens", "max_completion_tokens"):
        if case.body.get(name):
            yield replace(case, body={k: v for k, v in case.body.items() if k != name})
    for index, message in enumerate(messages):
        content = message["content"]
        if message["role"] in ("tool", "assistant") and isinstance(content, str) and len(content) > 20:
            shorter = {**message, "content": content[: len(content) // 2]}
            yield _with(case, messages=[*messages[:index], shorter, *messages[index + 1 :]])


def _with(case: Case, messages: list[Json]) -> Case:
    return at_edge(replace(case, body={**case.body, "messages": messages}), case.edge)


def check_talks(
    seeds: Iterable[int],
    planned: str = "",
    *,
    pins: bool = False,
    edges: Sequence[Edge] = ("chat",),
    kind: type[AtEdges] = AtEdges,
    amid: float = 0.0,
) -> int:
    """How many requests of random conversations were checked.
    `planned`: see `Case.planned`; a random plan is followed in each request; `pins`: some of their messages are pinned;
    `edges`: each request comes by one of them, at random; `kind`: what is before which upstream; `amid`: the share of
    tool steps behind whose results a user speaks.
    Raises AssertionError: one broke an invariant; with the conversation's seed."""
    with with_plans(planned):
        return asyncio.run(_talks(seeds, planned, edges, kind, amid, pins=pins))


async def _talks(
    seeds: Iterable[int], planned: str, edges: Sequence[Edge], kind: type[AtEdges], amid: float, *, pins: bool
) -> int:
    script, document_chars, requests = Script(), min(DOCUMENT_CHARS), 0
    async with gateway(document_chars, script, match="tenant", kind=kind) as made:
        player = Player(made, script, document_chars, planned=planned, pins=pins, edges=edges, amid=amid)
        for seed in seeds:
            try:
                requests += await player.play(seed)
            except Broken as broken:
                if broken.name in NOT_YET:
                    continue
                raise AssertionError(f"conversation {seed}: {broken}") from broken
    return requests
