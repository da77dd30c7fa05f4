"""Calls of internal models that one request made, before they are priced (contract §6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

Purpose = Literal["planner", "summarizer", "embedder"]


@dataclass(frozen=True, slots=True)
class InternalCall:
    """One call: `route` names where it went (`Deployment.route`), `usage` is in OpenAI's names, `prices` in LiteLLM's.
    `estimated`: the gateway counted, as the model reported nothing or was cut off."""

    purpose: Purpose
    route: str
    usage: Mapping[str, Any]
    prices: Mapping[str, Decimal]
    estimated: bool = False
