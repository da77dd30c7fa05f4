"""§13.4: usage and costs as OpenAI's own SDK reads them, against a real server on both storages."""

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from openai import BadRequestError, BaseModel, OpenAI
from openai.types.admin.organization.usage_completions_response import UsageCompletionsResponse
from openai.types.admin.organization.usage_costs_response import UsageCostsResponse
from openai.types.admin.organization.usage_embeddings_response import UsageEmbeddingsResponse

from gateway.billing.cost import ledger_figures
from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.types.turn import LedgerEntry, TurnCommit
from gateway.storage.database.sqlite import open_transactions
from gateway.storage.store import ConversationStore
from tests.support.answers import exact, usage_of, user
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.random_bills import random_entry
from tests.support.strict_models import check_strictly

ALICE, BOB, BOSS = "sk-gateway-alice", "sk-gateway-bob", "sk-gateway-boss"
KEYS = [
    {"key": ALICE, "tenant": "alice", "project": "shop"},
    {"key": BOB, "tenant": "bob"},
    {"key": BOSS, "tenant": "boss", "roles": ["admin"]},
]
DAY = 86400
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
START = int(BEGIN.timestamp())
TIMES = [BEGIN + timedelta(minutes=minutes) for minutes in (0, 59, 60, 1439, 1440, 3000, 4321)]
CHATS = {None, "completions", "responses"}


@pytest.fixture(scope="module")
def served(module_gateway_with_keys: GatewayProcess) -> tuple[GatewayProcess, list[LedgerEntry]]:
    """A gateway with keys, and the bills that stand in its ledger."""
    chance = random.Random(3)
    entries = [random_entry(chance, ["alice", "bob"], TIMES) for _ in range(150)]
    asyncio.run(write(str(module_gateway_with_keys.config["storage"]["url"]), entries))  # type: ignore[index]
    return module_gateway_with_keys, entries


@pytest.fixture(scope="module")
def module_gateway_with_keys(
    module_storage_url: str, module_start_gateway: GatewayFactory, module_upstream: MockUpstream
) -> GatewayProcess:
    """Once on each kind of storage."""
    return module_start_gateway({"auth": {"keys": KEYS}, "storage": {"url": module_storage_url}})


async def write(url: str, entries: list[LedgerEntry]) -> None:
    """As another process of the gateway."""
    transactions = open_transactions(StorageSettings(url=url))
    store = ConversationStore(transactions, SystemClock())
    for entry in entries:
        await store.commit(TurnCommit(entry))
    await transactions.close()


@pytest.fixture
def admin(served: tuple[GatewayProcess, list[LedgerEntry]], make_client: ClientFactory) -> OpenAI:
    """The SDK with an admin's key."""
    return make_client(served[0], "sk-none", admin_api_key=BOSS)


def strict(answer: BaseModel, model: type[BaseModel]) -> Any:
    """The answer as it came, which must have the SDK's fields and no other."""
    body = exact(answer.to_json(exclude_unset=True))
    check_strictly(model, body)
    return answer


def pages(call: Any, model: type[BaseModel], **options: Any) -> Iterator[Any]:
    """All buckets, page by page."""
    page: Any = None
    while True:
        found = strict(call(**options, **({"page": page} if page else {})), model)
        yield from found.data
        if not found.has_more:
            assert found.next_page is None
            return
        page = found.next_page


@pytest.mark.parametrize(
    ("width", "seconds", "limit", "days"), [("1d", DAY, 2, 3), ("1h", 3600, 50, 3), ("1m", 60, 1440, 1)]
)
def test_s13_4_usage_by_buckets_and_groups(
    served: tuple[GatewayProcess, list[LedgerEntry]], admin: OpenAI, width: Any, seconds: int, limit: int, days: int
) -> None:
    start, end = START + 30, START + days * DAY + 90
    call = admin.admin.organization.usage.completions
    options: Any = {"start_time": start, "end_time": end, "bucket_width": width, "limit": limit}
    buckets = list(pages(call, UsageCompletionsResponse, group_by=["model", "user_id", "project_id"], **options))
    assert [bucket.start_time for bucket in buckets] == [start, *range(START + seconds, end, seconds)]
    assert [bucket.end_time for bucket in buckets][-1] == end
    for bucket in buckets:
        expected: dict[tuple[str, str | None, str], list[int]] = {}
        for entry in served[1]:
            if bucket.start_time <= entry.created_at.timestamp() < bucket.end_time and entry.endpoint in CHATS:
                usage = entry.metadata["usage"]
                sums = expected.setdefault((entry.model, entry.end_user, entry.project or entry.tenant), [0, 0, 0])
                for place, more in enumerate((1, usage["prompt_tokens"], usage["completion_tokens"])):
                    sums[place] += more
        found = {
            (each.model, each.user_id, each.project_id): [
                each.num_model_requests, each.input_tokens, each.output_tokens,
            ]
            for each in bucket.results
        }  # fmt: skip
        assert found == expected


