"""Searches requests: by any of their facts, in the order of one of them (guarantee §13.18).

However many requests there are, a search reads a bounded number of them. One filter leads: the first whose index
leaves no more than `MAX_READ` requests, an amount last. The indexes of tenants, users, keys and times contain the
amounts: they sort what they leave without reading a request, so they may leave `MAX_SORTED`. If no filter is so narrow,
the index of the order is scanned for up to `MAX_READ` requests (in SQLite, of those that the index of a filter leaves);
the result names where that ended, and a search may continue from there. For a user's requests with a given key, the
index of keys supplies the ids.
"""

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.types import report_lists
from gateway.core.types.content_parts import texts_of
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.encryption.columns import sealing
from gateway.storage.keyed_hashes import names_of_user, storable
from gateway.storage.reports.request_list import COLUMNS, TABLE, line_of, page_of, tenant_of
from gateway.storage.rows import pico
from gateway.storage.turns.questions import folded, question_columns, texts_begin

MESSAGES, SESSIONS, DAYS = schema.messages, schema.sessions, schema.usage_days
MAX_READ = 4_000
"""The most requests that one search reads: each may lie on a disk page of its own that no cache holds yet."""
WITH_AMOUNTS = ("user", "key", "tenant")
"""Filters whose index contains the amounts, as that of times does."""
COVERED_FILTERS = ("tenant", "status", "model")
"""Filters whose columns each of these indexes contains, too."""
MAX_SORTED = 40_000
"""Requests that one search sorts by an index alone."""
READ_AT_ONCE = 500
"""How many of those are read together, to apply the other filters."""
MAX_TIMED = 4_000
"""The latest requests whose durations are read."""
MAX_TEXTS = 2_000
"""The most requests that one search reads where it also checks their texts."""
MAX_BODIES = 100
"""Requests whose whole messages one statement reads, to search for a text."""
SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
"""The case folding that both databases apply before they compare."""
MAX_WORDS = 8
"""Words of a text by which the database finds candidates."""
MAX_NAMES = 5
"""The most sessions of one name that a search lists."""
SORTED_BY = {
    "time": TABLE.c.created_at,
    "cost": TABLE.c.known_cost_picousd,
    "latency": TABLE.c.total_ms,
    "saved": TABLE.c.net_saving_picousd,
}
ROW_NUMBER: sa.ColumnElement[int] = sa.literal_column("ledger.rowid", sa.BigInteger)
COMPLETE: sa.ColumnElement[str] = sa.literal_column("'complete'")
_NAMES = sa.select(MESSAGES.c.id, MESSAGES.c.request_id)
Condition = sa.ColumnElement[bool]
Limits = tuple[int | None, int | None]
"""The least and the most of an amount; None: any."""


def find_requests(connection: sa.Connection, query: report_lists.RequestQuery) -> report_lists.FoundRequests:
    """Finds a part of the matching requests, in the query's order."""
    choice = _known(connection, query.having)
    if choice is None or (choice.text and sealing(connection)):
        return report_lists.ListPage((), None, None)
    by = SORTED_BY[query.sort]
    most = MAX_TEXTS if choice.text else MAX_READ
    leading, others = _conditions(connection, choice)
    period = list(_period(query))
    joined = _joined(connection, leading, period)
    others += joined
    if query.sort != "time" and not choice.text:
        inside = _inside(connection, choice, leading, period)
        if inside is not None:
            return _read_inside(connection, query, [*inside, *joined], [*map(_aside, leading.values()), *others])
    driver, is_narrow = _driver(connection, list(leading.values()), period, most)
    if not is_narrow and (amount := _amount(connection, choice, most)) is not None:
        where = [*map(_aside, (*leading.values(), *period)), *others, amount, by.is_not(None)]
        return _read(connection, query, choice, (sa.func.coalesce(by, by), TABLE.c.request_id), where, None, None)
    where = [*(_aside(each) for each in leading.values() if each is not driver), *others]
    told = None
    if query.sort == "time":
        # SQLite would scan all of the tenant's requests, in their order, for those of one conversation.
        is_sorted_here = is_narrow and driver is leading.get("conversation")
        at: sa.ColumnElement[Any] = sa.func.coalesce(by, by) if is_sorted_here else by
        place: tuple[sa.ColumnElement[Any], ...] = (at, TABLE.c.request_id)
        where += [driver] if driver is not None else []
    else:
        where.append(by.is_not(None))
        if is_narrow:  # all of them are read and sorted: not by the index of the order
            place = (sa.func.coalesce(by, by), TABLE.c.request_id)
            where += [*period, *([driver] if driver is not None else [])]
        else:
            place = (by, TABLE.c.request_id)
            where += [_aside(each) for each in (*period, *([driver] if driver is not None else []))]
            told = _told(connection, choice, leading, period)
            where += [told] if told is not None else []
    return _read(connection, query, choice, place, where, None if is_narrow else most, driver, told)


