"""Reads stored conversations: texts for a search, within a bound (guarantee §10.12); what turns took (guarantee §6); a
branch with its requests; outlines, for the web UI and commands.

Small columns show which messages fit or are shown; bodies are read of those alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core import errors, ids, jsons
from gateway.core.types import bill, past_turns, report_lists, tool_steps, turn
from gateway.core.types.artifacts import Artifact
from gateway.core.types.conversation import ConversationMessage, PromptFrame
from gateway.core.types.past_turns import ConversationTotals, TurnTotal
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.transactions import DatabaseClient, reads
from gateway.storage.encryption.columns import vault_of
from gateway.storage.large_documents import read_part
from gateway.storage.lookup.frame_rows import read_frame_then
from gateway.storage.lookup.locate import MESSAGES, body_of_message, fewer_than, messages_of, upwards, whole_messages
from gateway.storage.lookup.segments import all_segments, segment_of
from gateway.storage.reports.request_list import list_conversations, read_conversation
from gateway.storage.turns.bills import calls_of
from gateway.storage.turns.completions import read_completion, read_requests
from gateway.storage.turns.questions import beginning, texts_begin
from gateway.storage.turns.roll_ups import OF_A_CONVERSATION, kept_sums

TABLE = schema.conversations
DOCUMENTS = schema.attachments
CACHED = schema.cached_contents
MAX_MESSAGES = 2_000
"""The latest messages of a conversation that are considered."""
MAX_DOCUMENTS = 200
"""The latest documents of a conversation that are considered."""
LARGE_CHARS = 16_000
"""Budget that a large document takes, of which the needed part is read afterwards: two regions."""
BATCH = 500


def read_recent(
    connection: sa.Connection, tenant: str, most: int, text: str | None = None
) -> tuple[report_lists.ConversationLine, ...]:
    """Lists the conversations that were active last; with `text` those whose first question contains it."""
    part = report_lists.ListPart(report_lists.ConversationChoice(tenant=tenant, text=text), limit=most)
    return list_conversations(connection, part).found


def read_lines(
    connection: sa.Connection, tenant: str, conversation_ids: Sequence[str]
) -> tuple[report_lists.ConversationLine, ...]:
    """Returns those of these conversations that are the tenant's."""
    found = (read_conversation(connection, tenant, each) for each in conversation_ids)
    return tuple(each for each in found if each is not None)


def read_texts(
    connection: sa.Connection, tenant: str, conversation_id: str, max_bytes: int, most_messages: int = MAX_MESSAGES
) -> past_turns.ConversationTexts | None:
    """Reads a conversation's latest messages and documents, `max_bytes` together at most; None if the tenant has none
    of that id. Documents come first: they are what a conversation is about."""
    head = sa.select(TABLE.c.head_id, TABLE.c.attachments).where(TABLE.c.id == conversation_id)
    row = connection.execute(head.where(TABLE.c.tenant == tenant)).first()
    if row is None:
        return None
    documents, room, whole = _documents(connection, conversation_id, max_bytes) if row.attachments else ((), 0, True)
    room = max_bytes - room
    chain: Sequence[Any] = ()
    if row.head_id is not None:
        chain = connection.execute(_CHAIN, {"from": row.head_id, "count": most_messages}).all()
    chosen: list[str] = []
    for each in chain:
        if each.weight <= room:
            room -= each.weight
            chosen.append(each.id)
    complete = whole and len(chosen) == len(chain) and (not chain or chain[-1].parent_id is None)
    messages: dict[str, ConversationMessage] = {}
    for start in range(0, len(chosen), BATCH):
        found = connection.execute(whole_messages().where(MESSAGES.c.id.in_(chosen[start : start + BATCH])))
        messages |= {each.id: rows.message_of(each) for each in found}
    path = tuple(messages[each] for each in reversed(chosen) if each in messages)
    return past_turns.ConversationTexts(path, documents, max_bytes - room, complete)


