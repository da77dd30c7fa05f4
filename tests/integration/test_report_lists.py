"""§13.9: the lists of conversations and requests, on both databases, against the same choice made in Python."""

import random
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.types.report_lists import (
    ConversationChoice,
    FoundRequests,
    ListPage,
    ListPart,
    ListPosition,
    RequestChoice,
    RequestQuery,
)
from gateway.core.types.turn import TurnCommit
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.reports import found_requests
from gateway.storage.reports.request_list import (
    list_conversations,
    read_arrivals,
    read_conversation,
    read_named,
    read_request,
    tenant_of,
)
from gateway.storage.store import ConversationStore
from tests.integration.commits import bill, message, turn
from tests.integration.paid_turns import UNPRICED, paid
from tests.support.marks import few_or_many
from tests.support.schemas import brought_up, in_a_thread

START = datetime(2026, 3, 1, tzinfo=UTC)
QUESTIONS = ("100% of it", "50_ways", "back\\slash", "ÄPFEL and pears", "äpfel", "Straße", "", None)
TEXTS = ("%", "_", "\\", "ÄPFEL", "strasse", "\x00", "pears", " and  PEARS", "'", "\ud800")
USERS, MODELS, TENANTS, AGENTS = (None, "ann", "bob"), ("gpt-4o", "mini"), ("t1", "t2"), (None, "writer")
STATUSES, ENDPOINTS = ("complete", "partial", "failed"), (None, "embeddings")
KEYS = (None, "key_a", "key_b")
SORTED = {"time": "created_at", "cost": "known_cost_picousd", "latency": "total_ms", "saved": "net_saving_picousd"}
T = TypeVar("T")


@pytest.fixture
async def transactions(storage_url: str) -> AsyncIterator[DatabaseTransactions]:
    """A database of the test's own: these lists are over all tenants."""
    async with brought_up(storage_url) as opened:
        yield opened


@pytest.fixture(scope="module")
def module_filled(module_storage_url: str) -> str:
    """A database with conversations and bills whose values often are the same, which no test changes."""
    choose = random.Random(17)

    def work(connection: sa.Connection) -> None:
        connection.execute(schema.conversations.insert(), [_conversation(choose, n) for n in range(120)])
        connection.execute(schema.ledger.insert(), [_bill(choose, n) for n in range(200)])
        names = [{"tenant": TENANTS[n % 2], "name": f"s{n // 2}", "conversation_id": f"conv_{n:04}"} for n in range(8)]
        connection.execute(schema.sessions.insert(), names)
        day = {"day": START.date(), "digest": b"1", "tenant": "t1", "model": "mini", "end_user": "ann"}
        connection.execute(schema.usage_days.insert().values(**day, key_id="key_a"))

    async def fill() -> None:
        opened = open_transactions(StorageSettings(url=module_storage_url))
        await opened.run(work, write=True)
        await opened.close()

    in_a_thread(fill())
    return module_storage_url


@pytest.fixture
async def filled(module_filled: str) -> AsyncIterator[DatabaseTransactions]:
    """The same, opened."""
    opened = open_transactions(StorageSettings(url=module_filled))
    yield opened
    await opened.close()


def _when(choose: random.Random) -> datetime:
    return START + timedelta(microseconds=choose.choice((0, 1, 10**6)), hours=choose.randrange(8))


def _conversation(choose: random.Random, number: int) -> dict[str, Any]:
    question = choose.choice(QUESTIONS)
    tenant = TENANTS[number % 2] if number < 8 else choose.choice(TENANTS)
    when = _when(choose)
    told = {"question": question, "question_folded": question.casefold() if question is not None else None}
    who = {"end_user": choose.choice(USERS), "model": choose.choice(MODELS)}
    return {"id": f"conv_{number:04}", "tenant": tenant, "created_at": when, "updated_at": when, "attachments": 0,
            **told, **who}  # fmt: skip


