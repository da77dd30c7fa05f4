"""Clients of several replicas, by the official SDKs with the tries that these make: what each of them was told."""

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx
import httpx2
import openai

from tests.chaos.replica_upstreams import PAIR
from tests.support.answers import Json, assistant, user
from tests.support.gateway_process import GatewayProcess

LONGEST = 12
"""Most tokens of an answer that clients allow."""
MAX_TURNS = 5
LAMPS = "The keeper of the lamp writes down the oil that is left. " * 12
FAULTS = (openai.APIError, anthropic.APIError, httpx.TransportError, httpx2.TransportError)


@dataclass
class Sent:
    """What was sent for one turn, over all tries: the last of them brought the answer, if any did."""

    tries: int = 0
    began: float = 0.0
    first: float = 0.0
    request_id: str = ""
    conversation_id: str | None = None


SENT: ContextVar[Sent] = ContextVar("SENT")


class Balancer:
    """Sends each try to any replica that counts as up, as a load balancer does."""

    def __init__(self, chance: random.Random) -> None:
        self.up: dict[str, int] = {}
        """Ports of replicas, by their URLs."""
        self._chance = chance

    def transport(self, library: Any) -> Any:
        """A transport of `httpx`, or of the library by the name that Anthropic's SDK has for it."""
        balancer, inner = self, library.AsyncHTTPTransport(limits=library.Limits(max_connections=None))

        class Transport(library.AsyncBaseTransport):  # type: ignore[misc]
            async def handle_async_request(self, request: Any) -> Any:
                return await balancer.send(request, inner)

            async def aclose(self) -> None:
                await inner.aclose()

        return Transport()

    async def send(self, request: Any, inner: Any) -> Any:
        """One try."""
        sent, port = SENT.get(), self._chance.choice(list(self.up.values()))
        request.url = request.url.copy_with(port=port)
        request.headers["host"] = f"127.0.0.1:{port}"
        sent.tries, sent.began = sent.tries + 1, time.monotonic()
        sent.first = sent.first or sent.began
        answer = await inner.handle_async_request(request)
        sent.request_id = answer.headers.get("x-request-id", "")
        sent.conversation_id = answer.headers.get("x-conversation-id")
        return answer


@dataclass
class Turn:
    """An acknowledged turn."""

    request_id: str
    question: str
    answer: str
    seconds: float
    """Of the try that was answered."""
    whole_seconds: float
    """Of all tries, and the SDK's pauses between them."""
    bill: Json
    conversation_id: str | None


@dataclass
class Talk:
    """One conversation, and how its client continues it."""

    style: str
    turns: list[Turn] = field(default_factory=list)
    previous: str | None = None
    """The id of the last response."""

    @property
    def conversation_id(self) -> str | None:
        """Which it is."""
        return self.turns[-1].conversation_id if self.turns else None

    @property
    def resent(self) -> list[Json]:
        """All that was said."""
        return [each for turn in self.turns for each in (user(turn.question), assistant(turn.answer))]


STYLES = ("chat", "chat by id", "responses", "messages", "planned")