def test_s13_4_costs_are_exact_and_by_line_item(
    served: tuple[GatewayProcess, list[LedgerEntry]], admin: OpenAI
) -> None:
    known = [call.total for entry in served[1] for call in entry.calls if call.total is not None]
    options: Any = {"start_time": START, "end_time": START + 5 * DAY, "limit": 180}
    for groups in ([], ["line_item"], ["project_id", "api_key_id", "line_item"]):
        answer = admin.admin.organization.usage.with_raw_response.costs(group_by=groups, **options)  # type: ignore[arg-type]
        body = exact(answer.text)
        check_strictly(UsageCostsResponse, body)
        values = [result["amount"]["value"] for bucket in body["data"] for result in bucket["results"]]
        assert sum(Decimal(value) for value in values) == sum(known)
        assert int(answer.headers["x-gateway-unpriced-requests"]) > 0
    lines = {result["line_item"] for bucket in body["data"] for result in bucket["results"]}
    assert lines == {"gpt-4o", "gpt-4o, context planning", "o3", "o3, context planning"}


def test_s13_4_net_savings_are_told_where_they_are_asked_for(served: tuple[GatewayProcess, list[LedgerEntry]]) -> None:
    gateway, entries = served
    nets = [ledger_figures(entry.metadata, entry.calls).net_saving for entry in entries]
    known = [net for net in nets if net is not None]
    options = {"start_time": START, "end_time": START + 5 * DAY, "limit": 180}
    for groups in ([], ["line_item"], ["api_key_id", "line_item"], ["conversation_id"]):
        plain, told = (
            gateway.get("/organization/costs", params={**options, "group_by[]": groups, **more}, key=BOSS)
            for more in ({}, {"include[]": ["net_saving"]})
        )
        results = [result for bucket in exact(told.text)["data"] for result in bucket["results"]]
        amounts = [Decimal(each["net_saving"]["value"]) for each in results if each.get("net_saving")]
        assert sum(amounts) == sum(known) == Decimal(plain.headers["x-gateway-net-saving-usd"])
        assert min(amounts) < 0
        assert sum(each.get("unmetered_requests", 0) for each in results) == nets.count(None)
        assert int(plain.headers["x-gateway-unmetered-requests"]) == nets.count(None)
        assert all("net_saving" not in result for bucket in plain.json()["data"] for result in bucket["results"])
        assert all(set(groups) <= set(result) for result in results)
    wrong = gateway.get("/organization/costs", params={**options, "include": "saved"}, key=BOSS)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "include")


def test_s13_4_embeddings_and_filters(served: tuple[GatewayProcess, list[LedgerEntry]], admin: OpenAI) -> None:
    options: Any = {"start_time": START, "end_time": START + 5 * DAY}
    usage = admin.admin.organization.usage
    embedded = list(pages(usage.embeddings, UsageEmbeddingsResponse, models=["o3"], **options))
    expected = [e for e in served[1] if e.endpoint == "embeddings" and e.model == "o3"]
    assert sum(r.num_model_requests for bucket in embedded for r in bucket.results) == len(expected)
    chats = [entry for entry in served[1] if entry.endpoint is None]
    cases: list[tuple[dict[str, Any], int]] = [
        ({"user_ids": ["ann", "bob"]}, sum(entry.end_user is not None for entry in chats)),
        ({"project_ids": ["shop"]}, sum(entry.project == "shop" for entry in chats)),
        ({"project_ids": ["alice"]}, sum(entry.project is None and entry.tenant == "alice" for entry in chats)),
        ({"api_key_ids": ["key_1"]}, sum(entry.key_id == "key_1" for entry in chats)),
        ({"batch": True}, 0),
        ({"batch": False}, len(chats)),
    ]
    for filters, count in cases:
        buckets = list(pages(usage.completions, UsageCompletionsResponse, **filters, **options))
        assert sum(r.num_model_requests for bucket in buckets for r in bucket.results) == count, filters
        assert all(bucket.results for bucket in buckets) == (count == len(chats)) or count


def test_s13_4_a_key_sees_its_own_tenant(served: tuple[GatewayProcess, list[LedgerEntry]]) -> None:
    gateway, entries = served
    for key, tenant in ((ALICE, "alice"), (BOB, "bob")):
        query: Any = {"start_time": START, "end_time": START + 5 * DAY, "group_by": "project_id"}
        body = gateway.get("/organization/usage/completions", params=query, key=key).json()
        results = [result for bucket in body["data"] for result in bucket["results"]]
        own = [entry for entry in entries if entry.tenant == tenant and entry.endpoint is None]
        assert sum(result["num_model_requests"] for result in results) == len(own)
        assert {result["project_id"] for result in results} == {tenant, "shop"}
    assert gateway.get("/organization/costs", params={"start_time": 0}, key="sk-nobody").status_code == 401