def read_holders(connection: sa.Connection, tenant: str, artifact_id: str, most: int) -> tuple[str, ...]:
    """Lists the tenant's conversations that are known to hold an artifact without reading them: as a document, or since
    the cache holds something made of it. The most recently active come first."""
    begins = artifact_id.removeprefix(ids.ARTIFACT)
    kept = sa.select(CACHED.c.conversation_id).where(
        CACHED.c.tenant == tenant, CACHED.c.digest >= begins, CACHED.c.digest < begins + "g"
    )
    latest = sa.select(TABLE.c.id).where(TABLE.c.tenant == tenant, TABLE.c.attachments > 0)
    latest = latest.order_by(TABLE.c.updated_at.desc(), TABLE.c.id.desc()).limit(BATCH)
    attached = sa.select(DOCUMENTS.c.conversation_id).where(
        DOCUMENTS.c.conversation_id.in_(latest), DOCUMENTS.c.artifact_id == artifact_id
    )
    holds = sa.or_(TABLE.c.id.in_(kept), TABLE.c.id.in_(attached))
    query = sa.select(TABLE.c.id).where(TABLE.c.tenant == tenant, holds)
    return tuple(connection.execute(query.order_by(TABLE.c.updated_at.desc()).limit(most)).scalars())


def _documents(
    connection: sa.Connection, conversation_id: str, max_bytes: int
) -> tuple[tuple[Artifact, ...], int, bool]:
    """Reads the latest documents that fit, in order; returns them, their size, and whether they are all. Large ones
    come without their text."""
    own = DOCUMENTS.c.conversation_id == conversation_id
    here = sa.case((DOCUMENTS.c.document.is_not(None), LARGE_CHARS), else_=DOCUMENTS.c.size)
    sizes = sa.select(DOCUMENTS.c.number, here.label("size")).where(own).order_by(DOCUMENTS.c.number.desc())
    listed = connection.execute(sizes.limit(MAX_DOCUMENTS + 1)).all()
    chosen, size = [], 0
    for each in listed[:MAX_DOCUMENTS]:
        if size + each.size <= max_bytes:
            size += each.size
            chosen.append(each.number)
    query = sa.select(DOCUMENTS).where(own, DOCUMENTS.c.number.in_(chosen)).order_by(DOCUMENTS.c.number)
    found = list(map(rows.attachment_of, connection.execute(query).all())) if chosen else []
    return tuple(found), size, len(chosen) == len(listed)


def _chain_query() -> sa.Select[Any]:
    """Selects ids and weights of the path to `:from`, latest first, `:count` at most."""
    chain = upwards(MESSAGES.c.weight, onwards=fewer_than)
    return sa.select(chain.c.id, chain.c.parent_id, chain.c.weight).order_by(chain.c.depth)


_CHAIN = _chain_query()


LISTED = 100
"""Turns that are listed one by one: the latest."""
LEDGER = schema.ledger
CALLS = schema.ledger_calls


@dataclass(slots=True)
class _TurnRequests:
    """The requests of one turn: its first, and those of its tool loop."""

    spent: bill.CostSums
    requests: list[str]
    status: str
    created_at: datetime


def read_totals(connection: sa.Connection, tenant: str, conversation_id: str) -> ConversationTotals:
    """Sums what a tenant's conversation took. A request without a stored message (a dry run, one whose turn could not
    be stored) counts in the sums and makes no turn."""
    begun_by = _first_requests(connection, conversation_id)
    total, turns = bill.CostSums(), dict[str, _TurnRequests]()
    by_agent: dict[str | None, bill.CostSums] = {}
    for row in _bills(connection, tenant, conversation_id):
        spent = _spending(row)
        total += spent
        by_agent[row.agent] = by_agent.get(row.agent, bill.CostSums()) + spent
        first = begun_by.get(row.request_id)
        if first is None:
            continue
        turn = turns.setdefault(first, _TurnRequests(bill.CostSums(), [], row.status, rows.utc(row.created_at)))
        turn.spent, turn.status = turn.spent + spent, row.status
        turn.requests.append(row.request_id)
    listed = list(enumerate(turns.values(), 1))[-LISTED:]
    each = (TurnTotal(n, tuple(turn.requests), turn.status, turn.created_at, turn.spent) for n, turn in listed)
    return ConversationTotals(len(turns), total, tuple(each), by_agent)


