"""Requests of all kinds and fates, the provider's part in each, and what their client saw of them."""

import asyncio
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import httpx

from tests.support.edges import PATHS, Edge, common, said_by
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Record
from tests.support.provider_account import PRICES, UNPRICED, Account, Charged
from tests.support.reply import JsonDict, Reply, error_body

WEIGHTS = {
    "answered": 10, "tools": 3, "choices": 3, "kept alive once": 1, "overflow": 1,
    "refused": 2, "key refused": 1, "reset": 1, "page": 1, "late": 1,
    "no usage": 2, "usage refused": 1, "cut": 2, "error event": 1, "left early": 2, "left in the middle": 3,
}  # fmt: skip
"""How often each fate comes, in their proportion."""
STREAMED = {"usage refused", "error event", "left in the middle"}
CHARGED = {"answered", "tools", "choices", "kept alive once"}
"""The fates that end with usage reported by the provider."""
UNCHARGED = {"refused", "key refused", "reset", "overflow"}
LEFT = {"left early", "left while planned", "left while summarized"}
"""Those whose client leaves before the answer begins; the latter two only where contexts are planned."""
LATE = "hasty"
PATIENCE = 0.4
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
TEXT = "one two three four five six"


@dataclass(frozen=True)
class Request:
    """One request as its client sends it."""

    number: int
    fate: str
    model: str
    stream: bool
    usage: JsonDict
    tier: str | None
    options: JsonDict
    edge: Edge = "chat"

    @property
    def body(self) -> JsonDict:
        """What goes over the wire."""
        said = {"role": "user", "content": f"request #{self.number} of many"}
        body = {"model": self.model, "messages": [said], "stream": self.stream, **self.options}
        return body if self.edge == "chat" else said_by(self.edge, common(body))


@dataclass
class Seen:
    """What the client got."""

    request: Request
    request_id: str | None = None
    completion_id: str | None = None
    status: int | None = None
    bill: JsonDict | None = None
    done: bool = False
    bills: list[JsonDict] = field(default_factory=list)


def configured_models(upstream: MockUpstream) -> list[JsonDict]:
    """`model_list` for all models of the price list, one without prices, and one of little patience."""

    def entry(name: str, info: JsonDict, **more: Any) -> JsonDict:
        params = {"model": f"openai/own-{name}", "api_base": upstream.base_url, "api_key": "sk-upstream", **more}
        facts = {"max_input_tokens": 1_000_000, "max_output_tokens": 1000, "tokenizer": "o200k_base"}
        return {"model_name": name, "litellm_params": params, "model_info": {**facts, **info}}

    models = [entry(name, dict(prices.configured())) for name, prices in PRICES.items()]
    return [
        *models,
        entry(UNPRICED, {}),
        entry(LATE, dict(PRICES["plain"].configured()), timeout={"first_byte": PATIENCE}),
    ]


def mixed(number: int, seed: int, edges: Sequence[Edge] = ("chat",)) -> list[Request]:
    """So many requests, the same for the same seed, by these APIs in turn; each of these meets every fate that is
    possible there."""
    dice = random.Random(seed)
    every = [fate for fate in WEIGHTS for _ in edges]
    fates = [*every, *dice.choices(list(WEIGHTS), list(WEIGHTS.values()), k=number - len(every))]
    made = [_request(dice, i, fate) for i, fate in enumerate(fates)]
    return [_by(edges[each.number % len(edges)], each) for each in made]


def _by(edge: Edge, request: Request) -> Request:
    """The same by another API, if that has words for it: several choices are a chat's alone, and the others always
    tell usage."""
    if edge == "chat" or request.fate == "choices":
        return request
    options = {name: value for name, value in request.options.items() if name != "stream_options"}
    return replace(request, edge=edge, options=options)


def _request(dice: random.Random, number: int, fate: str) -> Request:
    model = LATE if fate == "late" else dice.choice([*PRICES, UNPRICED])
    stream = fate in STREAMED or dice.random() < 0.5
    options: JsonDict = {"store": dice.random() < 0.6, "context": {"mode": dice.choice(["off", "auto", "simple"])}}
    if fate == "tools":
        options["tools"] = TOOLS
    if fate == "choices":
        options["n"] = dice.choice([2, 3])
    if stream and dice.random() < 0.5:
        options["stream_options"] = {"include_usage": True}
    tier = dice.choice([None, "default", "priority", "flex"]) if model == "served" else None
    return Request(number, fate, model, stream, _usage(dice, model), tier, options)