def _bill(choose: random.Random, number: int) -> dict[str, Any]:
    who = {"tenant": choose.choice(TENANTS), "model": choose.choice(MODELS), "end_user": choose.choice(USERS)}
    what = {"status": choose.choice(STATUSES), "agent": choose.choice(AGENTS), "endpoint": choose.choice(ENDPOINTS)}
    of = choose.choice((None, 0, 1))
    where = {"conversation_id": None if of is None else f"conv_{of:04}", "created_at": _when(choose)}
    if of is not None:
        who["tenant"] = TENANTS[of]
    fixed = {"completion_id": f"chatcmpl-{number:04}", "stream": False, "prompt_tokens": number, "estimated": False}
    cost, saved, took = (
        choose.choice((None, 0, 5, 10**9)),
        choose.choice((None, -7, 0, 7)),
        choose.choice((None, 1, 900)),
    )
    figures = {"known_cost_picousd": cost, "net_saving_picousd": saved, "total_ms": took, "key_id": choose.choice(KEYS)}
    figures["http_status"] = choose.choice((429, 502)) if what["status"] == "failed" else None
    return {"request_id": f"req_{number:04}", "completion_tokens": 1, "response_metadata": "{}", **fixed, **who,
            **what, **where, **figures}  # fmt: skip


async def _walk(read: Callable[[ListPart[Any]], Any], part: ListPart[Any]) -> list[Any]:
    """All parts of a list, from the newest to the oldest, and back again to the newest."""
    found: ListPage[Any] = await read(part)
    down = list(found.found)
    while found.older is not None:
        found = await read(replace(part, at=found.older))
        down += found.found
    up: list[Any] = list(found.found)
    while found.newer is not None:
        found = await read(replace(part, at=found.newer, direction="newer"))
        up = [*found.found, *up]
    assert up == down
    return down


def _random_parts(choose: random.Random, choices: Iterable[T]) -> Iterable[ListPart[T]]:
    for having in choices:
        since = choose.choice((None, _when(choose)))
        until = choose.choice((None, _when(choose)))
        yield ListPart(having, since, until, limit=choose.choice((1, 3, 50)))


@few_or_many(6, 200)
async def test_s13_9_conversations_are_those_that_python_finds(filled: DatabaseTransactions, number: int) -> None:
    choose = random.Random(3)
    rows = await filled.run(lambda connection: connection.execute(sa.select(schema.conversations)).all())
    named = {f"conv_{n:04}": f"s{n // 2}" for n in range(8)}

    def of(*values: Any) -> Any:
        return choose.choice((None,) * 5 + values)

    choices = [
        ConversationChoice(
            of(*TENANTS), of("conv_", "conv_00", "conv_0003", "con%"), of("s0", "s3", "s%"), of(*USERS), of(*MODELS),
            of(*TEXTS),
        )
        for _ in range(number)
    ]  # fmt: skip
    nonempty = 0
    for part in _random_parts(choose, choices):
        expected = [row.id for row in _newest(rows, "updated_at", "id") if _is_chosen(row, part, named)]
        found = await _walk(lambda p: filled.run(lambda connection: list_conversations(connection, p)), part)
        assert [line.id for line in found] == expected, part
        nonempty += bool(expected)
    assert nonempty > number / 6


@pytest.mark.parametrize("asked", [{"text": TEXTS[0]}, {"user": "ann"}, {"model": MODELS[0], "tenant": TENANTS[0]}])
async def test_s13_18_a_search_among_conversations_looks_at_some_and_says_where_it_ended(
    filled: DatabaseTransactions, asked: dict[str, str]
) -> None:
    """Going on finds all, in both directions; a look that an index leads is not ended."""
    part = ListPart(ConversationChoice(**asked), limit=4, searched=9)

    async def read(part: ListPart[ConversationChoice]) -> ListPage[Any]:
        return await filled.run(lambda connection: list_conversations(connection, part))

    whole = [line.id for line in (await read(replace(part, limit=200, searched=None))).found]
    looks, position = [await read(part)], None
    down: list[Any] = []
    while True:
        down += looks[-1].found
        position = looks[-1].found[-1].position if looks[-1].found else position
        if looks[-1].older is None:
            break
        looks.append(await read(replace(part, at=looks[-1].older)))
    assert [line.id for line in down] == whole
    assert any(look.ended is not None for look in looks)
    assert all(look.ended is None or look.older == look.ended for look in looks)
    up, at = [down[-1]], position
    while at is not None:
        look = await read(replace(part, at=at, direction="newer"))
        up, at = [*look.found, *up], look.newer
    assert [line.id for line in up] == whole
    led = await read(replace(part, having=replace(part.having, session="s0"), limit=200))
    assert led.ended is None