def read_spending(connection: sa.Connection, tenant: str, conversation_id: str) -> dict[str, bill.CostSums]:
    """Reads what each request of a conversation took, by its id."""
    return {row.request_id: _spending(row) for row in _bills(connection, tenant, conversation_id)}


def _first_requests(connection: sa.Connection, conversation_id: str) -> dict[str, str]:
    """Maps each request that stored a message to the request that began its turn: the one whose user message above did
    (`turn_starts`)."""
    columns = (MESSAGES.c.id, MESSAGES.c.parent_id, MESSAGES.c.role, MESSAGES.c.request_id)
    query = sa.select(*columns).where(MESSAGES.c.conversation_id == conversation_id)
    first_of: dict[str, str] = {}  # by message
    in_loop: dict[str | None, bool] = {}
    found: dict[str, str] = {}
    for row in connection.execute(query.order_by(MESSAGES.c.sequence_number)):
        before = in_loop.get(row.parent_id, False)
        in_loop[row.id] = tool_steps.in_loop_after(row.role, before=before)
        above = None if row.role == "user" and not before else first_of.get(row.parent_id)
        first_of[row.id] = above or row.request_id
        found[row.request_id] = first_of[row.id]
    return found


def _bills(connection: sa.Connection, tenant: str, conversation_id: str) -> Iterable[Any]:
    """Reads the conversation's rows of the ledger in order of arrival, each with the cost of its internal calls."""
    cost = CALLS.c.prompt_cost_picousd + CALLS.c.completion_cost_picousd
    internal = sa.select(CALLS.c.request_id, sa.func.sum(cost).label("planning"))
    internal = internal.join(LEDGER, LEDGER.c.request_id == CALLS.c.request_id)
    of_it = (LEDGER.c.tenant == tenant, LEDGER.c.conversation_id == conversation_id)
    planned = (
        internal.where(*of_it, CALLS.c.purpose.not_in(bill.MODEL_PURPOSES)).group_by(CALLS.c.request_id).subquery()
    )
    names = ("request_id", "status", "created_at", "prompt_tokens", "completion_tokens", "total_cost_picousd", "agent")
    columns = (*(LEDGER.c[name] for name in names), LEDGER.c.estimated, planned.c.planning)
    joined = LEDGER.outerjoin(planned, planned.c.request_id == LEDGER.c.request_id)
    query = sa.select(*columns).select_from(joined).where(*of_it)
    return connection.execute(query.order_by(LEDGER.c.created_at, LEDGER.c.request_id))


def _spending(row: Any) -> bill.CostSums:
    return bill.CostSums(
        requests=1,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cost_picousd=row.total_cost_picousd or 0,
        unpriced=int(row.total_cost_picousd is None),
        planning_cost_picousd=int(row.planning or 0),
        estimated=int(row.estimated),
    )


CONVERSATIONS = schema.conversations
INSTRUCTIONS = schema.instructions


def read_path(
    connection: sa.Connection, tenant: str, conversation_id: str, last: str | None = None
) -> past_turns.ConversationPath:
    """Reads the branch that ends with the message `last`; None: with the conversation's latest.
    Raises ConversationNotFound: the tenant has none of that id."""
    table = CONVERSATIONS
    where = (table.c.tenant == tenant, table.c.id == conversation_id)
    row = connection.execute(sa.select(table.c.id, table.c.head_id, table.c.forgotten_at).where(*where)).first()
    if row is None:
        raise errors.ConversationNotFound("No such conversation.", param="conversation_id")
    end = last if last is not None else row.head_id
    found = connection.execute(_PATH, {"from": end}).all()[::-1] if end is not None else []
    known = sa.select(INSTRUCTIONS.c.digest, INSTRUCTIONS.c.body)
    bodies = connection.execute(known.where(INSTRUCTIONS.c.conversation_id == conversation_id))
    return past_turns.ConversationPath(
        conversation_id,
        tuple(map(_message, found)),
        {each.digest: tuple(jsons.loads_stored(each.body)) for each in bodies},
        rows.utc_or_none(row.forgotten_at),
    )


