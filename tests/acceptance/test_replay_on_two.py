"""A replay whose gateway dies in the midst of a turn is gone on with at another (guarantee §11.18)."""

import asyncio

import pytest
import sqlalchemy as sa

from gateway.core.config.settings import StorageSettings
from gateway.storage.database import schema
from gateway.storage.database.sqlite import open_transactions
from tests.support.answers import assistant, exact, user
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres
from tests.support.replaying import chat, refused, replayed, turns
from tests.support.team import Team


async def a_minute_later(url: str) -> None:
    """As if the time was over for which the dead process holds it."""
    transactions = open_transactions(StorageSettings(url=url))
    query = schema.replays.update().values(used_until=sa.null())
    await transactions.run(lambda connection: connection.execute(query).rowcount, write=True)
    await transactions.close()


@pytest.mark.chaos
def test_s11_18_what_a_dead_process_finished_is_not_paid_again(
    postgres: Postgres, start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """§11: turn and place are committed together; for a minute others are told to wait."""
    url = postgres.new_database()
    first, second = (start_gateway({"storage": {"url": url}}) for _ in range(2))
    team = Team(first, upstream)
    with team.client:
        for number in (1, 2):
            upstream.reply(text=f"answer {number}")
            chat(team, user(f"question {number}"))
        upstream.reply(text="first anew")
        upstream.reply(text="second anew, of which a part comes", stall_after=3)
        with team.client.stream("POST", f"/conversations/{team.conversation}/replay", json={}) as answer:
            events = (exact(line.removeprefix("data: ")) for line in answer.iter_lines() if line)
            name = next(events)["replay_id"]
            next(each for each in events if each["object"].endswith("delta") and each["turn"] == 2)
            first.kill9()
    other = Team(second, upstream)
    other.token, other.conversation = team.token, team.conversation
    other.client.headers["authorization"] = f"Bearer {team.token}"
    with other.client:
        waits = other.post(f"/conversations/{other.conversation}/replay", {"replay_id": name})
        refused(waits, 409, "replay_running", "replay_id")
        asyncio.run(a_minute_later(url))
        found = replayed(other, replay_id=name)
        assert [(each["turn"], each["status"]) for each in found.turns] == [(2, "complete")]
        assert len(upstream.chats) == 5
        assert upstream.last.body["messages"][1] == assistant("first anew")
        assert [each["status"] for each in turns(other, replay_id=name)] == ["complete", "complete"]
