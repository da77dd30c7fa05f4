"""Reads outlines of conversations, and single requests with all that is stored of them, for pages and commands.

Messages are read without what they say; only those of one page, and of the request that is looked at, are read whole.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.errors import ConversationNotFound, NotFound
from gateway.core.types.artifacts import Artifact
from gateway.core.types.bill import PICO
from gateway.core.types.frames import PromptFrame
from gateway.core.types.outline import ConversationOutline, OutlinedMessage, OutlinedPage, OutlinedReplay
from gateway.core.types.past_turns import ConversationPath
from gateway.core.types.report_lists import KeptSums
from gateway.core.types.turn import LedgerEntry, StoredCompletion
from gateway.storage import rows
from gateway.storage.conversations.path import read_path
from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.encryption.columns import vault_of
from gateway.storage.lookup.frame_rows import read_frame_then
from gateway.storage.lookup.segments import all_segments, segment_of
from gateway.storage.lookup.walk import body_of_message
from gateway.storage.turns.bills import calls_of
from gateway.storage.turns.completions import read_completion, read_requests

MAX_MESSAGES = 20_000
"""Messages of one conversation that an outline has."""
TEXT_CHARS = 400
"""Of a user message, as the storage has it: enough for a line of its text."""
BODY_CHARS = 24_000
"""Of a message, as the storage has it: enough for what a page shows of it."""
BATCH = 500
CONVERSATIONS, MESSAGES, LEDGER, STEPS = (schema.conversations, schema.messages, schema.ledger, schema.reasoning_events)


class OutlineReader:
    """Each method is one short transaction. `tenant` is whose rows may be seen; None: everybody's.

    Raises:
        StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout.
    """

    def __init__(self, transactions: DatabaseTransactions) -> None:
        self._transactions = transactions

    async def outline(self, tenant: str | None, conversation_id: str) -> ConversationOutline:
        """
        Raises:
            ConversationNotFound: there is none of that id to be seen.
        """
        return await self._transactions.run(lambda connection: read_outline(connection, tenant, conversation_id))

    async def page(
        self,
        outline: ConversationOutline,
        request_ids: Sequence[str],
        message_ids: Sequence[str],
        said: Sequence[OutlinedMessage] = (),
    ) -> OutlinedPage:
        """The bills of these requests, how these user messages begin, and what the messages `said` say."""

        def work(connection: sa.Connection) -> OutlinedPage:
            bills = _bills(connection, outline.tenant, request_ids)
            return OutlinedPage(bills, _texts(connection, message_ids), *_bodies(connection, said))

        return await self._transactions.run(work)

    async def request(self, tenant: str | None, request_id: str) -> tuple[StoredCompletion, ConversationPath | None]:
        """A request by `req_…` or `chatcmpl-…`: its bill, and the branch up to its answer; None where it has none.

        Raises:
            NotFound: there is none of that id to be seen.
        """
        return await self._transactions.run(lambda connection: read_request(connection, tenant, request_id))

    async def details(
        self, entry: LedgerEntry, path: ConversationPath, before: Sequence[str], names: Sequence[str]
    ) -> tuple[list[LedgerEntry], list[Artifact]]:
        """The bills of earlier requests of a branch, and the attached documents of these artifact ids, of
        large ones without their text."""

        def work(connection: sa.Connection) -> tuple[list[LedgerEntry], list[Artifact]]:
            found = [each.ledger for each in read_requests(connection, entry.tenant, before)] if before else []
            return found, _attached(connection, path.conversation_id, names)

        return await self._transactions.run(work)

    async def frames(
        self, path: ConversationPath, requests: Sequence[tuple[str, str, Any]]
    ) -> list[PromptFrame | None]:
        """What models had been sent of a branch: for each the model, the id of the answer, and when that was
        committed."""

        def work(connection: sa.Connection) -> list[PromptFrame | None]:
            ids = {each.message.message_id for each in path.messages}
            return [
                read_frame_then(connection, path.conversation_id, model, ids - {answer}, at)
                for model, answer, at in requests
            ]

        return await self._transactions.run(work)


def read_outline(connection: sa.Connection, tenant: str | None, conversation_id: str) -> ConversationOutline:
    """
    Raises:
        ConversationNotFound: there is none of that id to be seen.
    """
    table = CONVERSATIONS.c
    where = [table.id == conversation_id, *([table.tenant == tenant] if tenant is not None else [])]
    row = connection.execute(sa.select(CONVERSATIONS).where(*where)).first()
    if row is None:
        raise ConversationNotFound("No such conversation.", param="conversation_id")
    messages = _messages(connection, conversation_id)
    sessions, replays, pins = schema.sessions.c, schema.replays.c, schema.pins.c
    session = connection.execute(sa.select(sessions.name).where(sessions.conversation_id == conversation_id)).scalar()
    made = connection.execute(
        sa.select(replays.id, replays.from_turn, replays.to_turn, replays.at_id)
        .where(replays.conversation_id == conversation_id)
        .order_by(replays.created_at)
    )
    pinned = sa.select(pins.message_id).where(pins.conversation_id == conversation_id)
    return ConversationOutline(
        row.id,
        row.tenant,
        row.head_id,
        rows.utc(row.created_at),
        rows.utc(row.updated_at),
        messages[:MAX_MESSAGES],
        len(messages) <= MAX_MESSAGES,
        rows.utc(row.forgotten_at) if row.forgotten_at is not None else None,
        session,
        jsons.loads(row.metadata) if row.metadata else {},
        row.team_task,
        frozenset(connection.execute(pinned).scalars()) if row.pins else frozenset(),
        tuple(map(segment_of, all_segments(connection, conversation_id).values())) if row.summarized else (),
        tuple(OutlinedReplay(each.id, each.from_turn, each.to_turn, each.at_id) for each in made),
        _sums(connection, row.tenant, conversation_id),
    )


def _messages(connection: sa.Connection, conversation_id: str) -> list[OutlinedMessage]:
    """Those of all branches, oldest first, the latest `MAX_MESSAGES` and one more where there are more."""
    names = ("id", "parent_id", "role", "status", "request_id", "choice", "agent", "sequence_number", "created_at")
    table = MESSAGES.c
    query = sa.select(*(table[name] for name in names), table.instructions_digest, STEPS.c.call_message_id)
    of_it = sa.and_(STEPS.c.conversation_id == table.conversation_id, STEPS.c.message_id == table.id)
    query = query.select_from(MESSAGES.outerjoin(STEPS, of_it)).where(table.conversation_id == conversation_id)
    found = connection.execute(query.order_by(table.sequence_number.desc(), table.id.desc()).limit(MAX_MESSAGES + 1))
    return [
        OutlinedMessage(
            row.id,
            row.parent_id,
            row.role,
            row.status,
            row.request_id,
            row.choice,
            row.agent,
            row.sequence_number,
            rows.utc(row.created_at),
            row.call_message_id,
            row.instructions_digest,
        )
        for row in reversed(found.all())
    ]


def _sums(connection: sa.Connection, tenant: str, conversation_id: str) -> KeptSums:
    """What an audit of the conversation adds up, dry runs and failed requests included."""
    table = LEDGER.c
    total = table.total_cost_picousd
    known = sa.case((total.is_not(None), total), else_=sa.func.coalesce(table.known_cost_picousd, 0))
    sums = [known, sa.func.coalesce(table.planning_cost_picousd, 0), sa.case((total.is_(None), 1), else_=0)]
    sums += [sa.case((table.estimated, 1), else_=0)]
    sums += [sa.case((table.net_saving_picousd.is_not(None), 1), else_=0), table.net_saving_picousd]
    figures = [table.prompt_tokens, table.completion_tokens, *sums]
    query = sa.select(sa.func.count(), *(sa.func.sum(each) for each in figures))
    row = connection.execute(query.where(table.tenant == tenant, table.conversation_id == conversation_id)).one()
    requests, prompt, completion, cost, planning, unpriced, estimated, metered, net = (int(n or 0) for n in row)
    money = cost * PICO, planning * PICO
    return KeptSums(requests, prompt, completion, *money, unpriced, estimated, metered, net * PICO)


def _bills(connection: sa.Connection, tenant: str, request_ids: Sequence[str]) -> dict[str, LedgerEntry]:
    """Bills as they are stored: without the artifacts that stand, which they only count."""
    found: dict[str, LedgerEntry] = {}
    for start in range(0, len(request_ids), BATCH):
        ids = list(request_ids[start : start + BATCH])
        calls = calls_of(connection, ids)
        query = sa.select(LEDGER).where(LEDGER.c.request_id.in_(ids), LEDGER.c.tenant == tenant)
        for row in connection.execute(query):
            found[row.request_id] = rows.entry_of(row, tuple(calls.get(row.request_id, ())))
    return found


def _texts(connection: sa.Connection, message_ids: Sequence[str]) -> dict[str, str]:
    """How these messages' stored bodies begin."""
    found: dict[str, str] = {}
    for start in range(0, len(message_ids), BATCH):
        begin: Any = sa.func.substr(MESSAGES.c.body, 1, TEXT_CHARS)
        if vault_of(connection.dialect) is not None:
            begin = MESSAGES.c.body
        query = sa.select(MESSAGES.c.id, begin).where(MESSAGES.c.id.in_(message_ids[start : start + BATCH]))
        found |= {row[0]: beginning(row[1][:TEXT_CHARS]) for row in connection.execute(query)}
    return found