def _newest(rows: Iterable[Any], time: str, name: str) -> list[Any]:
    return sorted(rows, key=lambda row: (getattr(row, time), getattr(row, name)), reverse=True)


def _utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _during(time: datetime, part: ListPart[Any]) -> bool:
    return (part.since is None or _utc(time) >= part.since) and (part.until is None or _utc(time) < part.until)


def _is_chosen(row: Any, part: ListPart[ConversationChoice], sessions: dict[str, str]) -> bool:
    want = part.having
    equal = ((want.tenant, row.tenant), (want.user, row.end_user), (want.model, row.model),
             (want.session, sessions.get(row.id)))  # fmt: skip
    if not _during(row.updated_at, part) or any(asked not in (None, found) for asked, found in equal):
        return False
    text = " ".join((want.text or "").replace("\ud800", "?").replace("\x00", "\ufffd").split()).casefold()
    return row.id.startswith(want.id or "") and (not text or text in (row.question_folded or ""))


def _is_asked(row: Any, part: ListPart[RequestChoice]) -> bool:
    want = part.having
    pairs = ((want.tenant, row.tenant), (want.model, row.model), (want.user, row.end_user), (want.agent, row.agent),
             (want.conversation, row.conversation_id), (want.status, row.status),
             (want.endpoint, row.endpoint or "chat"))  # fmt: skip
    return _during(row.created_at, part) and all(asked in (None, found) for asked, found in pairs)


async def _walk_found(filled: DatabaseTransactions, query: RequestQuery) -> list[str]:
    """All that is found, to the end of the order and back to its beginning."""

    async def look(query: RequestQuery) -> FoundRequests:
        return await filled.run(lambda connection: found_requests.find_requests(connection, query))

    part = await look(query)
    down = [each.line.id for each in part.found]
    while part.older is not None:
        part = await look(replace(query, at=ListPosition.parse(str(part.older))))
        down += [each.line.id for each in part.found]
    up: list[str] = [each.line.id for each in part.found]
    at = part.newer
    while at is not None and query.at is None:
        part = await look(replace(query, at=at, direction="newer"))
        up = [*(each.line.id for each in part.found), *up]
        at = part.newer
    assert down[len(down) - len(up) :] == up
    return down