def read_details(
    connection: sa.Connection, tenant: str, path: past_turns.ConversationPath, turn: past_turns.PastTurn
) -> past_turns.TurnDetails:
    """Reads what is stored of one turn beside its messages: the bills of its requests, and the frames that they were
    sent with."""
    bills = read_bills(connection, tenant, path, [turn])
    frames: dict[str, PromptFrame | None] = {}
    for request in turn.answered:
        bill, answer = bills.get(request.request_id), request.answer
        if bill is None or answer is None or answer.committed_at is None:
            continue
        way = {each.message.message_id for each in path.messages if each is not answer}
        model = bill.completion.ledger.window_model
        frames[request.request_id] = read_frame_then(connection, path.conversation_id, model, way, answer.committed_at)
    return past_turns.TurnDetails(bills, frames)


def read_bills(
    connection: sa.Connection, tenant: str, path: past_turns.ConversationPath, turns: Sequence[past_turns.PastTurn]
) -> dict[str, past_turns.PastBill]:
    """Reads the bills of all requests of these turns of a branch, by request id; those that were paid elsewhere have
    none."""
    spending = read_spending(connection, tenant, path.conversation_id)
    wanted = [each.request_id for turn in turns for each in turn.answered if each.request_id in spending]
    found = read_requests(connection, tenant, wanted) if wanted else []
    return {each.ledger.request_id: past_turns.PastBill(each, spending[each.ledger.request_id]) for each in found}


def _message(row: Any) -> past_turns.PathMessage:
    return past_turns.PathMessage(rows.message_of(row), row.request_id, row.choice, row.instructions_digest)


_PATH = messages_of(upwards())


MAX_OUTLINED = 20_000
"""The most messages of one conversation in an outline."""
BODY_CHARS = 24_000
"""Characters of a stored message that suffice for the web UI."""
STEPS = schema.reasoning_events


def read_outline(connection: sa.Connection, tenant: str | None, conversation_id: str) -> past_turns.ConversationOutline:
    """Reads a conversation's outline. Raises ConversationNotFound: no visible conversation has that id."""
    table = CONVERSATIONS.c
    where = [table.id == conversation_id, *([table.tenant == tenant] if tenant is not None else [])]
    row = connection.execute(sa.select(CONVERSATIONS).where(*where)).first()
    if row is None:
        raise errors.ConversationNotFound("No such conversation.", param="conversation_id")
    messages = _messages(connection, conversation_id)
    sessions, replays, pins = schema.sessions.c, schema.replays.c, schema.pins.c
    names = sa.select(sa.func.min(sessions.name)).where(sessions.conversation_id == conversation_id)
    session = connection.execute(names).scalar()
    made = connection.execute(
        sa.select(replays.id, replays.from_turn, replays.to_turn, replays.at_id)
        .where(replays.conversation_id == conversation_id)
        .order_by(replays.created_at)
    )
    pinned = sa.select(pins.message_id).where(pins.conversation_id == conversation_id)
    return past_turns.ConversationOutline(
        row.id,
        row.tenant,
        row.head_id,
        rows.utc(row.created_at),
        rows.utc(row.updated_at),
        messages[:MAX_OUTLINED],
        len(messages) <= MAX_OUTLINED,
        rows.utc_or_none(row.forgotten_at),
        session,
        jsons.loads(row.metadata) if row.metadata else {},
        row.team_task,
        frozenset(connection.execute(pinned).scalars()) if row.pins else frozenset(),
        tuple(map(segment_of, all_segments(connection, conversation_id).values())) if row.summarized else (),
        tuple(past_turns.OutlinedReplay(each.id, each.from_turn, each.to_turn, each.at_id) for each in made),
        _sums(connection, row.tenant, conversation_id),
    )