def _bodies(
    connection: sa.Connection, messages: Sequence[OutlinedMessage]
) -> tuple[dict[str, Mapping[str, Any]], frozenset[str]]:
    """What these messages say, and which of them are longer than `BODY_CHARS`: of those, how their text begins."""
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


def beginning(stored: str) -> str:
    """How the text of a message begins, out of the beginning of its stored body, which may end anywhere."""
    for mark in ('"content":"', '"text":"'):
        _, is_there, rest = stored.partition(mark)
        if not is_there:
            continue
        for cut in range(len(rest), max(-1, len(rest) - 8), -1):
            text = rest[:cut]
            end = _end_of_string(text)
            try:
                value = jsons.loads(f'"{text[:end]}"')
            except jsons.JSONDecodeError:
                continue  # it ends in the midst of an escape
            return str(value)
    return ""


def _end_of_string(text: str) -> int:
    """Where a JSON string ends whose opening quote is before `text`; its length if it does not."""
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == '"':
            return at
        at += 1
    return len(text)


def read_request(
    connection: sa.Connection, tenant: str | None, request_id: str
) -> tuple[StoredCompletion, ConversationPath | None]:
    """
    Raises:
        NotFound: there is none of that id to be seen.
    """
    owner = tenant if tenant is not None else _owner(connection, request_id)
    found = read_completion(connection, owner, request_id) if owner is not None else None
    if owner is None or found is None:
        raise NotFound("No such request.", param="request_id")
    entry = found.ledger
    if entry.conversation_id is None:
        return found, None
    own = (MESSAGES.c.conversation_id == entry.conversation_id, MESSAGES.c.request_id == entry.request_id)
    order = (MESSAGES.c.choice.is_(None), MESSAGES.c.choice, MESSAGES.c.sequence_number.desc())
    last = connection.execute(sa.select(MESSAGES.c.id).where(*own).order_by(*order).limit(1)).scalar()
    try:
        path = read_path(connection, owner, entry.conversation_id, last or "")
    except ConversationNotFound:
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
