"""A connection to PostgreSQL that is cut while a turn is stored, as the client sees it (guarantee §3.6)."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.chaos.audit import broken_rules, rows
from tests.support.answers import Json, assistant, chat, http, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.postgres import Postgres
from tests.support.process import wait_until
from tests.support.proxies import CuttingProxy, Moment


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture(scope="module")
def module_proxy(database: str) -> Iterator[CuttingProxy]:
    made = CuttingProxy(database)
    yield made
    made.close()


@pytest.fixture(scope="module")
def module_behind_proxy(module_proxy: CuttingProxy, module_start_gateway: GatewayFactory) -> GatewayProcess:
    return module_start_gateway({"storage": {"url": module_proxy.url, "timeout": 2.0}})


@pytest.fixture
def proxy(module_proxy: CuttingProxy) -> Iterator[CuttingProxy]:
    yield module_proxy
    module_proxy.let_through()


@pytest.fixture
def gateway(module_behind_proxy: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway whose connections to its database can be cut."""
    return module_behind_proxy


def send(gateway: GatewayProcess, streamed: bool, key: str | None = None, **body: Any) -> httpx.Response:
    headers = {"idempotency-key": key} if key else {}
    with http(gateway) as client:
        return client.post("/chat/completions", json={"model": "gpt-4o", "stream": streamed, **body}, headers=headers)


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


def bills(database: str, answer: httpx.Response) -> list[Json]:
    """The ledger's rows of one request."""
    name = answer.headers["x-request-id"]
    return rows(database, f"SELECT status, error_code, total_cost_picousd FROM ledger WHERE request_id = '{name}'")


def check_acknowledged(answer: httpx.Response, streamed: bool) -> None:
    assert answer.status_code == 200, answer.text
    if streamed:
        assert answer.text.endswith("data: [DONE]\n\n")
        assert '"error"' not in answer.text
    else:
        assert answer.json()["choices"][0]["message"]["content"] == "a2"


def check_refused(answer: httpx.Response, streamed: bool) -> None:
    """An error instead of the acknowledgement, in OpenAI's shape, that names nothing of the database."""
    if streamed:
        assert answer.status_code == 200
        last = answer.text.removesuffix("\n\n").rpartition("\n\n")[2]
        error = json.loads(last.removeprefix("data: "))["error"]
        assert "[DONE]" not in answer.text
        assert '"finish_reason":"stop"' not in answer.text
    else:
        assert answer.status_code == 503
        error = answer.json()["error"]
        assert "a2" not in answer.text
    assert error["code"] == "storage_unavailable"
    assert "postgres" not in json.dumps(error)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("moment", ["within", "before the commit", "after the commit"])
def test_s3_6_a_connection_that_is_cut_alone_is_no_clients_business(
    gateway: GatewayProcess, upstream: MockUpstream, proxy: CuttingProxy, database: str, moment: Moment, streamed: bool
) -> None:
    """§3.6: rolled back it is written again, gone through it is acknowledged: one turn, one bill."""
    named = begun(gateway, upstream)
    proxy.cut(moment)
    upstream.reply(text="a2")
    answer = send(gateway, streamed, messages=[user("q2")], **named)
    assert proxy.has_cut.wait(proxy.SECONDS)
    check_acknowledged(answer, streamed)
    assert history(gateway, upstream, named) == [user("q1"), assistant("a1"), user("q2"), assistant("a2")]
    (bill,) = bills(database, answer)
    assert (bill["status"], bill["error_code"]) == ("complete", None)
    assert broken_rules(database) == {}


@pytest.mark.parametrize(("moment", "streamed"), [("within", False), ("before the commit", True),
    ("after the commit", False), ("after the commit", True)])  # fmt: skip
def test_s3_6_a_storage_that_stays_away_at_the_commit_is_an_error_instead_of_the_acknowledgement(
    gateway: GatewayProcess, upstream: MockUpstream, proxy: CuttingProxy, database: str, moment: Moment, streamed: bool
) -> None:
    """§3.6: the history is whole or as it was before; the bill is there once, by itself once the storage is back."""
    named = begun(gateway, upstream)
    proxy.cut(moment, then_refuse=True)
    upstream.reply(text="a2")
    answer = send(gateway, streamed, messages=[user("q2")], **named)
    assert proxy.has_cut.wait(proxy.SECONDS)
    check_refused(answer, streamed)
    proxy.let_through()
    wait_until(lambda: len(bills(database, answer)) == 1, "the late bill")
    (bill,) = bills(database, answer)
    stored = moment == "after the commit"
    assert bill["error_code"] == (None if stored else "turn_not_stored")
    assert bill["total_cost_picousd"] > 0
    turn = [user("q2"), assistant("a2")] if stored else []
    assert history(gateway, upstream, named) == [user("q1"), assistant("a1"), *turn]
    assert len(bills(database, answer)) == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_s3_6_a_commit_of_which_nobody_can_say_yet_is_no_acknowledgement(
    gateway: GatewayProcess, upstream: MockUpstream, proxy: CuttingProxy, database: str, streamed: bool
) -> None:
    """§3.6: the server comes to the COMMIT only after its client has got an error: the turn stands whole, once."""
    named = begun(gateway, upstream)
    proxy.cut("commit on its way")
    upstream.reply(text="a2")
    answer = send(gateway, streamed, messages=[user("q2")], **named)
    check_refused(answer, streamed)
    proxy.release()
    assert history(gateway, upstream, named) == [user("q1"), assistant("a1"), user("q2"), assistant("a2")]
    (bill,) = bills(database, answer)
    assert (bill["status"], bill["error_code"]) == ("complete", None)


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
    check_refused(send(gateway, False, key, **ask), False)
    proxy.let_through()
    upstream.handler = lambda _: Reply(text="a2")
    calls = len(upstream.chats)
    answers: list[httpx.Response] = []

    def free() -> bool:
        answers.append(send(gateway, False, key, **ask))
        return answers[-1].status_code != 409

    wait_until(free, "the claim", interval=0.2)
    check_acknowledged(answers[-1], False)
    stored = moment == "after the commit"
    assert answers[-1].headers.get("idempotent-replayed") == ("true" if stored else None)
    assert len(upstream.chats) - calls == (0 if stored else 1)
    assert send(gateway, False, key, **ask).json() == answers[-1].json()
    assert history(gateway, upstream, named) == [user("q1"), assistant("a1"), user("q2"), assistant("a2")]