def _read(
    connection: sa.Connection,
    query: report_lists.RequestQuery,
    choice: report_lists.RequestChoice,
    place: tuple[sa.ColumnElement[Any], ...],
    where: list[Condition],
    most: int | None,
    driver: Condition | None,
    told: Condition | None = None,
) -> report_lists.FoundRequests:
    """Reads matching requests. `most`: how many may be read; None: all that match, as these are few."""
    is_down = query.ascending != (query.direction == "older")
    order = [column.desc() if is_down else column.asc() for column in place]
    behind = [rows.behind(place, _value(query, query.at), is_down=is_down)] if query.at is not None else []
    end = None
    if most is not None:
        end = _horizon(connection, query, driver, behind, most, told, is_down=is_down)
        where = [*where, *rows.up_to(place, end, is_down=is_down)]
    if query.sort == "time":
        where = [*where, *_period(query, end[0] if end is not None else None, is_down=is_down)]
    found: list[report_lists.FoundRequest] = []
    after = behind
    wanted = min(query.limit + 1, MAX_BODIES) if choice.text else query.limit + 1
    while True:
        page = connection.execute(sa.select(*COLUMNS).where(*where, *after).order_by(*order).limit(wanted)).all()
        lines = list(map(line_of, page))
        found += _with_text(connection, lines, choice.text) if choice.text else _with_questions(connection, lines)
        if len(page) < wanted or len(found) > query.limit:
            break
        after = [rows.behind(place, _value(query, position_of(query.sort, lines[-1])), is_down=is_down)]
    return _part(query, found, end)


def _joined(connection: sa.Connection, leading: dict[str, Condition], period: Sequence[Condition]) -> list[Condition]:
    """Removes the filter by key from those that may lead if one by user does: no index has both, so the ids in the
    index of keys tell which requests match. Not if these are so few that they lead, or more than are sorted."""
    if not {"user", "key"} <= leading.keys():
        return []
    if not MAX_READ < _count(connection, [leading["key"], *period], MAX_SORTED) <= MAX_SORTED:
        return []
    ids = sa.select(TABLE.c.request_id).where(leading.pop("key"), *period).correlate(None)
    return [_aside(TABLE.c.request_id.in_(ids))]


def _told(
    connection: sa.Connection,
    choice: report_lists.RequestChoice,
    leading: Mapping[str, Condition],
    period: Sequence[Condition],
) -> Condition | None:
    """Returns a filter as the row numbers that its own index leaves, up to `MAX_SORTED`: a scan of the order's index
    then skips other requests unread. Only for SQLite, whose every index has the row numbers."""
    if connection.dialect.name != "sqlite":
        return None
    some = [[each, *period] for each in leading.values()]
    some += [[*_within(column, limits)] for column, limits in _amounts(choice)]
    where = next((each for each in some if _count(connection, each, MAX_SORTED) <= MAX_SORTED), None)
    if where is None:
        return None
    return _aside(ROW_NUMBER.in_(sa.select(ROW_NUMBER).select_from(TABLE).where(*where).correlate(None)))


