"""A gateway, its upstream and clients, for the histories that `history_machine` makes up."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx

from tests.chaos.audit import rows
from tests.support.answers import ok
from tests.support.gateway_process import GatewayProcess
from tests.support.history_model import Ask, Json
from tests.support.http_server import Record
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import Closing, wait_until

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
LONG = " word" * 50
WAIT_SECONDS = 20.0


@dataclass(frozen=True)
class Script:
    """How the upstream answers one request."""

    kind: str = "text"
    stream: bool = False
    text: str = ""
    calls: tuple[str, ...] = ()
    wants: int = 1
    """How many tools are called at once."""
    reasoning: str = ""

    def message(self, text: str | None = None) -> Json:
        """The answer of the first choice."""
        content: str | None = self.text if text is None else text
        found: Json = {"role": "assistant", "content": content or None if self.calls else content}
        if self.reasoning:
            found["reasoning_content"] = self.reasoning
        if self.calls:
            function = {"name": "look", "arguments": '{"at": "it"}'}
            found["tool_calls"] = [{"id": name, "type": "function", "function": function} for name in self.calls]
        return found

    def choices(self) -> list[Json]:
        """All the answers."""
        return [self.message(), self.message(f"{self.text} too")] if self.kind == "two" else [self.message()]

    def reply(self, gate: threading.Event | None) -> Reply:
        """What the mock does."""
        if self.kind.startswith("error"):
            return Reply(status=int(self.kind.removeprefix("error")), gate=gate)
        reply = Reply(choices=[{"message": message} for message in self.choices()], gate=gate)
        if self.kind.startswith("cut"):
            reply.cut_after = int(self.kind.removeprefix("cut"))
        if self.kind == "leave":
            reply.stall_after = 2
        return reply


@dataclass
class Heard:
    """What became of a request: for the client, and at the upstream."""

    status: int
    body: Json = field(default_factory=dict)
    conversation: str | None = None
    """As the header says."""
    text: str | None = None
    """What a stream delivered."""
    reasoning: str = ""
    done: bool = True
    """Whether the client got the whole answer."""
    forwarded: list[Json] | None = None


class World(Closing):
    """Sends requests, and tells what went up for each of them."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream, storage_url: str) -> None:
        self.gateway = gateway
        self.storage_url = storage_url
        self.upstream = upstream
        self._serial = itertools.count(1)
        self._scripts: dict[int, Reply] = {}
        self._arrived: dict[int, list[Json]] = {}
        self._threads = ThreadPoolExecutor(2)
        self._client = httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=WAIT_SECONDS)
        upstream.handler = self._answer

    def close(self) -> None:
        self._client.close()
        self._threads.shutdown()

    def number(self) -> int:
        """A number that was never used before."""
        return next(self._serial)

    def send(self, key: str, ask: Ask, script: Script) -> Heard:
        """One request, to its end."""
        return self._heard(self.number(), key, ask, script, None)

    def send_two(
        self, key: str, asks: Sequence[Ask], scripts: Sequence[Script], last: int, between: Callable[[Heard], None]
    ) -> Heard:
        """Two requests that are both under way before either is answered; `between` sees the one answered first."""
        gates = [threading.Event(), threading.Event()]
        numbers = [self.number(), self.number()]
        made = [
            self._threads.submit(self._heard, numbers[i], key, asks[i], scripts[i], gates[i]) for i in range(len(gates))
        ]
        try:
            wait_until(
                lambda: all(n in self._arrived or f.done() for n, f in zip(numbers, made, strict=True)),
                "two requests at once",
                interval=0.002,
            )
            gates[1 - last].set()
            between(made[1 - last].result(WAIT_SECONDS))
        finally:
            gates[last].set()
            gates[1 - last].set()
        return made[last].result(WAIT_SECONDS)

    def bills(self, key: str, conversation: str) -> list[Json]:
        """A conversation's stored completions, oldest first."""
        headers = {"authorization": f"Bearer {key}"}
        query: dict[str, str | int] = {"conversation": conversation, "limit": 100}
        answer = ok(self._client.get("/chat/completions", params=query, headers=headers))
        found: list[Json] = answer["data"]
        return found

    def delete(self, key: str, conversation: str) -> int:
        """Deletes a conversation; the status of the answer."""
        return self._client.delete(
            f"/conversations/{conversation}", headers={"authorization": f"Bearer {key}"}
        ).status_code

    def stored_twice(self, conversations: Sequence[str]) -> list[Json]:
        """Messages that clients sent and that are stored beside their like under the same message."""
        names = ", ".join(f"'{name}'" for name in conversations)
        return rows(self.storage_url, f"{TWICE} AND a.conversation_id IN ({names})") if names else []

    def _answer(self, record: Record) -> Reply:
        self._arrived[record.body["seed"]] = record.body["messages"]
        return self._scripts.pop(record.body["seed"])

    def _heard(self, number: int, key: str, ask: Ask, script: Script, gate: threading.Event | None) -> Heard:
        self._scripts[number] = script.reply(gate)
        streamed = script.stream or script.kind == "leave" or script.kind.startswith("cut")
        body: Json = {"model": "gpt-4o", "messages": ask.messages, "seed": number, "tools": TOOLS}
        body |= {"stream": True} if streamed else {}
        body |= {"n": 2} if script.kind == "two" else {}
        body |= {"conversation": ask.conversation} if ask.conversation else {}
        body |= {"context": {"session": ask.session}} if ask.session else {}
        body |= {"user": ask.user} if ask.user else {}
        body |= {} if ask.store else {"store": False}
        with self._client.stream(
            "POST", "/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}
        ) as answer:
            heard = Heard(answer.status_code, conversation=answer.headers.get("x-conversation-id"))
            if answer.status_code != 200 or not streamed:
                heard.body = json.loads(answer.read())
            else:
                _read_events(answer, heard, leaves=script.kind == "leave")
        if not heard.done:
            self._wait_for_bill(key, answer.headers["x-request-id"])
        heard.forwarded = self._arrived.pop(number, None)
        self._scripts.pop(number, None)
        return heard

    def _wait_for_bill(self, key: str, request_id: str) -> None:
        """What an abandoned stream leaves is committed after its client has gone."""
        headers = {"authorization": f"Bearer {key}"}
        path = f"/chat/completions/{request_id}"
        found = lambda: self._client.get(path, headers=headers).status_code == 200  # noqa: E731
        wait_until(found, "the bill of a broken stream", interval=0.005)


