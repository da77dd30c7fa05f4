"""Random conversations of several turns through the gateway: resends and deltas, tool loops, attachments, edits."""

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.core.errors import ContextLengthExceeded
from tests.properties.cases import (
    Case,
    Json,
    amid_loop,
    answer,
    as_pinned,
    attachment,
    some_pinned,
    tool_step,
    tools,
    user,
)
from tests.properties.checks import append
from tests.properties.checks.budget import check_refusal
from tests.properties.checks.everything import check_answer
from tests.properties.checks.seen import LEFT_OUT, Seen, hold, turn_begins
from tests.properties.materials import words
from tests.properties.mutants import Mutant, unchanged
from tests.support.edges import Edge, Unsayable, common, common_message, said_by
from tests.support.in_process_edges import AtEdges

BUDGETS = (700, 1200, 2500, 5000, 12_000, 12_000, 40_000)


@dataclass
class Talk:
    """A conversation as its client keeps it: all of its messages, and what was forwarded last."""

    seed: int
    rng: random.Random
    budget: int
    way: str
    view: list[Json] = field(default_factory=list)
    system: list[Json] = field(default_factory=list)
    attached: list[Json] = field(default_factory=list)
    definitions: list[Json] = field(default_factory=list)
    conversation: str | None = None
    before: Seen | None = None
    own: list[str] = field(default_factory=list)
    requests: int = 0
    standing: dict[int, list[Json]] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    pinned: set[int] = field(default_factory=set)
    """Which messages of the view are pinned."""


class Player:
    """Plays talks against one gateway, each as a tenant of its own."""

    def __init__(
        self,
        gateway: AtEdges,
        script: "Script",
        document_chars: int,
        mutant: Mutant = unchanged,
        planned: str = "",
        *,
        pins: bool = False,
        edges: Sequence[Edge] = ("chat",),
        amid: float = 0.0,
    ) -> None:
        self._amid = amid
        self._gateway, self._script, self._document_chars = gateway, script, document_chars
        self._mutant, self._planned, self._pins, self._edges = mutant, planned, pins, edges
        self._form = (lambda message: message) if edges == ("chat",) else common_message

    async def play(self, seed: int, name: str = "exact") -> int:
        """How many requests were asked and checked. Raises Broken: one of them broke an invariant."""
        rng = random.Random(seed)
        talk = Talk(seed, rng, rng.choice(BUDGETS), rng.choice(("all", "all", "id")))
        if rng.random() < 0.6:
            talk.system = [{"role": "system", "content": words(rng, 12)}]
        with_tools = rng.random() < 0.6
        talk.definitions = tools(rng) if with_tools else []
        for number in range(rng.choice((2, 3, 5, 8))):
            if talk.way == "all" and number and rng.random() < 0.1:
                _edit(talk)
            said, talk.own = user(rng, number)
            if not await self._turn(talk, said, name, rng.choice((0, 0, 1, 2, 4)) if with_tools else 0):
                break
        return talk.requests

    async def _turn(self, talk: Talk, said: Json, model: str, steps: int) -> bool:
        new: list[Json] = [self._form(said)]
        attached = [attachment(talk.rng) for _ in range(talk.rng.choice((0, 0, 0, 1)))]
        for step in range(steps + 1):
            last = step == steps
            asks = list(map(self._form, tool_step(talk.rng, f"{len(talk.view)}_{step}"))) if not last else []
            reply = {"content": _answer(talk)} if last else {k: v for k, v in asks[0].items() if k != "role"}
            if not await self._ask(talk, new, attached if step == 0 else [], reply, model):
                return False
            new = [*asks[1:], *map(self._form, amid_loop(talk.rng, f"{len(talk.view)}", 0 if last else self._amid))]
        return True

    async def _ask(self, talk: Talk, new: list[Json], attached: list[Json], reply: Json, model: str) -> bool:
        originals = [*talk.system, *talk.view, *new]
        by_id = talk.way == "id" and talk.conversation
        if self._pins:
            told, count = some_pinned(talk.seed + talk.requests, new), len(talk.view)
            talk.pinned |= {count + index for index in told}
        pinned = frozenset(len(talk.system) + index for index in talk.pinned)
        first = len(originals) - len(new) if by_id else 0
        messages = as_pinned(originals, pinned)[first:]
        body: Json = {"model": model, "messages": messages, "store": True}
        body["context"] = {"max_input_tokens": talk.budget}
        if by_id:
            body["conversation"] = talk.conversation
        if attached:
            body["attachments"] = attached
        if talk.definitions:
            body["tools"] = talk.definitions
        talk.attached += attached
        case = Case(
            talk.seed,
            {**body, "messages": originals[first:], "attachments": list(talk.attached)},
            talk.own,
            self._document_chars,
            self._planned,
            pinned,
        )
        self._script.reply = reply
        self._gateway.upstream.sent.clear()
        talk.requests += 1
        if self._edges != ("chat",):
            body = common(body)
        self._gateway.edge = edge_for(body, self._edges, f"{talk.seed} {talk.requests}")
        try:
            answered = await self._gateway.ask(copy.deepcopy(body), f"tenant {talk.seed}")
        except ContextLengthExceeded:
            check_refusal(case, originals)
            return False
        forwarded = copy.deepcopy(self._gateway.forwarded)
        figures = await self._gateway.bill(answered["id"], f"tenant {talk.seed}")
        computed = self._gateway.computed_bill(answered["response_metadata"]["request_id"])
        hold("bill", figures == computed, "a looked-up bill is not the one that its request computed")
        found, said = (
            {**each, "content": each["content"] or None}
            for each in (answered["choices"][0]["message"], {"role": "assistant", **reply})
        )
        hold("§10", found == said, "the answer is another than the model's")
        same = not by_id or answered["conversation"]["id"] == talk.conversation
        hold("§10", same, "another conversation")
        if talk.requests > 1:
            forwarded, figures = self._mutant(case, forwarded, figures) or (forwarded, figures)
        seen = check_answer(case, originals, forwarded, figures, talk.standing)
        append.check(seen, talk.before)
        append.check_left(seen, talk.left)
        talk.left |= append.left_steps(seen)
        talk.before = seen
        shown = dict(zip(seen.indexes, seen.forwarded, strict=True))
        for index in range(len(originals)):
            talk.standing.setdefault(index, []).append(shown.get(index, LEFT_OUT))
        talk.conversation = answered["conversation"]["id"]
        talk.view += [*new, {"role": "assistant", **reply}]
        return True