def _inside(
    connection: sa.Connection,
    choice: report_lists.RequestChoice,
    leading: Mapping[str, Condition],
    period: Sequence[Condition],
) -> list[Condition] | None:
    """Returns conditions that an index with the amounts answers, if it leaves no more than `MAX_SORTED` requests; None:
    there is no such index, or it leaves so few that all of them are read."""
    says_all = choice.endpoint is None and choice.http_status is None
    for name, each in leading.items():
        most = MAX_SORTED if name in WITH_AMOUNTS else MAX_READ
        left = _count(connection, [each, *period], most)
        if left <= most:
            is_inside = says_all and leading.keys() <= {name, *COVERED_FILTERS}
            if name not in WITH_AMOUNTS or (left <= MAX_READ and not is_inside):
                return None
            return [each, *period, *_beside(choice, leading)]
    if period and _count(connection, period, MAX_SORTED) <= MAX_SORTED:
        return [*period, *_beside(choice, leading)]
    return None


def _beside(choice: report_lists.RequestChoice, leading: Mapping[str, Condition]) -> Iterable[Condition]:
    """Yields the other filters whose columns each of these indexes has."""
    yield from (_aside(leading[name]) for name in COVERED_FILTERS if name in leading)
    for column, limits in _amounts(choice):
        yield from _within(sa.func.coalesce(column, column), limits)


def _read_inside(
    connection: sa.Connection, query: report_lists.RequestQuery, inside: list[Condition], others: list[Condition]
) -> report_lists.FoundRequests:
    """Sorts requests by one index alone, which has the amounts, then reads them until the page is full, or `MAX_READ`
    of them were read. `inside`: conditions that this index answers."""
    by = SORTED_BY[query.sort]
    place = (sa.func.coalesce(by, by), TABLE.c.request_id)  # not by the index of the order
    is_down = query.ascending != (query.direction == "older")
    order = [column.desc() if is_down else column.asc() for column in place]
    behind = [rows.behind(place, _value(query, query.at), is_down=is_down)] if query.at is not None else []
    columns = (TABLE.c.request_id, by.label("amount"))
    ordered = connection.execute(
        sa.select(*columns).where(*inside, by.is_not(None), *behind).order_by(*order).limit(MAX_READ + 1)
    ).all()
    found: list[report_lists.FoundRequest] = []
    first, some = 0, query.limit + 1
    while first < min(len(ordered), MAX_READ) and len(found) <= query.limit:
        named = TABLE.c.request_id.in_([row.request_id for row in ordered[first : min(first + some, MAX_READ)]])
        page = connection.execute(sa.select(*COLUMNS).where(named, *others).order_by(*order)).all()
        found += _with_questions(connection, list(map(line_of, page[: query.limit + 1 - len(found)])))
        first, some = first + some, READ_AT_ONCE
    end = (ordered[MAX_READ - 1].amount, ordered[MAX_READ - 1].request_id) if len(ordered) > MAX_READ else None
    return _part(query, found, end)


def _part(
    query: report_lists.RequestQuery, found: Sequence[report_lists.FoundRequest], end: tuple[Any, str] | None
) -> report_lists.FoundRequests:
    """Builds the part of the list from what was found. `end`: where reading ended early."""
    ended = None
    if end is not None and query.sort == "time":
        ended = report_lists.ListPosition.of_time(rows.utc(end[0]), end[1])
    elif end is not None:
        ended = report_lists.ListPosition(int(end[0]), end[1])
    return page_of(query, found, lambda each: position_of(query.sort, each.line), ended)


def position_of(sort: str, request: report_lists.RequestLine) -> report_lists.ListPosition:
    """Returns the position of a request in an order."""
    if sort == "time":
        return report_lists.ListPosition.of_time(request.created_at, request.id)
    if sort == "latency":
        return report_lists.ListPosition(request.total_ms or 0, request.id)
    value = request.known_cost if sort == "cost" else request.net_saving
    return report_lists.ListPosition(pico(value) or 0, request.id)


def _value(query: report_lists.RequestQuery, at: report_lists.ListPosition | None) -> tuple[Any, str]:
    if at is None:
        raise ValueError("no position")
    return (at.time if query.sort == "time" else at.value), storable(at.id)


