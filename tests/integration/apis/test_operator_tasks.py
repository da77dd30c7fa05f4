"""What operators want to know or do, each within three clicks from the overview, by what stands on the page."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from gateway.core.config.settings import StorageSettings
from gateway.storage.database import schema
from gateway.storage.database.sqlite import open_transactions
from tests.support.answers import Json, user
from tests.support.documents import lamps
from tests.support.factory import GatewayFactory
from tests.support.gateway_here import on_loop
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.web_page import PageClient
from tests.support.web_visitor import PageVisitor

ADMIN, SPENDER = "gw-operator-key-1", "gw-spender-key-22"
MOST = 3
"""Clicks."""


@dataclass
class Office:
    """A gateway after a day's work, with the names of what happened."""

    gateway: GatewayProcess
    failed: str
    dear: str
    cut: str
    made_key: str


@pytest.fixture(scope="module")
def office(module_start_gateway: GatewayFactory, module_upstream: MockUpstream, module_storage_url: str) -> Office:
    keys: list[Json] = [
        {"key": ADMIN, "tenant": "ops", "roles": ["user", "admin"]},
        {"key": SPENDER, "tenant": "ops", "name": "Spender", "budgets": [{"usd": 1e-5, "hard": False}]},
    ]
    gateway = module_start_gateway({"storage": {"url": module_storage_url}, "auth": {"keys": keys}})
    upstream = module_upstream

    def ask(text: str, model: str = "small", key: str = ADMIN, reply: Reply | None = None, **more: object) -> str:
        upstream.handler = (lambda _: reply) if reply is not None else None
        body = {"model": model, "messages": [user(text)], "user": "ann", **more}
        return str(gateway.post("/chat/completions", json=body, key=key).headers["x-request-id"])

    failed = ask("What failed?", reply=Reply(status=500, json={"error": {"message": "The lamp broke."}}))
    on_loop(_moved(module_storage_url, failed, timedelta(days=1)))
    cached = {"prompt_tokens": 2000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1500}}
    ask("Cached?", "gpt-4o", reply=Reply(text="Yes.", usage={**cached, "total_tokens": 2001}))
    huge = {"prompt_tokens": 10_000, "completion_tokens": 37_500, "total_tokens": 47_500}
    dear = ask("Dear?", "gpt-4o", SPENDER, Reply(text="Very.", usage=huge))
    ask("Slow?", "bench", reply=Reply(text="Yes.", delay_first=0.6))
    document = {"title": "Lamps", "content": lamps(100), "source": "a shelf", "attachment_type": "list"}
    cut = ask("Who keeps lamp 7?", attachments=[document], context={"mode": "simple", "max_input_tokens": 3000})
    made = gateway.post("/gateway/keys", json={"tenant": "ops", "name": "to be revoked"}, key=ADMIN).json()["id"]
    upstream.handler = None
    return Office(gateway, failed, dear, cut, made)


async def _moved(url: str, request_id: str, back: timedelta) -> None:
    """Lets a request have come so long ago."""
    transactions = open_transactions(StorageSettings(url=url))
    row = schema.ledger.c
    change = schema.ledger.update().where(row.request_id == request_id).values(created_at=datetime.now(UTC) - back)
    try:
        await transactions.run(lambda connection: connection.execute(change), write=True)
    finally:
        await transactions.close()


@pytest.fixture
def visitor(office: Office) -> Iterator[PageVisitor]:
    with PageClient(office.gateway.url) as client:
        assert client.log_in(ADMIN).status_code == 303
        yield PageVisitor(client)


def failed_yesterday(office: Office, visitor: PageVisitor) -> None:
    visitor.click("Requests").send("/ui/requests", user="ann", status="failed", since="yesterday", until="today")
    visitor.click(to=f"/ui/requests/{office.failed}")
    assert "HTTP 500: The lamp broke." in visitor.text


def why_so_dear(office: Office, visitor: PageVisitor) -> None:
    visitor.click(to="sort=cost").click(to=f"/ui/requests/{office.dear}")
    assert "0.40" in visitor.text
    assert "37,500" in visitor.text, "tokens of the answer, by which it is so dear"


def revoke_a_key(office: Office, visitor: PageVisitor) -> None:
    visitor.click("Admin").click("Revoke…", to=office.made_key).send("/revoke")
    assert "The key is revoked." in visitor.text


def why_it_was_cut(office: Office, visitor: PageVisitor) -> None:
    visitor.send("/ui/search", q=office.cut)
    assert visitor.at.endswith(office.cut)
    assert "extract" in visitor.text
    assert "forwarded text is marked" in visitor.text


def which_model_is_slow(office: Office, visitor: PageVisitor) -> None:
    table = visitor.text.split("Top models today")[-1].split("Top keys")[0]
    assert "p95" in table
    visitor.click(to="sort=latency")
    assert "Slow?" in visitor.text.split("Very")[0]
    assert visitor.text.index("bench") < visitor.text.index("gpt-4o")


def which_key_spends_most(office: Office, visitor: PageVisitor) -> None:
    keys = visitor.text.split("Top keys today")[-1]
    assert keys.index("Spender") > 0
    visitor.click("Costs").click("key", to="by=key")
    assert "Spender" in visitor.text


def what_caches_saved(office: Office, visitor: PageVisitor) -> None:
    assert "From prompt caches1,500" in visitor.text
    assert "saved $0.00188" in visitor.text, "1,500 tokens at 1.25 in the place of 2.50 USD a million"
    visitor.click("Costs")
    assert "Cache reads1,500" in visitor.text


def is_a_budget_near_its_end(office: Office, visitor: PageVisitor) -> None:
    assert "Budget of key" in visitor.text
    visitor.click("Budget of key")
    assert "Dear?" in visitor.text


def upload_a_file(office: Office, visitor: PageVisitor) -> None:
    visitor.click("Admin").click("Files").send("/ui/admin/files", upload=b"The keeper is Ada. " * 20)
    assert "notes.txt" in visitor.text
    assert any(each in visitor.text for each in ("waiting", "reading", "read"))


def compare_two(office: Office, visitor: PageVisitor) -> None:
    visitor.click("Requests").click(to=f"/ui/requests/{office.cut}").click("Compare with another request")
    assert visitor.at.startswith("/ui/compare")


@pytest.mark.parametrize(
    "task",
    [
        failed_yesterday,
        why_so_dear,
        revoke_a_key,
        why_it_was_cut,
        which_model_is_slow,
        which_key_spends_most,
        what_caches_saved,
        is_a_budget_near_its_end,
        upload_a_file,
        compare_two,
    ],
)
def test_s13_2_a_task_takes_three_clicks_at_most(
    office: Office, visitor: PageVisitor, task: Callable[[Office, PageVisitor], None]
) -> None:
    task(office, visitor)
    assert visitor.clicks <= MOST