def _messages(connection: sa.Connection, conversation_id: str) -> list[past_turns.OutlinedMessage]:
    """Reads the messages of all branches, oldest first: the latest `MAX_OUTLINED`, plus one if there are more."""
    names = ("id", "parent_id", "role", "status", "request_id", "choice", "agent", "sequence_number", "created_at")
    table = MESSAGES.c
    query = sa.select(*(table[name] for name in names), table.instructions_digest, STEPS.c.call_message_id)
    of_it = sa.and_(STEPS.c.conversation_id == table.conversation_id, STEPS.c.message_id == table.id)
    query = query.select_from(MESSAGES.outerjoin(STEPS, of_it)).where(table.conversation_id == conversation_id)
    found = connection.execute(query.order_by(table.sequence_number.desc(), table.id.desc()).limit(MAX_OUTLINED + 1))
    return [
        past_turns.OutlinedMessage(*(*each, rows.utc(created_at), call_id, instructions))
        for *each, created_at, instructions, call_id in reversed(found.all())
    ]


def _sums(connection: sa.Connection, tenant: str, conversation_id: str) -> bill.CostSums:
    """Computes the sums that an audit of the conversation finds, dry runs and failed requests included."""
    table = LEDGER.c
    figures: dict[str, sa.ColumnElement[Any]] = {name: table[name] for name in OF_A_CONVERSATION if name in table}
    figures["cost_picousd"] = sa.func.coalesce(table.total_cost_picousd, table.known_cost_picousd)
    figures["unpriced"] = sa.case((table.total_cost_picousd.is_(None), 1), else_=0)
    figures["estimated"] = sa.case((table.estimated, 1), else_=0)
    figures["metered"] = sa.case((table.net_saving_picousd.is_not(None), 1), else_=0)
    sums = (sa.func.sum(each).label(name) for name, each in figures.items())
    query = sa.select(sa.func.count().label("requests"), *sums)
    query = query.where(table.tenant == tenant, table.conversation_id == conversation_id)
    return kept_sums(connection.execute(query).one())


def read_page(
    connection: sa.Connection,
    outline: past_turns.ConversationOutline,
    request_ids: Sequence[str],
    message_ids: Sequence[str],
    said: Sequence[past_turns.OutlinedMessage] = (),
) -> past_turns.OutlinedPage:
    """Reads the bills of these requests, how these user messages begin, and the content of the messages `said`."""
    bills = _stored_bills(connection, outline.tenant, request_ids)
    return past_turns.OutlinedPage(bills, texts_begin(connection, message_ids), *_bodies(connection, said))


def _stored_bills(connection: sa.Connection, tenant: str, request_ids: Sequence[str]) -> dict[str, turn.LedgerEntry]:
    """Reads bills as stored: without standing artifacts, which they only count."""
    found: dict[str, turn.LedgerEntry] = {}
    for start in range(0, len(request_ids), BATCH):
        ids = list(request_ids[start : start + BATCH])
        calls = calls_of(connection, ids)
        query = sa.select(LEDGER).where(LEDGER.c.request_id.in_(ids), LEDGER.c.tenant == tenant)
        for row in connection.execute(query):
            found[row.request_id] = rows.entry_of(row, tuple(calls.get(row.request_id, ())))
    return found