TWICE = """SELECT a.id, b.id AS other, a.body FROM messages a JOIN messages b ON a.conversation_id = b.conversation_id
    AND a.digest = b.digest AND (a.parent_id = b.parent_id OR (a.parent_id IS NULL AND b.parent_id IS NULL))
    WHERE a.id <> b.id AND a.choice IS NULL AND a.status <> 'failed' AND b.status <> 'failed'"""


def _read_events(answer: httpx.Response, heard: Heard, *, leaves: bool) -> None:
    """Reads a stream; a client that `leaves` does so as soon as it has read something that was said."""
    heard.text, heard.done = "", False
    for data in _events(answer):
        if data == "[DONE]":
            heard.done = True
            continue
        chunk = json.loads(data)
        heard.body = heard.body or chunk
        for choice in chunk.get("choices", ()):
            if choice["index"] == 0:
                heard.text += choice["delta"].get("content") or ""
                heard.reasoning += choice["delta"].get("reasoning_content") or ""
        if leaves and heard.text:
            return


def _events(answer: httpx.Response) -> Iterator[str]:
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


def answer_of(heard: Heard, script: Script) -> list[Json]:
    """The answers as the gateway must remember them: whole, or of the first as much as was delivered."""
    if heard.done:
        return script.choices()
    thought = {"reasoning_content": heard.reasoning} if heard.reasoning else {}
    return [{"role": "assistant", "content": heard.text or "", **thought}]
