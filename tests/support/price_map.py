"""LiteLLM's own price list, and sums by it."""

import importlib.util
import json
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from pathlib import Path

from tests.support.answers import Json, there

ZERO = Decimal(0)


@cache
def price_map() -> Json:
    spec = there(importlib.util.find_spec("litellm"))
    path = Path(there(spec.origin)).parent / "model_prices_and_context_window_backup.json"
    found: Json = json.loads(path.read_text("utf-8"), parse_float=Decimal)
    return found


def rounded(parts: Json, prices: Json) -> Decimal:
    """The sum of tokens times prices, rounded as the guarantee says."""
    total = sum((Decimal(prices[name]) * tokens for name, tokens in parts.items()), ZERO)
    return total.quantize(Decimal("1e-12"), rounding=ROUND_HALF_EVEN)