def test_s13_4_without_a_key_figures_are_shown_on_this_machine_alone(one_gateway: GatewayProcess) -> None:
    """They list conversations, whose ids are all that keeps callers without a key apart."""
    path = f"/organization/costs?start_time={START}&group_by[]=conversation_id"
    for headers, expected in (({}, 200), ({"x-forwarded-for": "10.0.0.9"}, 401)):
        assert one_gateway.get(path, headers=headers, key=None).status_code == expected, headers


def test_s13_4_a_request_that_was_just_answered(
    served: tuple[GatewayProcess, list[LedgerEntry]], upstream: MockUpstream, make_client: ClientFactory
) -> None:
    gateway, _ = served
    upstream.reply(text="hi", usage=usage_of(1000, 10, prompt_tokens_details={"cached_tokens": 600}))
    now = int(datetime.now(UTC).timestamp())
    make_client(gateway, ALICE).chat.completions.create(model="small", messages=[user("hello")], user="carol")
    usage = make_client(gateway, ALICE, admin_api_key=ALICE).admin.organization.usage
    groups: Any = ["user_id", "model", "api_key_id", "project_id", "batch"]
    answer = strict(
        usage.completions(start_time=now - 60, bucket_width="1h", group_by=groups), UsageCompletionsResponse
    )
    (result,) = [result for bucket in answer.data for result in bucket.results]
    told = (result.user_id, result.model, result.project_id, result.batch, result.num_model_requests)
    assert told == ("carol", "small", "shop", False, 1)
    counts = (result.input_tokens, result.input_cached_tokens, result.input_uncached_tokens, result.output_tokens)
    assert counts == (1000, 600, 400, 10)
    assert str(result.api_key_id).startswith("key_")
    assert ALICE not in str(result.api_key_id)
    again = usage.completions(start_time=now - 60, api_key_ids=[str(result.api_key_id)])
    results: list[Any] = [result for bucket in again.data for result in bucket.results]
    assert sum(each.num_model_requests for each in results) == 1


@pytest.mark.parametrize(
    ("path", "query", "param"),
    [
        ("costs", {}, "start_time"),
        ("costs", {"start_time": "soon"}, "start_time"),
        ("costs", {"start_time": "-1"}, "start_time"),
        ("costs", {"start_time": "9" * 12}, "start_time"),
        ("costs", {"start_time": 5, "end_time": 5}, "end_time"),
        ("costs", {"start_time": 5, "bucket_width": "1h"}, "bucket_width"),
        ("costs", {"start_time": 5, "limit": 181}, "limit"),
        ("costs", {"start_time": 5, "group_by[]": "model"}, "group_by"),
        ("costs", {"start_time": 5, "models[]": "o3"}, "models[]"),
        ("usage/completions", {"start_time": 5, "limit": 32}, "limit"),
        ("usage/completions", {"start_time": 5, "limit": 169, "bucket_width": "1h"}, "limit"),
        ("usage/completions", {"start_time": 5, "limit": 0}, "limit"),
        ("usage/completions", {"start_time": 5, "batch": "maybe"}, "batch"),
        ("usage/completions", {"start_time": 5, "user_ids[]": ""}, "user_ids"),
        ("usage/completions", {"start_time": 5, "user_ids[]": "a\x00"}, "user_ids"),
        ("usage/completions", {"start_time": 5, "page": "page_zzz"}, "page"),
        ("usage/completions", {"start_time": DAY, "page": "page_AAAAAAAAAAA="}, "page"),
        ("usage/embeddings", {"start_time": 5, "group_by[]": "batch"}, "group_by"),
        ("usage/embeddings", {"start_time": 5, "users": "x"}, "users"),
    ],
)
def test_s13_4_what_is_asked_wrongly_is_named(
    served: tuple[GatewayProcess, list[LedgerEntry]], path: str, query: dict[str, Any], param: str
) -> None:
    answer = served[0].get(f"/organization/{path}", params=query, key=BOSS)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_s13_4_times_to_come_have_no_buckets(served: tuple[GatewayProcess, list[LedgerEntry]], admin: OpenAI) -> None:
    later = int(datetime.now(UTC).timestamp()) + 3 * DAY
    answer = strict(admin.admin.organization.usage.costs(start_time=later), UsageCostsResponse)
    assert (answer.data, answer.has_more, answer.next_page) == ([], False, None)
    with pytest.raises(BadRequestError):
        admin.admin.organization.usage.costs(start_time=later, end_time=later)