def _horizon(
    connection: sa.Connection,
    query: report_lists.RequestQuery,
    driver: Condition | None,
    behind: Sequence[Condition],
    most: int,
    told: Condition | None,
    *,
    is_down: bool,
) -> tuple[Any, str] | None:
    """Returns the position of the request that is `most` further in the order; None if there are no more than that.
    Requests of one time are few, and all of them are read; many may have one cost. With `told`, only those are counted
    that it leaves among the next `MAX_SORTED`."""
    by = SORTED_BY[query.sort]
    where: list[Condition] = list(behind)
    if query.sort == "time":
        where += [*_period(query), *([driver] if driver is not None else [])]
        order = by.desc() if is_down else by.asc()
        last = connection.execute(sa.select(by).where(*where).order_by(order).limit(1).offset(most)).scalar()
        return None if last is None else (rows.utc(last), "" if is_down else "~")
    where.append(by.is_not(None))
    columns = (by, TABLE.c.request_id)
    orders = [column.desc() if is_down else column.asc() for column in columns]
    ordered = sa.select(*columns).where(*where).order_by(*orders).limit(1)
    row = connection.execute(ordered.offset(most if told is None else MAX_SORTED)).first()
    end = None if row is None else (row[0], row[1])
    if told is None:
        return end
    among = ordered.where(told, *rows.up_to(columns, end, is_down=is_down))
    row = connection.execute(among.offset(most)).first()
    return end if row is None else (row[0], row[1])


def _driver(
    connection: sa.Connection, leading: Sequence[Condition], period: Sequence[Condition], most: int
) -> tuple[Condition | None, bool]:
    """Chooses the filter by whose index requests are read, and whether it leaves no more than `most`."""
    for each in leading:
        if _count(connection, [each, *period], most) <= most:
            return each, True
    if period and _count(connection, period, most) <= most:
        return None, True
    return (leading[0] if leading else None), False


def _count(connection: sa.Connection, where: Sequence[Condition], most: int) -> int:
    some = sa.select(sa.literal_column("1")).select_from(TABLE).where(*where).limit(most + 1).subquery()
    return int(connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one())


def _period(
    query: report_lists.RequestQuery, end: datetime | None = None, *, is_down: bool = True
) -> Iterable[Condition]:
    """Yields the requested times, without a bound that lies behind `end`: SQLite's index uses one bound on each side,
    and would use the wrong one."""
    if query.since is not None and not (end is not None and is_down and query.since <= end):
        yield TABLE.c.created_at >= query.since
    if query.until is not None and not (end is not None and not is_down and query.until > end):
        yield TABLE.c.created_at < query.until


def _known(connection: sa.Connection, choice: report_lists.RequestChoice) -> report_lists.RequestChoice | None:
    """Adds the tenant of the choice's conversation, which the index needs; None if nothing can be found."""
    if choice.conversation is None or choice.tenant is not None:
        return choice
    tenant = tenant_of(connection, choice.conversation)
    return replace(choice, tenant=tenant) if tenant is not None else None


def _conditions(
    connection: sa.Connection, choice: report_lists.RequestChoice
) -> tuple[dict[str, Condition], list[Condition]]:
    """Returns the filters that have an index, the narrowest kinds first, and the others."""
    columns, leading, others = TABLE.c, dict[str, Condition](), list[Condition]()
    of_tenant = columns.tenant == storable(choice.tenant) if choice.tenant is not None else None
    if choice.conversation is not None and of_tenant is not None:
        leading["conversation"] = sa.and_(of_tenant, columns.conversation_id == storable(choice.conversation))
    if choice.user is not None:
        leading["user"] = columns.end_user.in_(names_of_user(connection, choice.user))
    for name, column, value in (("key", columns.key_id, choice.key), ("agent", columns.agent, choice.agent)):
        if value is not None:
            leading[name] = column == storable(value)
    if choice.status not in (None, "complete"):
        leading["status"] = sa.and_(columns.status == choice.status, columns.status != COMPLETE)
    elif choice.http_status is not None and choice.http_status != report_lists.OK:
        leading["status"] = sa.and_(columns.status == "failed", columns.status != COMPLETE)
    if choice.status == "complete":
        others.append(columns.status == choice.status)
    if choice.model is not None:
        leading["model"] = columns.model == storable(choice.model)
    if choice.endpoint is not None and choice.endpoint != report_lists.CHAT_ENDPOINT:
        leading["endpoint"] = columns.endpoint == storable(choice.endpoint)
    if of_tenant is not None:
        leading["tenant"] = of_tenant
    if choice.endpoint == report_lists.CHAT_ENDPOINT:
        others.append(columns.endpoint.is_(None))
    if choice.http_status is not None:
        is_ok = choice.http_status == report_lists.OK
        others.append(columns.status != "failed" if is_ok else columns.http_status == choice.http_status)
    for column, limits in _amounts(choice):  # beside an index, not by it
        others += _within(sa.func.coalesce(column, column), limits)
    if choice.text:
        others.append(_said(choice.text))
    return leading, others


