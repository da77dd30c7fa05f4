"""Storms in which a model plans contexts, and answers at random: well, badly, late, broken (guarantee §3, §5, §6)."""

import asyncio
import json
import random
import re
from collections import Counter

import httpx
import pytest

from tests.chaos.audit import rows
from tests.chaos.storm import Storm
from tests.chaos.talks import Talks
from tests.support.answers import user
from tests.support.command import gateway_command
from tests.support.documents import lamps, prompt_tokens, text_of
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.http_server import Record
from tests.support.internal_models import InternalModels, Json, role_of
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres
from tests.support.process import wait_until
from tests.support.random_planner import PICO, RandomPlanner
from tests.support.reply import Reply
from tests.support.valkey import Valkey

BUDGET = 4096 - 512
REQUESTS = 400
LEDGER = "SELECT request_id, response_metadata FROM ledger"
CALLS = "SELECT request_id, purpose, prompt_cost_picousd, completion_cost_picousd, estimated FROM ledger_calls"


def long_document(number: int) -> str:
    """What is attached, or a tool found: more than half a window, with words that nothing else holds."""
    return f"document-{number}-found\n\n{lamps(40)}"


def planning(storage_url: str, seconds: float) -> Json:
    """A configuration in which planners are asked, and waited for so long."""
    patience = {"planner_timeout": seconds, "summarizer_timeout": seconds}
    warning = {"log_level": "warning"}
    return {"context": {"planning": "auto", **patience}, "storage": {"url": storage_url}, "server": warning}


def outcomes(storage_url: str) -> Counter[str]:
    """How many bills tell of a plan that was used, and of each reason why there is none."""
    told = [json.loads(row["response_metadata"]).get("context_utilization") for row in rows(storage_url, LEDGER)]
    found = Counter(f"fallback {used['fallback_reason']}" for used in told if used and used["fallback_reason"])
    return found + Counter("planned" for used in told if used and used["llm_planning_used"])


def check_adds_up(gateway: GatewayProcess) -> None:
    """Every bill is the sum of its calls at their rates."""
    done = gateway_command("audit", "--config", str(gateway.config_path), directory=gateway.directory)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.chaos
async def test_kills_while_contexts_are_planned_lose_double_or_halve_no_turn(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    """§3.6: as without planning; what was forwarded keeps its budget, and every bill adds up."""
    planner = RandomPlanner(seed=3, late=3.0)
    gateway = start_gateway(planning(storage_url, 0.5))
    talks = Talks(random.Random(3), model="small", document=long_document)
    storm = Storm([gateway], upstream, storage_url, seed=3, talks=talks)
    forwarded: list[Json] = []

    def reply(record: Record) -> Reply:
        if role_of(record.body) == "primary":
            forwarded.append(record.body)
            return storm.reply(record)
        return models(record) or Reply()

    models = InternalModels(planner.plan, planner.summarize)
    upstream.handler = reply
    await storm.run(16)
    assert storm.broken >= 5, "requests that a kill broke off"
    assert storm.acknowledged >= 60, "turns that are there to be lost"
    over = [count for count in map(prompt_tokens, forwarded) if count > BUDGET]
    assert not over
    found = outcomes(storage_url)
    assert found["planned"] >= 20
    assert len(found) >= 6, f"reasons for a fallback: {found}"
    check_adds_up(gateway)


@pytest.mark.chaos
async def test_the_bills_of_four_hundred_planned_requests_are_what_the_provider_charged(
    start_gateway: GatewayFactory, upstream: MockUpstream, postgres: Postgres, valkey: Valkey
) -> None:
    """§5, §6: two gateways, one database and one cache; all are answered, within the budget, whatever the planner does.

    Calls that reported nothing are estimated; all others are billed as charged, each once, to the last digit.
    """
    storage_url = postgres.new_database()
    config = {**planning(storage_url, 5.0), "cache": {"url": valkey.url, "timeout": 2.0}}
    config["storage"] = {"url": storage_url, "timeout": 60.0}  # a loaded machine may be slow; a 503 would be no bill
    gateways = [start_gateway(config) for _ in range(2)]
    planner = RandomPlanner(seed=5, late=30.0)
    models = InternalModels(planner.plan, planner.summarize, lambda body: planner.answer(body, Reply(text="Well.")))
    upstream.handler = models
    chance, numbers, statuses = random.Random(6), iter(range(REQUESTS)), Counter[int]()

    async def client(http: httpx.AsyncClient) -> None:
        for number in numbers:
            url = f"{gateways[number % 2].base_url}/chat/completions"
            statuses[(await http.post(url, json=asked(number, chance))).status_code] += 1

    headers = {"authorization": "Bearer sk-test"}
    async with httpx.AsyncClient(trust_env=False, timeout=60, headers=headers) as http, asyncio.TaskGroup() as clients:
        for _ in range(24):
            clients.create_task(client(http))
    assert statuses == {200: REQUESTS}
    wait_until(lambda: len(rows(storage_url, LEDGER)) == REQUESTS, "the last bill", interval=0.1)
    calls = rows(storage_url, CALLS)
    firm = [row for row in calls if not row["estimated"]]
    billed = sum(int(row["prompt_cost_picousd"]) + int(row["completion_cost_picousd"]) for row in firm)
    assert billed == int(planner.charged / PICO)
    for purpose, asked_for in (("primary", models.answered), ("planner", models.planned)):
        assert sum(row["purpose"] == purpose for row in calls) == len(asked_for)
    for body in models.answered:
        assert prompt_tokens(body) <= BUDGET
        assert re.search(r"Who is the keeper of lamp \d+\?$", text_of(body)), "the user's own words stand at the end"
    found = outcomes(storage_url)
    assert found["planned"] >= REQUESTS / 3
    assert {f"fallback planner_{why}" for why in ("timeout", "answer_no_json", "answer_rubbish")} <= set(found), found
    check_adds_up(gateways[0])


def asked(number: int, chance: random.Random) -> Json:
    """A question about a document of its own, and one that many others ask about, too."""
    own = {"title": f"Own {number}", "content": f"Log of watch {number}.\n\n{lamps(chance.randint(5, 60))}"}
    shared = {"title": "Shared", "content": f"Edition {number % 5}.\n\n{lamps(60)}"}
    question = user(f"Who is the keeper of lamp {number % 60}?")
    return {"model": "small", "messages": [question], "attachments": [own, shared], "stream": chance.random() < 0.3}