def edge_for(body: Json, edges: Sequence[Edge], seed: str) -> Edge:
    """One of those that have words for the request, at random."""
    able = [edge for edge in edges if _says(edge, body)]
    return random.Random(f"edge {seed}").choice(able)


def _says(edge: Edge, body: Json) -> bool:
    try:
        return edge == "chat" or bool(said_by(edge, body))
    except Unsayable:
        return False


class Script:
    """What the provider says next."""

    def __init__(self) -> None:
        self.reply: Json = {}

    def __call__(self, body: Json) -> dict[str, Any]:
        return self.reply


def _answer(talk: Talk) -> str:
    """Long enough, where nothing else names the conversation, to show that one took part in it (guarantee §3.2)."""
    said = answer(talk.rng)
    while talk.way == "all" and len(said) < 200:
        said += " " + answer(talk.rng)
    return said


def _reduced(seen: Seen) -> bool:
    return any(r["processed_size_chars"] != r["original_size_chars"] for r in seen.records)


def _edit(talk: Talk) -> None:
    """Goes back to before a turn, and says something else there from now on."""
    at = talk.rng.choice(turn_begins(talk.view))
    talk.view = talk.view[:at]
    until = len(talk.system) + at
    talk.standing = {i: m for i, m in talk.standing.items() if i < until}
    talk.left, talk.pinned = set(), {index for index in talk.pinned if index < at}
    before = talk.before
    if before is not None and (before.figures["messages_excluded"] or _reduced(before)):
        talk.before = before = None  # in another branch what had left may stand again
    if before is not None:
        kept = [(i, m) for i, m in zip(before.indexes, before.forwarded, strict=True) if i < until]
        before.originals = before.originals[:until]
        before.indexes, before.forwarded = [i for i, _ in kept], [m for _, m in kept]
