"""A client that tries again after its connection to PostgreSQL was cut at the commit (guarantee §3.6).

`tests/integration/test_commit_lost.py` has what is stored then, `test_storage_down.py` what each API says of it.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, assistant, chat, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.postgres import Postgres
from tests.support.process import wait_until
from tests.support.proxies import CuttingProxy, Moment


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[CuttingProxy]:
    made = CuttingProxy(postgres.new_database())
    yield made
    made.close()


@pytest.fixture
def gateway(proxy: CuttingProxy, start_gateway: GatewayFactory) -> GatewayProcess:
    """A gateway whose connections to its database can be cut."""
    return start_gateway({"storage": {"url": proxy.url, "timeout": 2.0}})


def send(gateway: GatewayProcess, key: str, **body: Any) -> httpx.Response:
    return gateway.post("/chat/completions", json={"model": "gpt-4o", **body}, headers={"idempotency-key": key})


def begun(gateway: GatewayProcess, upstream: MockUpstream) -> Json:
    """A conversation with one turn: how it is named."""
    upstream.reply(text="a1")
    return {"conversation": chat(gateway, model="gpt-4o", messages=[user("q1")])["conversation"]["id"]}


def history(gateway: GatewayProcess, upstream: MockUpstream, named: Json) -> list[Any]:
    """What the next request finds."""
    chat(gateway, model="gpt-4o", messages=[user("next")], **named)
    messages: list[Any] = upstream.last.body["messages"]
    assert messages[-1] == user("next")
    return messages[:-1]


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_s3_6_who_asks_again_with_the_same_key_gets_one_turn_and_one_answer(
    gateway: GatewayProcess, upstream: MockUpstream, proxy: CuttingProxy, moment: Moment
) -> None:
    """§3.6: after an error at the commit the client tries again. What was stored all the same is answered from there,
    what was not is asked anew (the claim is free a few seconds after the storage is back)."""
    named = begun(gateway, upstream)
    key, ask = f"again {moment}", {"messages": [user("q2")], **named}
    proxy.cut(moment, then_refuse=True)
    upstream.reply(text="a2")
    refused = send(gateway, key, **ask)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "storage_unavailable")
    assert "postgres" not in refused.text
    proxy.let_through()
    upstream.handler = lambda _: Reply(text="a2")
    calls = len(upstream.chats)
    answers: list[httpx.Response] = []

    def free() -> bool:
        answers.append(send(gateway, key, **ask))
        return answers[-1].status_code != 409

    wait_until(free, "the claim", interval=0.2)
    assert answers[-1].json()["choices"][0]["message"]["content"] == "a2"
    stored = moment == "after the commit"
    assert answers[-1].headers.get("idempotent-replayed") == ("true" if stored else None)
    assert len(upstream.chats) - calls == (0 if stored else 1)
    assert send(gateway, key, **ask).json() == answers[-1].json()
    assert history(gateway, upstream, named) == [user("q1"), assistant("a1"), user("q2"), assistant("a2")]
