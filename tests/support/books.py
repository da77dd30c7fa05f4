"""A provider's books of planned requests."""

import random
import threading
from decimal import Decimal

from tests.support.answers import Json
from tests.support.reply import Reply, count_usage

PRICES = {"small": (Decimal("0.000001"), Decimal("0.000002")), "gpt-4o-mini": (Decimal("1.5e-7"), Decimal("6e-7"))}


PICO = Decimal("1e-12")


class Books:
    """What the provider reckons for each call that it answered, by its own count, reported or not."""

    def __init__(self, seed: int) -> None:
        self.total = Decimal(0)
        self.calls = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def charge(self, body: Json, reply: Reply) -> Reply:
        """The reply, with a usage of odd figures that is written down."""
        prompt, completion = self._random.randrange(1, 99_999), self._random.randrange(1, 9_999)
        rates = PRICES[body["model"]]
        with self._lock:
            self.calls += 1
            self.total += (prompt * rates[0]).quantize(PICO) + (completion * rates[1]).quantize(PICO)
        reply.usage = count_usage(prompt, completion)
        return reply