@few_or_many(6, 200)
@pytest.mark.parametrize(
    ("most", "most_sorted"),
    [(7, 7), (7, 20_000), (20_000, 20_000)],
    ids=["a look reads little", "a look sorts more than it reads", "a look reads all"],
)
async def test_s13_18_requests_are_found_in_any_order_however_little_one_look_reads(
    filled: DatabaseTransactions, monkeypatch: pytest.MonkeyPatch, most: int, most_sorted: int, number: int
) -> None:
    """Whatever a look may read, looks one after another find each request once."""
    monkeypatch.setattr(found_requests, "MAX_READ", most)
    monkeypatch.setattr(found_requests, "MAX_SORTED", most_sorted)
    monkeypatch.setattr(found_requests, "READ_AT_ONCE", 3)
    choose = random.Random(9)
    rows = await filled.run(lambda connection: connection.execute(sa.select(schema.ledger)).all())

    def of(*values: Any) -> Any:
        return choose.choice((None,) * 4 + values)

    nonempty = 0
    for _ in range(number):
        choice = RequestChoice(
            of(*TENANTS), of(*MODELS), of("ann", "bob"), of("writer"), of("conv_0000", "conv_x"), of(*STATUSES),
            of("chat", "embeddings"), of("key_a"), of(200, 429), min_cost=of(Decimal("1E-12")), max_cost=of(Decimal(0)),
            min_saved=of(Decimal(0)), max_saved=of(Decimal("-1E-12")), min_ms=of(2), max_ms=of(2),
        )  # fmt: skip
        sort, limit = choose.choice(list(SORTED)), choose.choice((1, 3, 50))
        query = RequestQuery(choice, of(_when(choose)), of(_when(choose)), sort, choose.random() < 0.5, limit=limit)  # type: ignore[arg-type]
        name = SORTED[query.sort]
        found = [row for row in rows if getattr(row, name) is not None and _is_found(row, query)]
        found.sort(key=lambda row: (getattr(row, name), row.request_id), reverse=not query.ascending)
        assert await _walk_found(filled, query) == [row.request_id for row in found], query
        nonempty += bool(found)
    assert nonempty > number / 6


def _is_found(row: Any, query: RequestQuery) -> bool:
    want = query.having
    part = ListPart(replace(want, key=None), query.since, query.until)
    status = row.http_status if row.status == "failed" else 200
    amounts = (
        (want.min_cost, want.max_cost, row.known_cost_picousd, 10**12),
        (want.min_saved, want.max_saved, row.net_saving_picousd, 10**12),
        (want.min_ms, want.max_ms, row.total_ms, 1),
    )
    for least, most, value, unit in amounts:
        if least is not None and (value is None or value < least * unit):
            return False
        if most is not None and (value is None or value > most * unit):
            return False
    pairs = ((want.key, row.key_id), (want.http_status, status))
    return _is_asked(row, part) and all(asked in (None, found) for asked, found in pairs)


