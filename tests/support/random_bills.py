"""Bills of every kind, written as the gateway writes them."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from gateway.billing.cost import ledger_figures, price_call, total_cost
from gateway.core.types.bill import PICO, usage_of
from gateway.core.types.turn import LedgerEntry, TurnCommit, TurnStatus
from tests.integration.commits import bill, turn

RATES = ("input_cost_per_token", "output_cost_per_token")
CHEAP = dict.fromkeys(RATES, PICO)
DEAR = dict.fromkeys(RATES, Decimal(70_000))
PRICES: tuple[dict[str, Decimal], ...] = (CHEAP, CHEAP, {}, DEAR)


def random_entry(
    chance: random.Random, tenants: Sequence[str], times: Sequence[datetime], conversation_id: str | None = None
) -> LedgerEntry:
    """Any bill that balances: priced or not, planned or not, tiny or dear, metered or not, at a saving or a loss, with
    or without names."""
    prices = chance.choice(PRICES)
    usage = {
        "prompt_tokens": chance.choice([0, 7, 10**12 if prices == CHEAP else 2]),
        "completion_tokens": chance.choice([0, 3]),
        "prompt_tokens_details": {"cached_tokens": chance.choice([0, 2])},
    }
    calls = [price_call("primary", "m", usage, prices, estimated=chance.random() < 0.3)]
    if chance.random() < 0.5:
        calls.append(price_call("planner", "p", {"prompt_tokens": 2}, chance.choice([CHEAP, {}])))
    cost, planning = total_cost(tuple(calls))
    counted = usage_of(usage)
    saving = {"economics": {"realised_saving": chance.choice([7, -3]) * PICO}} if chance.random() < 0.3 else {}
    direct = chance.choice([0, 3, 10**9]) * PICO
    told = {"direct_cost": f"{direct:f}", "net_saving": f"{direct - (cost.total_cost or 0):f}"}
    held = chance.choice([{}, {"holdout": True}, {"holdout": False}])
    metadata = {
        **({"economics": {**told, **held}} if chance.random() < 0.6 else {}),
        "usage": {name: getattr(counted, name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")},
        "cost": {name: getattr(cost, name) for name in cost.__dataclass_fields__},
        "context_utilization": {
            "planning_cost": {name: getattr(planning, name) for name in planning.__dataclass_fields__},
            **saving,
        },
    }
    fields: dict[str, Any] = {
        "model": chance.choice(["gpt-4o", "o3"]),
        "created_at": chance.choice(times),
        "end_user": chance.choice([None, "ann", "bob"]),
        "agent": chance.choice([None, "critic"]),
        "endpoint": chance.choice([None, "embeddings"]),
        "key_id": chance.choice([None, "key_1"]),
        "project": chance.choice([None, "shop"]),
        "calls": tuple(calls),
        "metadata": metadata,
    }
    status: TurnStatus = chance.choice(["complete", "partial", "failed"])
    entry = bill(chance.choice(tenants), conversation_id, status, **fields)
    return replace(entry, figures=ledger_figures(metadata, entry.calls))


def with_turn(entry: LedgerEntry, conversation_id: str, *, created: bool) -> TurnCommit:
    """A bill with a turn of a conversation."""
    made = turn(entry.tenant, conversation_id, created=created)
    return replace(made, ledger=replace(entry, conversation_id=conversation_id))