def _usage(dice: random.Random, model: str) -> JsonDict:
    prompt = dice.choice([1, 7, dice.randrange(100_000), 200_000, 200_001, dice.randrange(200_000, 900_000)])
    answer = dice.choice([1, 2, dice.randrange(1, 5000)])
    usage: JsonDict = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
    if dice.random() < 0.5:
        usage["prompt_tokens_details"] = {"cached_tokens": dice.randrange(prompt // 2 + 1)}
    if dice.random() < 0.5:
        usage["completion_tokens_details"] = {"reasoning_tokens": dice.randrange(answer + 1)}
    if model == "cached" and dice.random() < 0.5:
        written = dice.randrange(prompt // 2 + 1)
        usage["cache_creation_input_tokens"] = written
        usage["cache_creation"] = {"ephemeral_1h_input_tokens": dice.randrange(written + 1)}
    return usage


class Provider:
    """The handler of a mock upstream: plays its part in each request's fate and keeps its own account."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.account = Account()
        self.requests = requests

    def __call__(self, record: Record) -> Reply:
        """The reply to one call."""
        request = self.request_of(record.body)
        call = self.account.arrived(request.number)
        if request.fate in CHARGED and not (request.fate == "kept alive once" and call == 1):
            self.account.charged[request.number] = Charged(request.model, request.usage, request.tier)
        return FATES[request.fate](request, call)

    def request_of(self, body: JsonDict) -> Request:
        """Whose call it is: the question, which names its request, stands at the end."""
        found = re.findall(r"request #(\d+)", body["messages"][-1]["content"])
        assert found, "a request that nobody sent"
        return self.requests[int(found[-1])]

    def holds(self, request: Request) -> bool:
        """Whether the call is here that a client who leaves early does not wait for."""
        return request.number in self.account.calls


def _answer(request: Request, call: int = 2, **script: Any) -> Reply:
    extra = {"service_tier": request.tier} if request.tier else {}
    script = {"text": TEXT, "usage": request.usage, "extra": extra, **script}
    return Reply(**script)


def _refused(status: int, message: str = "no", code: str | None = None) -> Reply:
    return Reply(status=status, json=error_body(status, message, code))


FATES: dict[str, Callable[[Request, int], Reply]] = {
    "answered": _answer,
    "tools": lambda r, c: _answer(r, text=None, tool_calls=[("look_up", {"what": "the weather"}), ("look_up", {})]),
    "choices": _answer,
    "kept alive once": lambda r, c: _answer(r) if c > 1 else Reply(cut_after=-1),
    "overflow": lambda r, c: _refused(400, "too long", "context_length_exceeded"),
    "refused": lambda r, c: _refused((400, 404, 409, 422, 429, 500, 503, 529)[r.number % 8]),
    "key refused": lambda r, c: _refused(401),
    "reset": lambda r, c: Reply(cut_after=-1),
    "page": lambda r, c: Reply(body=b"<html>one moment, please</html>", content_type="text/html"),
    "late": lambda r, c: _answer(r, delay_first=30),
    "no usage": lambda r, c: _answer(r, usage=None),
    "usage refused": lambda r, c: _answer(r, usage=None) if c > 1 else _refused(400, "stream_options: unknown field"),
    "cut": lambda r, c: _answer(r, cut_after=4 if r.stream else 60),
    "error event": lambda r, c: Reply(
        chunks=[_chunk(r, "one"), {"error": {"message": "fell over", "code": None}}], send_done=False
    ),
    "left early": lambda r, c: _answer(r, delay_first=30),
    "left in the middle": lambda r, c: _answer(r, stall_after=4),
}


def _chunk(request: Request, text: str) -> JsonDict:
    named = {"id": "up", "object": "chat.completion.chunk", "created": 1, "model": request.model}
    return {**named, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


async def send_all(gateways: Sequence[GatewayProcess], provider: Provider, at_once: int) -> list[Seen]:
    """Sends the provider's requests, so many at a time, to the gateways in turn; what their clients saw."""
    gate = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=None, keepalive_expiry=None)  # httpx may close one as another takes it
    async with httpx.AsyncClient(trust_env=False, timeout=30, limits=limits) as client:

        async def one(request: Request) -> Seen:
            async with gate:
                gateway = gateways[request.number % len(gateways)]
                seen = Seen(request)
                asking = asyncio.ensure_future(_send(client, f"{gateway.base_url}/{PATHS[request.edge]}", seen))
                if request.fate in LEFT:
                    while not (provider.holds(request) or asking.done()):  # noqa: ASYNC110 - another thread knows
                        await asyncio.sleep(0.01)
                    asking.cancel()
                await asyncio.wait([asking])
                if not asking.cancelled():
                    asking.result()
                return seen

        return await asyncio.gather(*map(one, provider.requests))


async def _send(client: httpx.AsyncClient, url: str, seen: Seen) -> None:
    headers = {"authorization": "Bearer sk-test"}
    async with client.stream("POST", url, json=seen.request.body, headers=headers) as answer:
        seen.status, seen.request_id = answer.status_code, answer.headers["x-request-id"]
        if seen.request.stream and answer.status_code == 200:
            await _read(seen, answer)
        else:
            _take(seen, json.loads(await answer.aread(), parse_float=Decimal))
            seen.done = answer.status_code == 200


ENDS = ("response.completed", "response.incomplete", "message_stop")
"""The last events of whole streams of Responses and Messages."""
DELTAS = ("response.output_text.delta", "content_block_delta")


async def _read(seen: Seen, answer: httpx.Response) -> None:
    chunks = 0
    async for line in answer.aiter_lines():
        if line == "data: [DONE]":
            seen.done = True
        elif line.startswith("data: "):
            value = json.loads(line.removeprefix("data: "), parse_float=Decimal)
            _take(seen, value)
            seen.done = seen.done or value.get("type") in ENDS
            chunks += 2 if value.get("type") in DELTAS else seen.request.edge == "chat"
        if seen.request.fate == "left in the middle" and chunks >= 4:
            return


def _take(seen: Seen, value: JsonDict) -> None:
    value = value.get("response") or value.get("message") or value
    if not isinstance(value, dict):
        return
    seen.completion_id = value.get("id", seen.completion_id)
    bill = value.get("response_metadata")
    if bill and bill.get("cost"):
        seen.bill = bill
        seen.bills.append(bill)