def _bodies(
    connection: sa.Connection, messages: Sequence[past_turns.OutlinedMessage]
) -> tuple[dict[str, Mapping[str, Any]], frozenset[str]]:
    """Reads these messages' bodies, and which exceed `BODY_CHARS`: of those, only how their text begins."""
    roles = {each.message_id: each.role for each in messages}
    ids = list(roles)
    found: dict[str, Mapping[str, Any]] = {}
    cut: set[str] = set()
    body: sa.ColumnElement[Any] = body_of_message()
    if vault_of(connection.dialect) is None:
        body = sa.func.substr(body, 1, BODY_CHARS + 1)
    for start in range(0, len(ids), BATCH):
        query = sa.select(MESSAGES.c.id, body).where(MESSAGES.c.id.in_(ids[start : start + BATCH]))
        for name, stored in connection.execute(query):
            if stored is None:
                found[name] = rows.lost_result(roles[name])
            elif len(stored) <= BODY_CHARS:
                found[name] = jsons.loads_stored(stored)
            else:
                found[name] = {"role": roles[name], "content": beginning(stored[:BODY_CHARS])}
                cut.add(name)
    return found, frozenset(cut)


def read_request(
    connection: sa.Connection, tenant: str | None, request_id: str
) -> tuple[turn.StoredCompletion, past_turns.ConversationPath | None]:
    """Reads a request by `req_…` or `chatcmpl-…`: its bill, and the branch up to its answer; None if it has none.
    Raises NotFound: no visible request has that id."""
    owner = tenant if tenant is not None else _owner(connection, request_id)
    found = read_completion(connection, owner, request_id) if owner is not None else None
    if owner is None or found is None:
        raise errors.NotFound("No such request.", param="request_id")
    entry = found.ledger
    if entry.conversation_id is None:
        return found, None
    own = (MESSAGES.c.conversation_id == entry.conversation_id, MESSAGES.c.request_id == entry.request_id)
    order = (MESSAGES.c.choice.is_(None), MESSAGES.c.choice, MESSAGES.c.sequence_number.desc())
    last = connection.execute(sa.select(MESSAGES.c.id).where(*own).order_by(*order).limit(1)).scalar()
    try:
        path = read_path(connection, owner, entry.conversation_id, last or "")
    except errors.ConversationNotFound:
        return found, None
    return found, path


def _owner(connection: sa.Connection, request_id: str) -> str | None:
    column = LEDGER.c.request_id if request_id.startswith("req_") else LEDGER.c.completion_id
    found: str | None = connection.execute(sa.select(LEDGER.c.tenant).where(column == request_id)).scalar()
    return found


def _attached(connection: sa.Connection, conversation_id: str, names: Sequence[str]) -> list[Artifact]:
    table = schema.attachments
    if not names:
        return []
    query = sa.select(table).where(table.c.conversation_id == conversation_id, table.c.artifact_id.in_(names))
    return [rows.attachment_of(row) for row in connection.execute(query.order_by(table.c.number))]


def read_beside(
    connection: sa.Connection,
    entry: turn.LedgerEntry,
    path: past_turns.ConversationPath,
    before: Sequence[str],
    names: Sequence[str],
) -> tuple[list[turn.LedgerEntry], list[Artifact]]:
    """Reads the bills of earlier requests of a branch, and the attached documents of these artifact ids, large ones
    without their text."""
    found = [each.ledger for each in read_requests(connection, entry.tenant, before)] if before else []
    return found, _attached(connection, path.conversation_id, names)


def read_frames(
    connection: sa.Connection, path: past_turns.ConversationPath, requests: Sequence[tuple[str, str, Any]]
) -> list[PromptFrame | None]:
    """Reads what models had been sent of a branch: for each model, answer id, and time of the answer's commit."""
    ids = {each.message.message_id for each in path.messages}
    return [
        read_frame_then(connection, path.conversation_id, model, ids - {answer}, at) for model, answer, at in requests
    ]


class PastReader(DatabaseClient):
    """Reads stored conversations for the web UI, the shell, the API and MCP. Each method is one short transaction.
    `tenant`: whose rows may be seen; None, where allowed: everybody's."""

    recent = reads(read_recent)
    lines = reads(read_lines)
    texts = reads(read_texts)
    part = reads(read_part)
    holders = reads(read_holders)
    path = reads(read_path)
    bills = reads(read_bills)
    turn_details = reads(read_details)
    outline = reads(read_outline)
    page = reads(read_page)
    request = reads(read_request)
    beside = reads(read_beside)
    frames = reads(read_frames)
