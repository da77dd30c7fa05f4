"""What the tool `recall` brings, by scripted models or the demo's own. `python -m evals.recalling --help`.

Two scripted models call it, once: one asks again what it was asked, one asks for what the answer needs in its very
words, which no model can know: an upper bound. With `--local` the demo's model has it, too, and calls it or does not.
What counts is what stands before the model when it answers; its calls do not. Budgets in which the gateway offers no
tool tell nothing.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from evals.__main__ import chosen
from evals.cases import Case, load
from evals.local_model import serving
from evals.made import made
from evals.measure import MODEL, held, listening, tokens
from tests.support import o200k
from tests.support.http_server import Record
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.strict_chat import violations

Json = dict[str, Any]
Handler = Callable[[Record], Reply | None]
MAX_CALLS = 4
"""Calls that the gateway answers in one round."""
QUERY_CHARS = 300


def needed(case: Case) -> list[str]:
    """What the answer needs, in its words."""
    found = [
        str(each.get("text") or f"{each['key']} {each.get('field') or ''} {each['val']}") for each in case.evidence
    ]
    return [text[:QUERY_CHARS] for text in found[:MAX_CALLS]]


NO_TOOL = "no tool"
MODELS: dict[str, Callable[[Case], Handler | None]] = {
    NO_TOOL: lambda case: None,
    "asks again": lambda case: _calling([case.question[-QUERY_CHARS:]]),
    "knows what": lambda case: _calling(needed(case)),
}
"""What answers a case for each of them."""


@dataclass
class Found:
    """One case at one budget: the share of the evidence that stood before each model, how often each called the tool,
    and what was wrong."""

    case: Case
    budget: int
    shares: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


class Recalling:
    """A gateway before these models."""

    def __init__(
        self, upstream: MockUpstream, client: httpx.Client, models: Mapping[str, Callable[[Case], Handler | None]]
    ) -> None:
        self._upstream, self._client, self._models = upstream, client, models

    def results(self, cases: list[Case], budgets: list[int] | None = None) -> Iterator[Found]:
        """Each case at each of these budgets, or of its own, at which not everything fits."""
        for case in cases:
            for budget in budgets or case.budgets:
                if tokens(case.flat()) > budget:
                    yield self._measure(case, budget)

    def _measure(self, case: Case, budget: int) -> Found:
        found = Found(case, budget)
        for name, model in self._models.items():
            context = {"max_input_tokens": budget, **({} if name == NO_TOOL else {"recall": True})}
            self._upstream.clear()
            self._upstream.handler = model(case)
            body = {"model": MODEL, "max_tokens": 64, "store": False, "context": context, **case.body}
            answer = self._client.post("/chat/completions", content=json.dumps(body).encode())
            if answer.status_code != 200:
                found.faults.append(f"{name}: {answer.status_code} {answer.text[:120]}")
                found.shares[name] = 0.0
                continue
            sent = self._upstream.last.body or {}
            wrong = violations(sent)
            if o200k.prompt_tokens([], {"tools": sent.get("tools") or []}) + tokens(sent["messages"]) > budget:
                wrong = [*wrong, "over the budget"]
            found.faults += [f"{name}: {each}" for each in wrong]
            found.calls[name] = sum(map(_is_call, sent["messages"]))
            found.shares[name] = held(case, [m for m in sent["messages"] if not _is_call(m)])
        return found


def _calling(queries: list[str]) -> Handler:
    def reply(record: Record) -> Reply | None:
        body = record.body or {}
        if any(map(_is_call, body["messages"])):
            return None
        return Reply(tool_calls=[("recall", {"question": query}) for query in queries])

    return reply


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def _is_call(message: Json) -> bool:
    return any(call["function"]["name"] == "recall" for call in message.get("tool_calls") or ())


def table(results: list[Found]) -> str:
    """Cases of which all evidence stood before the model, in per cent, by suite and budget, and for all."""
    groups: dict[tuple[str, str], list[Found]] = {}
    names = list(results[0].shares) if results else []
    for each in results:
        for key in ((each.case.suite, str(each.budget)), ("all", str(each.budget)), ("all", "any")):
            groups.setdefault(key, []).append(each)
    lines = [f"{'suite':14}{'budget':>8}{'cases':>7}" + "".join(f"{name:>14}" for name in names)]
    for (suite, budget), group in sorted(groups.items()):
        won = (100 * sum(each.shares[name] == 1.0 for each in group) / len(group) for name in names)
        lines.append(f"{suite:14}{budget:>8}{len(group):>7}" + "".join(f"{each:>14.1f}" for each in won))
    return "\n".join(lines)


def main() -> int:
    """Measures and prints; 1 if anything was over budget or invalid."""
    parser = argparse.ArgumentParser(prog="python -m evals.recalling", description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder of SUITE….jsonl(.gz) instead of the project's own cases")
    parser.add_argument("--suites", type=lambda text: text.split(","), help="these alone")
    parser.add_argument("--limit", type=int, help="so many cases of each suite")
    parser.add_argument("--budgets", type=_numbers, help="tokens, in place of those of the cases: 4000,8000")
    parser.add_argument("--local", action="store_true", help="the demo's model (`make demo` installs it): slow")
    given = parser.parse_args()
    cases = chosen(list(load(given.data)) if given.data else made(), given.suites, given.limit)
    with ExitStack() as opened:
        model = opened.enter_context(serving()) if given.local else None
        models = MODELS | ({"demo's model": lambda _: model} if model else {})
        _, upstream, client = opened.enter_context(listening())
        results = []
        for each in Recalling(upstream, client, models).results(cases, given.budgets):
            results.append(each)
            if given.local:  # the next one may take minutes
                print(each.case.identity, each.budget, each.shares, each.calls, flush=True)
    print(table(results))
    for name in models:
        print(f"{name}: {sum(each.calls.get(name, 0) > 0 for each in results)} of {len(results)} called the tool")
    for each in results:
        for fault in each.faults:
            print(f"FAULT {each.case.identity} at {each.budget}: {fault}")
    return 1 if not results or any(each.faults for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
