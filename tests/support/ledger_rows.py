"""Rows of the ledger as the gateway writes them and the storage gives them back, and figures of all kinds for them."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from gateway.billing.cost import ledger_figures, price_call, total_cost
from gateway.billing.metadata import add_bill, response_metadata
from gateway.core import jsons
from gateway.core.types.bill import CallCost, ContextUtilizationMetadata, ResponseMetadata
from gateway.core.types.turn import LARGEST_KEPT, LedgerEntry, LedgerFigures, LedgerRow
from tests.unit.making import NOW

NAMES = [
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
    "cache_creation_input_token_cost_above_1hr",
    "input_cost_per_audio_token",
    "output_cost_per_audio_token",
    "output_cost_per_reasoning_token",
]


SUFFIXES = ["", "_above_128k_tokens", "_above_200k_tokens", "_priority", "_flex", "_above_200k_tokens_priority"]


counts = st.one_of(st.integers(0, 300_000), st.integers(0, 10**12), st.sampled_from([10**15, -1, None, "7", 1.5, True]))


price = st.one_of(
    st.decimals(0, "0.1", places=17), st.sampled_from([Decimal(0), Decimal("1e-20"), Decimal("12345.678901234567")])
)


prices = st.dictionaries(st.builds(lambda a, b: a + b, st.sampled_from(NAMES), st.sampled_from(SUFFIXES)), price)


usages = st.fixed_dictionaries(
    {"prompt_tokens": counts, "completion_tokens": counts},
    optional={
        "total_tokens": counts,
        "service_tier": st.sampled_from(["priority", "flex", "default", "unheard-of"]),
        "cache_read_input_tokens": counts,
        "cache_creation_input_tokens": counts,
        "cache_creation": st.fixed_dictionaries({"ephemeral_1h_input_tokens": counts}),
        "prompt_tokens_details": st.one_of(
            st.none(),
            st.dictionaries(st.sampled_from(["cached_tokens", "cache_creation_tokens", "audio_tokens"]), counts),
        ),
        "completion_tokens_details": st.one_of(
            st.none(), st.dictionaries(st.sampled_from(["reasoning_tokens", "audio_tokens"]), counts)
        ),
    },
)


calls = st.builds(
    lambda purpose, usage, known, estimated: price_call(purpose, "m", usage, known, estimated=estimated),
    st.sampled_from(["planner", "summarizer"]),
    usages,
    prices,
    st.booleans(),
)


def row_of(*made: CallCost, **entry: Any) -> LedgerRow:
    """A row as the gateway writes it and the storage gives it back."""
    known = ResponseMetadata("req_1", None, None, "m", [], None, None, ContextUtilizationMetadata("m"))
    add_bill(known, made, total_cost(made))
    assert known.cost is not None
    assert known.usage is not None
    kept = tuple(
        replace(
            call,
            usage=jsons.loads_decimal(jsons.dumps(call.usage)),
            rates=jsons.loads_decimal(jsons.dumps(call.rates)),
            prompt_cost=_kept(call.prompt_cost),
            completion_cost=_kept(call.completion_cost),
        )
        for call in made
    )
    fields: dict[str, Any] = {
        "request_id": "req_1",
        "tenant": "t",
        "conversation_id": None,
        "completion_id": "chatcmpl-1",
        "model": "m",
        "status": "complete",
        "stream": False,
        "created_at": datetime(2026, 11, 22, tzinfo=UTC),
        "metadata": jsons.loads_decimal(jsons.dumps(response_metadata(known))),
        "calls": kept,
        "figures": _counted(made, response_metadata(known)),
    }
    estimated = any(call.estimated for call in made)
    usage = known.usage
    total = _kept(known.cost.total_cost)
    return LedgerRow(LedgerEntry(**fields | entry), usage.prompt_tokens, usage.completion_tokens, total, estimated)


def _counted(made: tuple[CallCost, ...], metadata: dict[str, Any]) -> LedgerFigures:
    """The columns by which reports add up, as the storage gives them back."""
    found = ledger_figures(metadata, made)
    return replace(
        found,
        known_cost=_kept(found.known_cost),
        planning_cost=_kept(found.planning_cost) or Decimal(0),
        direct_cost=_kept(found.direct_cost),
        net_saving=_kept(found.net_saving),
    )


def _kept(value: Decimal | None) -> Decimal | None:
    return None if value is None else max(-LARGEST_KEPT, min(value, LARGEST_KEPT))


CHEAP = {"input_cost_per_token": Decimal("1.1e-07"), "output_cost_per_token": Decimal("3.3e-07")}


def call(purpose: str, tokens: int, prices: dict[str, Decimal] | None = None, *, estimated: bool = False) -> CallCost:
    usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
    return price_call(purpose, "m", usage, CHEAP if prices is None else prices, estimated=estimated)


def entry(*calls: CallCost) -> LedgerEntry:
    """A bill as it is read from the storage."""
    known = ResponseMetadata(
        "req_1", None, None, "m", ["m"], None, None, ContextUtilizationMetadata("m"), {"total": 1.5}
    )
    add_bill(known, calls, total_cost(calls))
    metadata: dict[str, Any] = jsons.loads_decimal(jsons.dumps_text(response_metadata(known)))
    return LedgerEntry("req_1", "t", None, None, "m", "complete", False, NOW, metadata, calls)
