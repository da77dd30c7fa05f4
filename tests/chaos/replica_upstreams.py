"""The providers of a storm: two deployments of one model, one that answers in its place, and one that plans; each has
its moods, and all keep one account."""

import itertools
import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from tests.support.documents import prompt_tokens, tokens
from tests.support.http_server import Record
from tests.support.internal_models import decision, plan_of, role_of, shown
from tests.support.mock_upstream import MockUpstream
from tests.support.provider_account import PriceList, Rates, picodollars
from tests.support.reply import Reply, count_usage

Json = dict[str, Any]
PAIR, SPARE, PLANNER = "pair", "spare", "gpt-4o-mini"
DEPLOYMENTS = ("pair-a", "pair-b", SPARE, PLANNER)
PRICES = {
    "pair-a": PriceList(Rates(prompt="0.000003", answer="0.000005")),
    "pair-b": PriceList(Rates(prompt="0.000007", answer="0.000011")),
    SPARE: PriceList(Rates(prompt="0.000013", answer="0.000017")),
    PLANNER: PriceList(Rates(prompt="0.00000015", answer="0.0000006")),
}
BEGINS_AFTER = 0.15
"""Seconds to the first byte of an answer."""
TOO_LATE = 5.0
"""Seconds to the first byte of one that no gateway waits for."""
TIMEOUT = 1.0
"""Seconds for which gateways wait for a byte."""
REPLICA = "x-replica"
"""A header by which a provider knows who asks."""


@dataclass
class Call:
    """One call that arrived. `fate`: `answered` in full as far as the provider knows, `refused` and not charged,
    `late`, `cut` before the first byte, or `torn` in the middle of its stream."""

    name: str
    model: str
    replica: str
    role: str
    fate: str
    prompt: int
    answer: int
    arrived: float
    body: Json

    @property
    def cost(self) -> int:
        """Picodollars, if it was answered in full."""
        return sum(picodollars(PRICES[self.model], count_usage(self.prompt, self.answer)))

    @property
    def asked(self) -> str:
        """The last message."""
        return str(self.body["messages"][-1]["content"])


class Upstreams:
    """All providers of a storm, each at an address of its own."""

    def __init__(self, seed: int) -> None:
        tokens("A vocabulary is loaded when it is first used, and no answer shall wait for that.")
        self.calls: list[Call] = []
        self.stops: list[tuple[str, float]] = []
        """When which of them went down."""
        self._chance = random.Random(seed)
        self._serial = itertools.count(1)
        self._lock = threading.Lock()
        self._ends = ExitStack()
        self._mocks = {name: self._ends.enter_context(MockUpstream()) for name in DEPLOYMENTS}
        self._moods = dict.fromkeys(DEPLOYMENTS, "well")
        for name, mock in self._mocks.items():
            mock.strict = False
            mock.handler = self._handler(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in DEPLOYMENTS:
            self.turn(name, "well")
        self._ends.close()

    def model_list(self, replica: str) -> list[Json]:
        """The configuration of one replica, by whose header the providers know it."""
        return [
            {
                "model_name": PAIR if name.startswith(PAIR) else name,
                "litellm_params": {
                    "model": f"openai/{name}",
                    "api_base": self._mocks[name].base_url,
                    "api_key": "sk-upstream",
                    "timeout": TIMEOUT,
                    "extra_headers": {REPLICA: replica},
                },
                "model_info": {"max_input_tokens": 60_000, "tokenizer": "o200k_base", **PRICES[name].configured()},
            }
            for name in DEPLOYMENTS
        ]

    def turn(self, name: str, mood: str) -> None:
        """From now on it is in this mood: `well`, `down`, `500`, `429`, `slow`, `cut` before a byte, or `torn` in the
        middle of some streams."""
        before, self._moods[name] = self._moods[name], mood
        if mood == "down" != before:
            self.stops.append((name, time.monotonic()))
            self._mocks[name].stop()
        elif before == "down" != mood:
            self._mocks[name].start()

    def _handler(self, name: str) -> Callable[[Record], Reply]:
        def reply(record: Record) -> Reply:
            with self._lock:
                return self._reply(name, record)

        return reply

    def _reply(self, name: str, record: Record) -> Reply:
        body: Json = record.body
        number, mood, role = next(self._serial), self._moods[name], role_of(body)
        if mood == "torn" and (not body.get("stream") or self._chance.random() < 0.5):
            mood = "well"  # of streams alone, and of some
        text, answer = self._text(number, role, body)
        fates = {"500": "refused", "429": "refused", "slow": "late", "cut": "cut", "torn": "torn"}
        call = Call(
            f"up-{number}", name, record.headers.get(REPLICA, ""), role, fates.get(mood, "answered"),
            prompt_tokens(body), answer, time.monotonic(), body,
        )  # fmt: skip
        self.calls.append(call)
        script: Json = {
            "text": text,
            "usage": count_usage(call.prompt, call.answer),
            "extra": {"id": call.name},
            "delay_first": BEGINS_AFTER,
        }
        match mood:
            case "500":
                return Reply(status=500)
            case "429":
                return Reply(status=429, headers={"retry-after": "2"})
            case "slow":
                script["delay_first"] = TOO_LATE
            case "cut":
                script["cut_after"] = -1
            case "torn":
                script["cut_after"] = 4
        return Reply(**script)

    def _text(self, number: int, role: str, body: Json) -> tuple[str, int]:
        """What is answered, and the tokens it is charged with: of internal models so many that no two are alike, since
        the gateway does not keep the ids of their answers."""
        if role == "planner":
            strategies = ("include_full", "exclude", "summarize")
            plan = plan_of(
                *(
                    decision(each.artifact_id, strategies[number % 3], 1, summarization_focus="lamps")
                    for each in shown(body)
                )
            )
            return ("I had rather not." if number % 7 == 0 else str(plan.text)), 10_000 + number
        if role == "summarizer":
            return f"A summary, the {number}th.", 10_000 + number
        text = f"answer-{number} in a few words"
        return text, tokens(text)