def _amount(connection: sa.Connection, choice: report_lists.RequestChoice, most: int) -> Condition | None:
    """Returns the first amount whose index leaves no more than `most` requests; None if there is none."""
    found = (sa.and_(*_within(column, limits)) for column, limits in _amounts(choice))
    return next((each for each in found if _count(connection, [each], most) <= most), None)


def _amounts(choice: report_lists.RequestChoice) -> Iterable[tuple[sa.Column[int], Limits]]:
    columns = TABLE.c
    for column, limits in (
        (columns.known_cost_picousd, (pico(choice.min_cost), pico(choice.max_cost))),
        (columns.net_saving_picousd, (pico(choice.min_saved), pico(choice.max_saved))),
        (columns.total_ms, (choice.min_ms, choice.max_ms)),
    ):
        if limits != (None, None):
            yield column, limits


def _within(column: sa.ColumnElement[int], limits: Limits) -> Iterable[Condition]:
    least, most = limits
    if least is not None:
        yield column >= least
    if most is not None:
        yield column <= most


def _said(text: str) -> Condition:
    """Returns the condition that a user message of a request may have the text; matches are checked again. SQLite folds
    only ASCII letters: others are found as written, in lower or upper case, or capitalized."""
    body = sa.type_coerce(MESSAGES.c.body, sa.Text)
    has = []
    for word in text.split()[:MAX_WORDS]:
        variants = (word, word.lower(), word.upper(), word.capitalize())
        as_json = dict.fromkeys(jsons.dumps_text(storable(each))[1:-1].translate(SMALL) for each in variants)
        has.append(sa.or_(*(body.icontains(each, autoescape=True) for each in as_json)))
    of_it = (MESSAGES.c.request_id == TABLE.c.request_id, MESSAGES.c.role == "user")
    return sa.exists().where(*of_it, *has)


def _with_text(
    connection: sa.Connection, lines: Sequence[report_lists.RequestLine], text: str
) -> Iterable[report_lists.FoundRequest]:
    """Yields those requests whose user messages have the text, each with the last of them."""
    said: dict[str, list[dict[str, Any]]] = {}
    columns = (MESSAGES.c.id, MESSAGES.c.request_id, MESSAGES.c.body)
    of_them = (MESSAGES.c.request_id.in_([each.id for each in lines]), MESSAGES.c.role == "user", MESSAGES.c.body != "")
    for row in connection.execute(sa.select(*columns).where(*of_them).order_by(MESSAGES.c.sequence_number.desc())):
        said.setdefault(row.request_id, []).append(rows.body_of(row))
    for line in lines:
        bodies = said.get(line.id, [])
        texts = (each for body in bodies for each in texts_of(body.get("content"), "text"))
        if any(folded(text) in folded(each) for each in texts):
            yield report_lists.FoundRequest(line, question_columns(bodies)["question"])


