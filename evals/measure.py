"""Sends cases through a gateway on a port and looks at what its upstream was sent."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from evals import evidence
from evals.baselines import BASELINES
from evals.cases import Case
from tests.support import o200k
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.strict_chat import violations

Json = dict[str, Any]
MODEL = "measured"
PICTURE = 85
SECONDS = 1200
"""Until a model answers: the demo's own takes minutes for a long prompt."""


@dataclass
class Result:
    """One case at one budget. Tokens by a count of the eval's own; `added_ms` is all time but the model's."""

    case: Case
    budget: int
    sent: int
    forwarded: int = 0
    share: float = 0.0
    over: bool = False
    invalid: list[str] = field(default_factory=list)
    differs: bool = False
    added_ms: float = 0.0
    baselines: dict[str, float] = field(default_factory=dict)

    @property
    def won(self) -> bool:
        """Every piece of evidence reached the model."""
        return self.share == 1.0

    @property
    def faulty(self) -> bool:
        return self.over or self.differs or bool(self.invalid)


class Measuring:
    """A gateway and its upstream."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream, client: httpx.Client) -> None:
        self._gateway, self._upstream, self._client = gateway, upstream, client

    def results(self, cases: list[Case], *, twice: bool) -> Iterator[Result]:
        """Each case at each of its budgets at which not everything fits."""
        for case in cases:
            total = tokens(case.flat())
            if held(case, case.flat()) < 1.0:
                raise ValueError(f"{case.identity}: its evidence does not stand in what is sent")
            for budget in case.budgets:
                if total > budget:
                    yield self._measure(case, budget, total, twice=twice)

    def _measure(self, case: Case, budget: int, total: int, *, twice: bool) -> Result:
        result = Result(case, budget, total)
        for name, keep in BASELINES.items():
            result.baselines[name] = held(case, keep(case.flat(), budget, tokens))
        forwarded = self._forwarded(case, budget, result)
        if forwarded is None:
            return result
        tools = self._upstream.last.body or {}
        result.forwarded = o200k.prompt_tokens([], {"tools": tools.get("tools") or []}) + tokens(forwarded)
        result.over = result.forwarded > budget
        result.share = held(case, forwarded)
        result.invalid = _invalid(case, forwarded)
        if twice:
            again = self._forwarded(case, budget, Result(case, budget, total))
            result.differs = again != forwarded
        return result

    def _forwarded(self, case: Case, budget: int, result: Result) -> list[Json] | None:
        """What the model was sent; None if the gateway refused."""
        body = {"model": MODEL, "max_tokens": 64, "store": False, "context": {"max_input_tokens": budget}, **case.body}
        if names := _tools(case.messages):
            body["tools"] = [_definition(name) for name in names]
        raw = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        self._upstream.clear()
        self._upstream.count_prompt = lambda _: 1
        begun = time.perf_counter()
        answer = self._client.post("/chat/completions", content=raw, headers={"content-type": "application/json"})
        total_ms = 1000 * (time.perf_counter() - begun)
        if answer.status_code != 200:
            result.invalid = [f"{answer.status_code}: {answer.text[:120]}"]
            return None
        result.added_ms = total_ms - answer.json()["response_metadata"]["timings_ms"]["upstream"]
        messages: list[Json] = (self._upstream.last.body or {})["messages"]
        return messages


@contextmanager
def measuring(fork_server: ForkServer | None = None) -> Iterator[Measuring]:
    """What measures each case, by what its upstream is sent."""
    with listening(fork_server) as parts:
        yield Measuring(*parts)


@contextmanager
def listening(
    fork_server: ForkServer | None = None,
) -> Iterator[tuple[GatewayProcess, MockUpstream, httpx.Client]]:
    """The gateway as its operators run it, before an upstream that only listens, and a client of it."""
    with MockUpstream() as upstream:
        entry = {
            "model_name": MODEL,
            "litellm_params": {"model": "openai/gpt-4o", "api_base": upstream.base_url, "api_key": "sk-eval-000000"},
            "model_info": {"max_input_tokens": 1_000_000, "max_output_tokens": 1000, "tokenizer": "o200k_base"},
        }
        config = {"model_list": [entry], "server": {"log_level": "warning"}}
        with (
            GatewayProcess(config, fork_server=fork_server) as gateway,
            httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=SECONDS) as client,
        ):
            warm = {"model": MODEL, "store": False, "messages": [{"role": "user", "content": "é" * 9000}]}
            client.post("/chat/completions", json=warm)  # the vocabulary is loaded at the first count
            yield gateway, upstream, client


def tokens(messages: list[Json]) -> int:
    """By OpenAI's published rules."""
    return sum(map(_of_message, messages))


def _of_message(message: Json) -> int:
    known = _counts.get(id(message))
    if known is None or known[0] is not message:
        known = _counts[id(message)] = (message, _counted(message))
    return known[1]


def _counted(message: Json) -> int:
    """A picture counts as the least that one can take: how large it is, is not looked at here."""
    content = message.get("content")
    if not isinstance(content, list):
        return o200k.message_tokens(message)
    texts = [part for part in content if part["type"] != "image_url"]
    return o200k.message_tokens({**message, "content": texts}) + PICTURE * (len(content) - len(texts))


_counts: dict[int, tuple[Json, int]] = {}
"""Counts by message: a history belongs to many cases."""


def held(case: Case, messages: list[Json]) -> float:
    """The share of the evidence that stands in the messages."""
    bodies = [evidence.plain(evidence.said(message)) for message in messages]
    found = [evidence.holds(each, bodies) for each in case.evidence]
    return sum(found) / len(found)


def _invalid(case: Case, forwarded: list[Json]) -> list[str]:
    """What a strict provider would refuse, and what no client would want changed."""
    wrong = violations({"model": MODEL, "messages": forwarded})
    systems = [m for m in case.messages if m["role"] in ("system", "developer")]
    if [m for m in forwarded if m["role"] in ("system", "developer")] != systems:
        wrong.append("other system messages")
    asked = [m for m in case.messages if m["role"] == "user"]
    kept = [m for m in forwarded if m["role"] == "user"]
    if not kept or evidence.plain(_last_words(asked[-1])) not in evidence.plain(evidence.said(kept[-1])):
        wrong.append("another question")
    if forwarded[-1]["role"] != case.messages[-1]["role"]:
        wrong.append("another last message")
    return wrong


def _last_words(message: Json) -> str:
    """What stands last in it: the question."""
    content = message["content"]
    texts = [p["text"] for p in content if p["type"] == "text"] if isinstance(content, list) else [content]
    return str(texts[-1])[-500:].partition(" ")[2] if len(texts[-1]) > 500 else str(texts[-1])


def _tools(messages: list[Json]) -> list[str]:
    calls = [call for m in messages for call in m.get("tool_calls") or ()]
    return sorted({call["function"]["name"] for call in calls})


def _definition(name: str) -> Json:
    parameters: Json = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}
