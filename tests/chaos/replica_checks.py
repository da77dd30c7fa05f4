"""What must be true after a storm over replicas: turns, bills against the providers' account, budgets."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.audit import BODY, STEP_OF, broken_rules, rows
from tests.chaos.replica_clients import Talk
from tests.chaos.replica_upstreams import PRICES, TOO_LATE, Call
from tests.support.provider_account import picodollars

MESSAGES = f"SELECT m.id, m.parent_id, m.role, m.request_id, {BODY} AS body {STEP_OF.format('LEFT')}"
LEDGER = "SELECT request_id, key_id, status, estimated, total_cost_picousd, response_metadata FROM ledger"
CALLS = """SELECT request_id, number, purpose, model, usage, prompt_cost_picousd, completion_cost_picousd, estimated
    FROM ledger_calls"""
SPENT = """SELECT key_id, sum(total_cost_picousd) AS spent, max(total_cost_picousd) AS dearest FROM ledger
    WHERE key_id IS NOT NULL GROUP BY key_id"""
WINDOW = 1.5
"""Seconds for which a call is out at most, its commit included, unless it is too late."""

UNREAD = 0.05
"""Share of the estimated bills at most whose call never reached the provider's ears, since it went down, or was too
busy to read it in time: the gateway cannot know."""


@dataclass(frozen=True)
class Kill:
    """When a replica was killed (`time.monotonic()`)."""

    replica: str
    at: float


def check_turns(storage_url: str, talks: Sequence[Talk]) -> int:
    """Every acknowledged turn is there once, complete, billed as its client was told, behind those before it; how many
    there are."""
    broken = broken_rules(storage_url)
    assert broken == {}, broken
    messages = rows(storage_url, MESSAGES)
    by_id = {row["id"]: row for row in messages}
    by_request: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in messages:
        by_request[row["request_id"]][row["role"]].append(row)
    ledger = {row["request_id"]: row for row in rows(storage_url, LEDGER)}
    found = 0
    for talk in talks:
        before: list[str] = []
        for turn in talk.turns:
            row = ledger[turn.request_id]
            assert row["status"] == "complete", turn
            assert turn.bill["request_id"] == turn.request_id
            asked, answered = (by_request[turn.request_id][role] for role in ("user", "assistant"))
            (own,) = [each for each in asked if turn.question in each["body"]]
            assert [turn.answer in each["body"] for each in answered] == [True], turn
            assert answered[0]["parent_id"] == own["id"], turn
            ancestors = _ancestors(by_id, own)
            assert [each for each in ancestors if each in before] == before[::-1], (talk.style, turn)
            before.append(answered[0]["id"])
            found += 1
        conversations = {turn.conversation_id for turn in talk.turns}
        assert len(conversations) <= 1, (talk.style, conversations)
    return found


def _ancestors(by_id: dict[str, Any], row: Any) -> list[str]:
    found = []
    while row["parent_id"] is not None:
        row = by_id[row["parent_id"]]
        found.append(row["id"])
    return found


class Balance:
    """The ledger against the providers' account."""

    def __init__(
        self, storage_url: str, calls: Sequence[Call], kills: Sequence[Kill], stops: Sequence[tuple[str, float]]
    ) -> None:
        """`stops`: when which provider went down."""
        self._kills, self._stops = kills, stops
        self._calls = {call.name: call for call in calls}
        self._ledger = {row["request_id"]: row for row in rows(storage_url, LEDGER)}
        self._bills = [{**row, "usage": json.loads(row["usage"])} for row in rows(storage_url, CALLS)]
        self.report: Counter[str] = Counter()

    def check(self) -> None:
        """Calls that were answered are billed as they were charged, to the last digit. Those of which an end never came
        are estimated: by the prompt that was sent, at the price of who was asked. What is on no bill was refused, or
        was out in a process that was killed, or its connection was cut before a byte came.
        Raises AssertionError: names what is not so."""
        firm, estimated = self._joined()
        assert sum(_cost(bill) for bill, _ in firm) == sum(call.cost for _, call in firm)
        self.report["picodollars"] = sum(call.cost for _, call in firm)
        for bill, call in firm:
            self._check_firm(bill, call)
        billed = {call.name for _, call in firm}
        rest = self._check_estimated(estimated, billed)
        self._check_unbilled(rest)
        for row in self._ledger.values():
            assert row["total_cost_picousd"] == sum(_cost(bill) for bill in self._by_request[row["request_id"]]), row[
                "request_id"
            ]

    def _joined(self) -> tuple[list[tuple[Any, Call]], list[Any]]:
        """Bills of answered calls with the calls, and the bills of others. The ids of internal models' answers are not
        kept: their usage tells them apart."""
        internal = {(call.role, call.answer): call for call in self._calls.values() if call.role != "primary"}
        firm, estimated = [], []
        self._by_request: dict[str, list[Any]] = defaultdict(list)
        for bill in self._bills:
            self._by_request[bill["request_id"]].append(bill)
            if bill["estimated"]:
                estimated.append(bill)
            elif bill["purpose"] == "primary":
                told = json.loads(self._ledger[bill["request_id"]]["response_metadata"])
                if told["upstream_id"] is None:  # all of its tries were refused
                    assert _cost(bill) == sum(bill["usage"][kind] for kind in KINDS) == 0, bill
                    self.report["refused"] += 1
                    continue
                firm.append((bill, self._calls[told["upstream_id"]]))
            elif _cost(bill):
                firm.append((bill, internal[bill["purpose"], bill["usage"]["completion_tokens"]]))
        names = [call.name for _, call in firm]
        assert len(names) == len(set(names)), "a call stands on one bill"
        self.report["answered"], self.report["estimated"] = len(firm), len(estimated)
        return firm, estimated

    def _check_firm(self, bill: Any, call: Call) -> None:
        assert call.fate == "answered", (bill, call)
        assert _model(bill) == call.model, (bill, call)
        assert [bill["usage"][kind] for kind in KINDS] == [call.prompt, call.answer], (bill, call)
        assert _cost(bill) == call.cost, (bill, call)

    def _check_estimated(self, estimated: list[Any], billed: set[str]) -> list[Call]:
        """Each goes by the prompt of a call that has no other bill; the calls that are left over."""
        out: dict[tuple[str, int], list[Call]] = defaultdict(list)
        for call in self._calls.values():
            if call.name not in billed and call.fate != "refused":
                out[call.model, call.prompt].append(call)
        for calls in out.values():
            calls.sort(key=self._may_be_unbilled, reverse=True)
        unread: list[Any] = []
        for bill in estimated:
            model, usage = _model(bill), bill["usage"]
            assert _cost(bill) == sum(picodollars(PRICES[model], usage)), bill
            if bill["purpose"] == "failed_try":
                assert usage["completion_tokens"] == 0, bill
            if out[model, usage["prompt_tokens"]]:
                out[model, usage["prompt_tokens"]].pop()
            else:
                unread.append(bill)
        assert len(unread) <= len(estimated) * UNREAD, f"nobody was asked so: {unread}"
        self.report["sent and never read"] = len(unread)
        return [call for calls in out.values() for call in calls]

    def _check_unbilled(self, rest: list[Call]) -> None:
        for call in rest:
            assert self._may_be_unbilled(call), f"on no bill: {call}"
            if self._was_killed(call):
                self.report["lost by a kill"] += 1
                self.report["picodollars lost by kills"] += call.cost
            else:
                self.report["cut before a byte"] += 1

    def _may_be_unbilled(self, call: Call) -> bool:
        return self._was_killed(call) or self._was_cut(call)

    def _was_killed(self, call: Call) -> bool:
        """Whether the process that made it was killed meanwhile."""
        length = TOO_LATE if call.fate == "late" else WINDOW
        return any(kill.replica == call.replica and 0 <= kill.at - call.arrived < length for kill in self._kills)

    def _was_cut(self, call: Call) -> bool:
        """Whether its connection was cut before any byte of an answer: nothing is billed for that."""
        stopped = any(name == call.model and 0 <= at - call.arrived < WINDOW for name, at in self._stops)
        return call.fate == "cut" or stopped


def check_budgets(storage_url: str, budgets: dict[str, int]) -> dict[str, float]:
    """By ids of keys, sums in picodollars: none is exceeded by more than one request. What is spent of each."""
    spent = {row["key_id"]: row for row in rows(storage_url, SPENT)}
    shares = {}
    for key_id, budget in budgets.items():
        row = spent[key_id]
        assert row["spent"] <= budget + row["dearest"], (key_id, budget, row)
        shares[key_id] = float(row["spent"] / budget)
    return shares


KINDS = ("prompt_tokens", "completion_tokens")


def _model(bill: Any) -> str:
    return str(bill["model"]).removeprefix("openai/")


def _cost(bill: Any) -> int:
    return int(bill["prompt_cost_picousd"] or 0) + int(bill["completion_cost_picousd"] or 0)