async def test_s13_18_a_list_reads_how_questions_begin_and_no_whole_messages(
    store: ConversationStore, transactions: DatabaseTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last user message of each request; behind a picture, too."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
    seen = [picture, {"type": "text", "text": "What is on it?"}]
    asked = (
        message("user", "An earlier one."),
        message("assistant", "Yes."),
        message("user", "The  last\none. " * 900),
    )
    await store.commit(turn("t1", "conv_long", created=True, new_messages=asked))
    await store.commit(turn("t1", "conv_seen", created=True, new_messages=(message("user", seen),)))
    await store.commit(TurnCommit(bill("t1", None)))
    read: list[Any] = []
    body_of = rows.body_of

    def counted(row: Any) -> Any:
        read.append(row)
        return body_of(row)

    monkeypatch.setattr(rows, "body_of", counted)

    async def questions(**having: Any) -> set[str | None]:
        query = RequestQuery(RequestChoice(**having))
        found = await transactions.run(lambda connection: found_requests.find_requests(connection, query))
        return {each.question and each.question[:14] for each in found.found}

    assert await questions() == {"The last one. ", "What is on it?", None}
    assert not read
    assert await questions(text="on IT") == {"What is on it?"}
    assert await questions(text="earlier") == {"The last one. "}


@contextmanager
def listened(connection: sa.Connection) -> Iterator[list[tuple[str, Any]]]:
    """The statements that the database is asked meanwhile, with their values."""
    asked: list[tuple[str, Any]] = []

    def note(*told: Any) -> None:
        asked.append((told[2], told[3]))

    sa.event.listen(connection, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        sa.event.remove(connection, "before_cursor_execute", note)


def _listened_find(connection: sa.Connection, query: RequestQuery) -> tuple[FoundRequests, list[str]]:
    with listened(connection) as asked:
        return found_requests.find_requests(connection, query), [text for text, _ in asked]


async def test_s13_18_a_search_for_a_text_asks_for_pages(
    store: ConversationStore, transactions: DatabaseTransactions
) -> None:
    """Also where most of what the database finds has the words in another order."""
    for number in range(40):
        text = "lamp of brass" if number % 8 else "brass lamp"
        await store.commit(turn("t1", f"conv_{number}", text, created=True))
    query = RequestQuery(RequestChoice(text="BRASS lamp"), limit=4)

    found, asked = await transactions.run(partial(_listened_find, query=query))
    assert [each.question for each in found.found] == ["brass lamp"] * 4
    assert found.older is not None
    bodies = [each for each in asked if "messages.body" in each and "EXISTS" not in each]
    assert len(bodies) <= 8
    searches = [each for each in asked if "EXISTS" in each]
    assert searches[0].lower().count("lower(") <= 4, "letters of ASCII are looked for once"


async def test_s13_18_a_name_is_looked_up_by_indexes_alone(filled: DatabaseTransactions) -> None:
    asked: list[tuple[str, Any]] = []

    def look(connection: sa.Connection, tenant: str | None, name: str) -> list[tuple[str, str]]:
        with listened(connection) as told:
            found = found_requests.named_things(connection, tenant, name)
        asked.extend(told)
        return found

    for tenant, name, found in (
        (None, "s0", [("session", "conv_0000"), ("session", "conv_0001")]),
        ("t2", "s0", [("session", "conv_0001")]),
        (None, "ann", [("user", "ann")]),
        ("t1", "ann", [("user", "ann")]),
        ("t3", "ann", []),
        (None, "writer", [("agent", "writer")]),
        ("t2", "writer", [("agent", "writer")]),
        ("t3", "writer", []),
        ("t1", "key_a", [("key", "key_a")]),
        (None, "mini", [("model", "mini")]),
        ("t2", "mini", []),
    ):
        assert sorted(await filled.run(partial(look, tenant=tenant, name=name))) == found, (tenant, name)

    def plans(connection: sa.Connection) -> list[str]:
        if connection.dialect.name != "sqlite":
            return []
        told = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", values) for query, values in asked]
        return [str(row[-1]) for each in told for row in each]

    scans = [each for each in await filled.run(plans) if each.startswith("SCAN")]
    assert not [each for each in scans if re.match(r"SCAN (ledger|sessions|usage_days)\b", each)], scans


@pytest.mark.parametrize("having", [{"tenant": "t1"}, {"model": "mini", "user": "ann"}], ids=str)
async def test_s13_9_arrivals_are_read_from_a_position_on(filled: DatabaseTransactions, having: dict[str, Any]) -> None:
    part = ListPart(RequestChoice(**having), limit=1000)
    ledger = await filled.run(lambda connection: connection.execute(sa.select(schema.ledger)).all())
    those = [row for row in _newest(ledger, "created_at", "request_id") if _is_asked(row, part)]
    places = [ListPosition.of_time(_utc(row.created_at), row.request_id) for row in those]
    assert await filled.run(lambda connection: read_arrivals(connection, part)) == places
    at = replace(part, at=places[10], direction="newer")
    assert await filled.run(lambda connection: read_arrivals(connection, at)) == places[:10][::-1]
    named = await filled.run(lambda connection: read_named(connection, [place.id for place in places] * 3))
    assert [line.id for line in named[:: len(named) // len(places)]] == [place.id for place in places[::-1]]
    assert all(ListPosition.parse(str(place)) == place for place in places)


@pytest.mark.parametrize("text", ["", ".", ".a", "x.a", "1" * 30 + ".a", "1.a\nb", "²1.a", "1." + "a" * 65])
def test_s13_9_a_position_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="no position"):
        ListPosition.parse(text)


@pytest.fixture
def store(transactions: DatabaseTransactions) -> ConversationStore:
    """A store on an empty database."""
    return ConversationStore(transactions, SystemClock())


async def test_s13_9_a_line_has_the_figures_of_the_bills(
    store: ConversationStore, transactions: DatabaseTransactions
) -> None:
    first = paid("conv_one", created=True)
    await store.commit(first)
    await store.commit(paid("conv_one", (UNPRICED,), status="partial"))
    await store.commit(paid("conv_old", created=True, rolled=False))
    line = await transactions.run(lambda connection: read_conversation(connection, "t-conv_one", "conv_one"))
    assert line is not None
    sums = line.sums
    assert (sums.requests, sums.prompt_tokens, sums.unpriced, str(sums.cost)) == (2, 8, 1, "1.2E-11")
    assert (str(sums.planning), sums.priced > 0, line.question, line.user) == ("2E-12", True, "question", "ann")
    assert await transactions.run(lambda connection: read_conversation(connection, "t2", "conv_one")) is None
    for name in (first.ledger.request_id, first.ledger.completion_id or ""):
        request = await transactions.run(lambda connection, name=name: read_request(connection, None, name))  # type: ignore[misc]
        assert request is not None
        assert (str(request.cost), str(request.planning_cost), request.cached_tokens) == ("1.2E-11", "2E-12", 4)
        assert await transactions.run(lambda connection, name=name: read_request(connection, "t2", name)) is None  # type: ignore[misc]
    query = RequestQuery(RequestChoice(conversation="conv_old"))
    (old,) = (await transactions.run(partial(found_requests.find_requests, query=query))).found
    assert (str(old.line.cost), old.line.planning_cost) == ("1.2E-11", None)


async def test_s13_9_the_tenant_of_a_deleted_conversation_is_that_of_its_bills(
    store: ConversationStore, transactions: DatabaseTransactions
) -> None:
    made = paid("conv_gone", created=True)
    await store.commit(made)
    names = ["conv_gone", made.ledger.request_id, "conv_never", "req_never", "\x00"]

    async def tenants() -> list[str | None]:
        return [await transactions.run(lambda c, name=name: tenant_of(c, name)) for name in names]  # type: ignore[misc]

    assert await tenants() == ["t-conv_gone", "t-conv_gone", None, None, None]
    await store.delete_conversation("t-conv_gone", "conv_gone")
    assert await tenants() == ["t-conv_gone", "t-conv_gone", None, None, None]
    query = RequestQuery(RequestChoice(conversation="conv_gone"))
    (found,) = (await transactions.run(partial(found_requests.find_requests, query=query))).found
    assert found.line.id == made.ledger.request_id


async def test_s13_18_a_rare_amount_leads_to_its_requests(
    filled: DatabaseTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, by the index of the amount: a look at a few of many finds them all."""
    ledger = await filled.run(lambda connection: connection.execute(sa.select(schema.ledger)).all())
    least = max(row.total_ms for row in ledger if row.total_ms is not None)
    wanted = {row.request_id for row in ledger if row.total_ms == least}
    monkeypatch.setattr(found_requests, "MAX_READ", len(wanted))
    assert len(wanted) < len(ledger)
    for sort in ("time", "latency"):
        query = RequestQuery(RequestChoice(min_ms=least), sort=sort, limit=len(ledger))
        part = await filled.run(partial(found_requests.find_requests, query=query))
        assert {each.line.id for each in part.found} == wanted
        assert part.ended is None


def _with_plans(connection: sa.Connection, query: RequestQuery, having: str) -> tuple[FoundRequests, list[str]]:
    """Finds requests; also returns how SQLite reads the ledger for each statement that has this text."""
    with listened(connection) as asked:
        part = found_requests.find_requests(connection, query)
    plans = [
        str(row[-1])
        for text, values in asked
        if connection.dialect.name == "sqlite" and having in text
        for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)
    ]
    return part, [plan for plan in plans if "ledger" in plan]


@pytest.mark.parametrize("sort", ["cost", "latency", "saved"])
@pytest.mark.parametrize(
    "having",
    [
        {"user": "ann"},
        {"tenant": "t1", "user": "ann"},
        {"key": "key_a"},
        {"user": "ann", "key": "key_a"},
        {"tenant": "t1", "model": "mini"},
        {},
    ],
    ids=["user", "user of a tenant", "key", "user with a key", "model of a tenant", "time"],
)
async def test_s13_18_requests_are_sorted_by_an_index_alone(
    filled: DatabaseTransactions, monkeypatch: pytest.MonkeyPatch, having: dict[str, Any], sort: Any
) -> None:
    """However many there are, the first page is whole, and no more requests are read than it shows."""
    monkeypatch.setattr(found_requests, "MAX_READ", 9)
    ledger = await filled.run(lambda connection: connection.execute(sa.select(schema.ledger)).all())
    query = RequestQuery(RequestChoice(**having), START, sort=sort, limit=8)
    found = [row for row in ledger if getattr(row, SORTED[sort]) is not None and _is_found(row, query)]
    found = [row for row in found if having.get("key") in (None, row.key_id)]
    found.sort(key=lambda row: (getattr(row, SORTED[sort]), row.request_id), reverse=True)
    assert len(found) > 9

    part, plans = await filled.run(partial(_with_plans, query=query, having="amount"))
    assert [each.line.id for each in part.found] == [row.request_id for row in found[:8]]
    assert part.ended is None
    assert all("USING COVERING INDEX ix_ledger_amounts_of_" in plan for plan in plans), plans


async def test_s13_18_requests_of_a_conversation_are_read_by_its_index(filled: DatabaseTransactions) -> None:
    """SQLite by itself chooses the index in the order of the list, which has all of the tenant's requests."""
    query = RequestQuery(RequestChoice(conversation="conv_0000"), limit=2)

    ledger = await filled.run(lambda connection: connection.execute(sa.select(schema.ledger)).all())
    own = [row for row in _newest(ledger, "created_at", "request_id") if row.conversation_id == "conv_0000"]
    part, plans = await filled.run(partial(_with_plans, query=query, having="ledger.tenant = ?"))
    assert [each.line.id for each in part.found] == [row.request_id for row in own[:2]]
    assert all("conversation_id=?" in plan for plan in plans), plans


@pytest.mark.parametrize("having", [{"model": "mini"}, {"status": "failed"}, {"min_ms": 2}], ids=str)
async def test_s13_18_in_the_order_of_an_amount_others_are_not_read(
    filled: DatabaseTransactions, monkeypatch: pytest.MonkeyPatch, having: dict[str, Any]
) -> None:
    """Those that a filter's index leaves are known before they are read: a look at a few of them fills its page."""
    ledger = await filled.run(lambda connection: connection.execute(sa.select(schema.ledger)).all())
    query = RequestQuery(RequestChoice(**having), sort="cost", ascending=True, limit=4)
    found = [row for row in ledger if row.known_cost_picousd is not None and _is_found(row, query)]
    found.sort(key=lambda row: (row.known_cost_picousd, row.request_id))
    monkeypatch.setattr(found_requests, "MAX_READ", 5)
    assert len(found) > 5
    part = await filled.run(partial(found_requests.find_requests, query=query))
    if await filled.run(lambda connection: connection.dialect.name) == "sqlite":
        assert [each.line.id for each in part.found] == [row.request_id for row in found[:4]]
        assert part.ended is None
    assert await _walk_found(filled, query) == [row.request_id for row in found]


async def test_s13_18_a_look_that_ends_early_reads_no_index_beyond_its_end(
    filled: DatabaseTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite goes by one bound on each side of an index: that is where the look ends, not where its period begins."""
    monkeypatch.setattr(found_requests, "MAX_READ", 7)
    query = RequestQuery(RequestChoice(min_saved=Decimal(0)), START, limit=50)

    part, asked = await filled.run(partial(_listened_find, query=query))
    assert part.ended is not None
    (read,) = [text for text in asked if "net_saving_picousd," in text and "created_at" in text and "LIMIT" in text]
    assert read.partition("WHERE")[2].count("created_at >=") == 1
