"""This version and the next one, real processes of both, on one PostgreSQL through an upgrade (ADR 10)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.storage.database import schema
from tests.chaos.audit import broken_rules, rows
from tests.support.answers import Json, assistant, chat, http, stored_of, user
from tests.support.continuing import Talk
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Record, Reply
from tests.support.next_version import NEXT, next_sources
from tests.support.postgres import Postgres
from tests.support.process import wait_until

KINDS = [(whole, begun_on_old) for whole in (False, True) for begun_on_old in (False, True)]


def ready(gateway: GatewayProcess) -> int:
    return httpx.get(f"{gateway.url}/health/ready", trust_env=False).status_code


def lives(gateway: GatewayProcess) -> bool:
    try:
        return httpx.get(f"{gateway.url}/health/live", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.chaos
def test_a_rolling_upgrade_loses_and_doubles_nothing(
    start_gateway: GatewayFactory, upstream: MockUpstream, postgres: Postgres, tmp_path: Path
) -> None:
    """ADR 10, §3.1, §3.2: conversations of both versions are continued by both, while the schema changes, too; both
    are ready all the time."""
    url = postgres.new_database()
    storage = {"storage": {"url": url}}
    next_version = {"PYTHONPATH": str(next_sources(tmp_path / "next"))}
    old = [start_gateway(storage) for _ in range(2)]
    assert revision(url) == schema.REVISION
    talks = {kind: Talk(upstream, f"talk {kind}") for kind in KINDS}
    for kind in KINDS:
        if kind[1]:
            talks[kind].begin(old[0])
            talks[kind].ask(old[1], whole=kind[0], by_id=True)

    with Talking(old, upstream) as talking:
        new = start_gateway(storage, next_version)
    assert talking.failed == []
    assert revision(url) == NEXT
    assert [ready(each) for each in (*old, new)] == [200, 200, 200]

    for kind in KINDS:
        if not kind[1]:
            talks[kind].begin(new)
    for gateway in (new, old[0], new, new, old[1], old[0], new):
        for (whole, _), talk in talks.items():
            assert talk.ask(gateway, whole=whole, by_id=True) == talk.id
            if gateway is new:
                assert talk.ask(new, whole=True, by_id=False) == talk.id
    check_at_once([old[0], new], upstream, talks[False, True])

    old[1].terminate()
    old[1].spawn_only()  # an upgrade that is taken back
    wait_until(lambda: lives(old[1]), "the version before")
    for (whole, _), talk in talks.items():
        assert talk.ask(old[1], whole=whole, by_id=True) == talk.id
    assert (ready(old[1]), revision(url)) == (200, NEXT)

    for each in old:
        each.terminate()
    last = start_gateway(storage, next_version)
    for (whole, _), talk in talks.items():
        for gateway in (last, new):
            assert talk.ask(gateway, whole=whole, by_id=True) == talk.id
            assert talk.ask(gateway, whole=True, by_id=False) == talk.id
        told = [each["choices"][0]["message"]["content"] for each in stored_of(last, talk.id)]
        assert sorted(told) == sorted(each["content"] for each in talk.said[1::2])
    assert broken_rules(url) == {}
    assert all("Traceback" not in each.log_text() for each in (*old, new, last))


def revision(url: str) -> str:
    return str(rows(url, "SELECT version_num FROM alembic_version")[0]["version_num"])


class Talking:
    """Clients that talk all the time, each with a conversation of its own."""

    def __init__(self, gateways: list[GatewayProcess], upstream: MockUpstream) -> None:
        self.failed: list[str] = []
        self._gateways = gateways
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(4)
        upstream.handler = lambda record: Reply(text=f"re: {record.body['messages'][-1]['content']}")
        self._upstream = upstream

    def __enter__(self) -> "Talking":
        self._running = [self._pool.submit(self._talk, number) for number in range(4)]
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for each in self._running:
            each.result(30)
        self._pool.shutdown()
        self._upstream.handler = None

    def _talk(self, client: int) -> None:
        named: Json = {"context": {"session": f"while migrating {client}"}}
        number = 0
        with http(self._gateways[client % 2]) as plain:
            while not self._over.is_set() or number < 3:
                body = {"model": "gpt-4o", "messages": [user(f"c{client} n{number}")], **named}
                answer = plain.post("/chat/completions", json=body)
                if answer.status_code != 200:
                    self.failed.append(answer.text)
                number += 1
        seen = [
            chat for chat in self._upstream.chats if chat.body["messages"][-1]["content"] == f"c{client} n{number - 1}"
        ]
        before = [user(f"c{client} n{n}") for n in range(number - 1)]
        if not self.failed and [each for each in seen[0].body["messages"] if each["role"] == "user"][:-1] != before:
            self.failed.append(f"lost or doubled: {seen[0].body['messages']}")


def check_at_once(gateways: list[GatewayProcess], upstream: MockUpstream, talk: Talk) -> None:
    """§3.7: ten deltas at once, half of them at either version: all there, each whole."""
    gate = threading.Event()

    def held(record: Record) -> Reply:
        return Reply(text=f"re: {record.body['messages'][-1]['content']}", gate=gate)

    before = len(upstream.chats)
    upstream.handler = held

    def ask(number: int) -> Any:
        body = {"model": "gpt-4o", "messages": [user(f"at once {number}")], "conversation": talk.id}
        return chat(gateways[number % 2], **body)

    with ThreadPoolExecutor(10) as pool:
        asked = [pool.submit(ask, number) for number in range(10)]
        upstream.wait_for_chats(before + 10)
        gate.set()
        for each in asked:
            each.result()
    upstream.reply(text="all of them")
    chat(gateways[1], model="gpt-4o", messages=[user("and?")], conversation=talk.id)
    forwarded = upstream.last.body["messages"]
    assert forwarded[: len(talk.said)] == talk.said
    new = forwarded[len(talk.said) : -1]
    assert sorted(each["content"] for each in new[::2]) == [f"at once {n}" for n in range(10)]
    assert all(reply["content"] == f"re: {asked['content']}" for asked, reply in zip(new[::2], new[1::2], strict=True))
    talk.said += [*new, user("and?"), assistant("all of them")]
    upstream.handler = None
