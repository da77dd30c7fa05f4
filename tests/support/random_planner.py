"""A planner and a summarizer that answer at random: well, badly, late, broken or not at all."""

import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal

from tests.support.internal_models import Json, Shown, decision, plan_of
from tests.support.reply import Reply, count_usage

PLANS = {"good": 8, "stupid": 4, "invented": 1, "prose": 2, "list": 1, "refused": 2, "cut": 2, "late": 1}
SUMMARIES = {"good": 8, "empty": 1, "long": 1, "refused": 1, "cut": 1, "late": 1}
UNREPORTED = {"list", "refused", "cut", "late"}
"""What ends without a usage that anybody could know of."""
STRATEGIES = ("include_full", "summarize", "rag_extract", "exclude")
PRICES = {"small": (Decimal("0.000001"), Decimal("0.000002")), "gpt-4o-mini": (Decimal("1.5e-7"), Decimal("6e-7"))}
PICO = Decimal("1e-12")


@dataclass
class RandomPlanner:
    """The `planner` and `summarizer` of `InternalModels`, and the provider's account of them; `late` seconds are more
    than the gateway waits."""

    seed: int
    late: float
    kinds: Counter[str] = field(default_factory=Counter)
    charged: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._lock = threading.Lock()

    def plan(self, artifacts: list[Shown]) -> Reply:
        """A reply to a planner's prompt."""
        with self._lock:
            kind = self._kind("plan", PLANS)
            return self._charged(kind, "gpt-4o-mini", self._plan(kind, artifacts))

    def summarize(self, text: str) -> Reply:
        """A reply to a summarizer's prompt; no two summaries are alike."""
        with self._lock:
            kind = self._kind("summary", SUMMARIES)
            return self._charged(kind, "gpt-4o-mini", self._summary(kind))

    def answer(self, body: Json, reply: Reply) -> Reply:
        """The primary model's reply, on the same account."""
        with self._lock:
            return self._charged("good", body["model"], reply)

    def _kind(self, what: str, weights: dict[str, int]) -> str:
        kind = self._chance.choices(list(weights), list(weights.values()))[0]
        self.kinds[f"{kind} {what}"] += 1
        return kind

    def _plan(self, kind: str, artifacts: list[Shown]) -> Reply:
        if kind == "prose":
            return Reply(text="I would include all of them.")
        if kind == "list":
            return Reply(json=[1, 2])
        if kind == "invented":
            return plan_of(decision("art_of_nobody", "exclude"))
        if kind == "refused":
            return self._refused()
        some = self._chance.sample(artifacts, self._chance.randint(1, len(artifacts))) if artifacts else []
        strategies = STRATEGIES if kind == "good" else ("exclude", "exclude", "summarize")
        made = [
            decision(
                each.artifact_id,
                self._chance.choice(strategies),
                self._chance.randint(-1, 3),
                summarization_focus=f"focus {self._chance.randrange(3)}",
                extraction_query=self._chance.choice([None, "lamp", "keeper of lamp 7", ""]),
            )
            for each in some
        ]
        reply = plan_of(*made, queries=("keeper", "lamp") if kind == "good" else ())
        return self._broken(kind, reply)

    def _summary(self, kind: str) -> Reply:
        if kind == "refused":
            return self._refused()
        text = {"empty": " ", "long": "A summary that says no less than its source. " * 3000}.get(kind)
        return self._broken(
            kind, Reply(text=text or f"Summary {self._chance.randrange(10**9)}: lamps and their keepers.")
        )

    def _refused(self) -> Reply:
        """Also 404s, which do not speak of the model."""
        return Reply(status=self._chance.choice([400, 404, 429, 500, 503]))

    def _broken(self, kind: str, reply: Reply) -> Reply:
        if kind == "cut":
            reply.cut_after = 10
        elif kind == "late":
            reply.delay_first = self.late
        else:
            reply.delay_first = self._chance.choice([0.0, 0.01, 0.05])
        return reply

    def _charged(self, kind: str, model: str, reply: Reply) -> Reply:
        """The reply, with a usage of odd figures that is written down, if it has one."""
        if kind in UNREPORTED:
            return reply
        prompt, completion = self._chance.randrange(1, 99_999), self._chance.randrange(1, 9_999)
        rates = PRICES[model]
        self.charged += (prompt * rates[0]).quantize(PICO) + (completion * rates[1]).quantize(PICO)
        reply.usage = count_usage(prompt, completion)
        return reply
