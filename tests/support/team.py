"""Agents that speak in one conversation, as their client asks them."""

import itertools
from typing import Any

import httpx

from tests.support.answers import Json, ok
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply

_numbers = itertools.count()


class Team:
    """A client of its own tenant, and what the model was sent."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream) -> None:
        self.gateway, self.upstream = gateway, upstream
        self.token = f"sk-team-{next(_numbers)}"
        self.client = gateway.http(self.token)
        self.conversation: str | None = None

    def post(self, path: str, body: Json) -> httpx.Response:
        return self.client.post(path, json=body)

    def ask(self, agent: Any, *messages: Json, answer: str = "I see.", **fields: Any) -> Json:
        """The answer of an agent, in the team's conversation."""
        self.upstream.handler = lambda _: Reply(text=answer)
        body: Json = {"model": "gpt-4o", "agent": agent, "messages": list(messages), **fields}
        if self.conversation is not None:
            body["conversation"] = self.conversation
        found: Json = ok(self.post("/chat/completions", body))
        self.conversation = found.get("conversation", {}).get("id", self.conversation)
        return found

    def begin(self, **fields: Any) -> Json:
        found: Json = self.post("/conversations", fields).json()
        self.conversation = found["id"]
        return found

    @property
    def sent(self) -> list[Json]:
        """The messages that were forwarded last."""
        found: list[Json] = self.upstream.requests[-1].body["messages"]
        return found

    def items(self) -> list[Json]:
        found: list[Json] = self.client.get(f"/conversations/{self.conversation}/items?order=asc").json()["data"]
        return found


def claude(name: str, **fields: Any) -> Json:
    return {"id": name, "type": "claude-code", **fields}