class Clients:
    """All that talk to the replicas. `talks` is what they were told; `refused` counts errors by key and code."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.balancer = Balancer(self._chance)
        self.talks: list[Talk] = []
        self.refused: dict[str, Counter[str]] = {}
        self.counted: dict[str, list[float]] = {}
        """When requests of a key had begun that were answered, and do not say that no limit could be checked."""
        self._numbers = itertools.count(1)
        self._http: Any = httpx.AsyncClient(transport=self.balancer.transport(httpx), timeout=30)
        self._http2: Any = httpx2.AsyncClient(transport=self.balancer.transport(httpx2), timeout=30)
        self._sdks: dict[tuple[str, int, bool], Any] = {}
        self.is_stormy = self.over = False

    async def close(self) -> None:
        await self._http.aclose()
        await self._http2.aclose()

    def _sdk(self, key: str, retries: int, *, claude: bool) -> Any:
        known = self._sdks.get((key, retries, claude))
        if known is None:
            options: Any = {
                "api_key": key,
                "max_retries": retries,
                "http_client": self._http2 if claude else self._http,
            }
            base = "http://127.0.0.1:1"
            known = anthropic.AsyncAnthropic(base_url=base, **options) if claude else None
            known = known or openai.AsyncOpenAI(base_url=f"{base}/v1", **options)
            self._sdks[key, retries, claude] = known
        return known

    async def talk(self, key: str, style: str, *, pause: float) -> None:
        """One client after another: each has a conversation of a few turns."""
        while not self.over:
            talk = Talk(style)
            self.talks.append(talk)
            for _ in range(1 if style == "planned" else self._chance.randint(1, MAX_TURNS)):
                await asyncio.sleep(self._chance.uniform(0.5, 1.5) * pause)
                if self.over or not await self.turn(talk, key, retries=2):
                    break

    async def hammer(self, calm: str, stormy: str, *, pause: float) -> None:
        """Asks again and again without waiting for what an answer says; a budget that is used up is asked less often.
        One key is for calm weather, the other for storms."""
        while not self.over:
            key = stormy if self.is_stormy else calm
            talk = Talk("chat")
            self.talks.append(talk)
            before = self.refused.setdefault(key, Counter())["budget_exceeded"]
            await self.turn(talk, key, retries=0)
            spent = self.refused[key]["budget_exceeded"] > before
            await asyncio.sleep(1.0 if spent else self._chance.uniform(0.5, 1.5) * pause)

    async def turn(self, talk: Talk, key: str, *, retries: int) -> bool:
        """One question; whether it was acknowledged. What was not is not said again."""
        question = f"question-{next(self._numbers)}-asked: how much oil?"
        sent = Sent()
        SENT.set(sent)
        stream = self._chance.random() < 0.5
        try:
            text, bill = await self._asked(talk, key, question, stream=stream, retries=retries)
        except FAULTS as error:
            self.refused.setdefault(key, Counter())[_named(error)] += 1
            return False
        now = time.monotonic()
        if "limits_unavailable" not in bill["context_utilization"]["warnings"]:
            self.counted.setdefault(key, []).append(sent.began)
        talk.turns.append(
            Turn(sent.request_id, question, text, now - sent.began, now - sent.first, bill, sent.conversation_id)
        )
        return True

    async def _asked(self, talk: Talk, key: str, question: str, *, stream: bool, retries: int) -> tuple[str, Any]:
        client = self._sdk(key, retries, claude=talk.style == "messages")
        if talk.style == "messages":
            return await _message(client, [*talk.resent, user(question)], stream)
        if talk.style == "responses":
            return await _response(client, talk, question, stream)
        body: Any = {"messages": [*talk.resent, user(question)]}
        if talk.style == "chat by id" and talk.conversation_id:
            body = {"messages": [user(question)], "extra_body": {"conversation": talk.conversation_id}}
        if talk.style == "planned":
            found = {"title": "Log", "content": f"Log of {question}\n\n{LAMPS}"}
            body["extra_body"] = {"attachments": [found], "context": {"planning": "always"}}
        return await _chat(client, body, stream)


async def _chat(client: openai.AsyncOpenAI, body: Any, stream: bool) -> tuple[str, Any]:
    made: Any = await client.chat.completions.create(model=PAIR, max_tokens=LONGEST, stream=stream, **body)
    if not stream:
        return made.choices[0].message.content, made.response_metadata
    text, bill = "", None
    async for chunk in made:
        for choice in chunk.choices:
            text += choice.delta.content or ""
        bill = getattr(chunk, "response_metadata", None) or bill
    assert bill, "a stream that ended well has its bill"
    assert bill.get("cost"), "a stream that ended well has its bill"
    return text, bill


async def _response(client: Any, talk: Talk, question: str, stream: bool) -> tuple[str, Any]:
    more: Any = {"previous_response_id": talk.previous} if talk.previous else {}
    made: Any = await client.responses.create(
        model=PAIR, input=question, max_output_tokens=LONGEST, stream=stream, **more
    )
    if stream:
        last = None
        async for event in made:
            last = event
        if last is None or last.type != "response.completed":
            raise openai.APIError(f"ended by {getattr(last, 'type', None)}", request=_NO_REQUEST, body=None)
        made = last.response
    talk.previous = made.id
    return made.output_text, made.response_metadata


async def _message(client: Any, messages: Any, stream: bool) -> tuple[str, Any]:
    if not stream:
        made: Any = await client.messages.create(model=PAIR, max_tokens=LONGEST, messages=messages)
        return made.content[0].text, made.response_metadata
    text, bill, ended = "", None, False
    async for event in await client.messages.create(model=PAIR, max_tokens=LONGEST, messages=messages, stream=True):
        if event.type == "content_block_delta":
            text += event.delta.text
        bill = getattr(event, "response_metadata", None) or bill
        ended = event.type == "message_stop"
    if not ended:
        raise openai.APIError("ended early", request=_NO_REQUEST, body=None)
    return text, bill


_NO_REQUEST = httpx.Request("POST", "http://127.0.0.1:1")


def _named(error: Exception) -> str:
    """The gateway's code of an error, or what it is."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else {}
    code = inner.get("code") if isinstance(inner, dict) else None
    return str(code or getattr(error, "status_code", None) or type(error).__name__)


@dataclass
class Watched:
    """What a replica said to one key, and when it was asked (`time.monotonic()`)."""

    at: float
    replica: str
    key: str
    status: int


async def watch(
    gateways: list[GatewayProcess], keys: list[str], is_over: Callable[[], bool], seen: list[Watched]
) -> None:
    """Asks each replica again and again what it thinks of keys, past the balancer."""
    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        while not is_over():
            for gateway, key in itertools.product(gateways, keys):
                began = time.monotonic()
                with contextlib.suppress(httpx.TransportError):
                    answer = await client.get(f"{gateway.base_url}/models", headers={"authorization": f"Bearer {key}"})
                    seen.append(Watched(began, gateway.url, key, answer.status_code))
            await asyncio.sleep(0.3)