def _with_questions(
    connection: sa.Connection, lines: Sequence[report_lists.RequestLine]
) -> Iterable[report_lists.FoundRequest]:
    """Yields requests with the beginning of their last user message, where stored; reads no message whole."""
    last = sa.select(MESSAGES.c.id).where(MESSAGES.c.request_id == TABLE.c.request_id, MESSAGES.c.role == "user")
    last = last.order_by(MESSAGES.c.sequence_number.desc()).limit(1)
    wanted = sa.select(last.scalar_subquery()).where(TABLE.c.request_id.in_([each.id for each in lines]))
    names = {row.id: row.request_id for row in connection.execute(_NAMES.where(MESSAGES.c.id.in_(wanted)))}
    begins = texts_begin(connection, list(names))
    said = {names[each]: {"role": "user", "content": text} for each, text in begins.items()}
    for line in lines:
        yield report_lists.FoundRequest(line, question_columns([said[line.id]] if line.id in said else [])["question"])


def _aside(condition: Condition) -> Condition:
    """Returns the condition in a form that uses no index."""
    return sa.and_(sa.case((condition, 1), else_=0) == 1)


def read_speeds(
    connection: sa.Connection, tenant: str | None, since: datetime
) -> dict[str | None, report_lists.RequestSpeed]:
    """Computes percentiles of how long requests since `since` took, by model, and of all under None; requests without a
    known duration are left out."""
    where = [TABLE.c.created_at >= since, *([TABLE.c.tenant == storable(tenant)] if tenant is not None else [])]
    query = sa.select(TABLE.c.model, TABLE.c.total_ms).where(*where).order_by(TABLE.c.created_at.desc())
    read = connection.execute(query.limit(MAX_TIMED + 1)).all()
    took: dict[str | None, list[int]] = {}
    for model, ms in read[:MAX_TIMED]:
        if ms is not None:
            took.setdefault(None, []).append(ms)
            took.setdefault(model, []).append(ms)
    is_part = len(read) > MAX_TIMED
    return {name: _speed(sorted(each), is_part=is_part) for name, each in took.items()}


def _speed(took: Sequence[int], *, is_part: bool) -> report_lists.RequestSpeed:
    p50, p95 = (took[-(-share * len(took) // 100) - 1] for share in (50, 95))
    return report_lists.RequestSpeed(p50, p95, len(took), is_part=is_part)


def named_things(connection: sa.Connection, tenant: str | None, name: str) -> list[tuple[str, str]]:
    """Lists what a name stands for: pairs of a kind (`session`, `user`, `model`, `agent`, `key`) and the id or name by
    which it is found; for sessions their conversations' ids."""
    found: list[tuple[str, str]] = []
    owners: Any = [storable(tenant)] if tenant is not None else _tenants_of_sessions()
    query = sa.select(SESSIONS.c.conversation_id).where(
        SESSIONS.c.name == storable(name), SESSIONS.c.tenant.in_(owners)
    )
    found += [("session", each) for each in connection.execute(query.limit(MAX_NAMES)).scalars()]
    for kind, column, names in (
        ("user", DAYS.c.end_user if tenant is not None else TABLE.c.end_user, names_of_user(connection, name)),
        ("agent", TABLE.c.agent, (storable(name),)),
        ("key", DAYS.c.key_id, (storable(name),)),
        ("model", DAYS.c.model, (storable(name),)),
    ):
        where: list[Condition] = [column.in_(names)]
        if kind == "user" and tenant is not None:  # the index begins with the tenant
            where.append(DAYS.c.tenant == storable(tenant))
        some = sa.select(column.table.c.tenant).where(*where).limit(MAX_READ if tenant is not None else 1).subquery()
        query = sa.select(some.c.tenant).where(*([some.c.tenant == storable(tenant)] if tenant is not None else []))
        if connection.execute(query.limit(1)).first() is not None:
            found.append((kind, name))
    return found


def _tenants_of_sessions() -> sa.Select[Any]:
    """Selects each tenant that has a session, by one step in the index per tenant."""
    each = sa.select(sa.func.min(SESSIONS.c.tenant).label("tenant")).cte("each_tenant", recursive=True)
    following = sa.select(sa.func.min(SESSIONS.c.tenant)).where(SESSIONS.c.tenant > each.c.tenant).scalar_subquery()
    each = each.union_all(sa.select(following).where(each.c.tenant.is_not(None)))
    return sa.select(each.c.tenant)
