"""Somebody who asks through the gateway under a key, and what is secret of what was said."""

import itertools
from typing import Any

import pytest

from tests.support.answers import Json, assistant, ok, user
from tests.support.gateway_process import GatewayProcess
from tests.support.matched import TOOLS, call
from tests.support.mock_upstream import MockUpstream
from tests.support.tool_loop import result

SECRET = "the balance is 1234"


PAPER = "the will leaves all to the cat"


THOUGHT = "she must not know of the cat"


SECRETS = (SECRET, PAPER, THOUGHT)


_numbers = itertools.count()


class Person:
    """Asks through the gateway under one key; `user` is sent with each request, if there is one."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream, key: str, name: str | None = None) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.key = key
        self.who = {"user": name} if name else {}

    def post(self, messages: list[Json], reply: Json | None = None, *, headers: Any = None, **body: Any) -> Any:
        """The whole response."""
        if reply is not None:
            self.upstream.reply(message=reply)
        sent = {"model": "gpt-4o", "messages": messages, "tools": TOOLS, **self.who, **body}
        return self.gateway.post("/chat/completions", json=sent, headers=headers or {}, key=self.key)

    def ask(self, messages: list[Json], reply: Json | None = None, **body: Any) -> Json:
        """The answer."""
        return ok(self.post(messages, reply, **body))

    def get(self, path: str) -> Any:
        """The response to a GET."""
        return self.gateway.get(path, key=self.key)

    def account(self, question: str, answer: str, call_id: str = "call_0", *, paper: bool = True) -> Json:
        """A turn with reasoning, a tool's result and a `paper` attached, by a loop that resends all."""
        step = {**call(call_id), "reasoning_content": THOUGHT}
        self.ask([user(question)], step, attachments=[{"title": "will", "content": PAPER}] if paper else None)
        return self.ask([user(question), step, result(call_id, SECRET)], assistant(answer))

    def told(self, *, of: int = 1) -> bool:
        """Whether any of the last requests went up with something secret in it."""
        return any(secret in str(chat.body) for chat in self.upstream.chats[-of:] for secret in SECRETS)


@pytest.fixture
def question() -> str:
    """Words that no other test says."""
    return f"How much is on account {next(_numbers)}?"
