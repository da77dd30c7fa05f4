"""`/v1/conversations…`: OpenAI's Conversations API over the stored histories, and a list of them (guarantee §3, §8)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from gateway.api.api_call import ApiCall, MethodEndpoint
from gateway.api.auth import KeyAuthenticator
from gateway.api.fields import Metadata, is_session_name, read
from gateway.api.pagination import (
    check_named,
    given_metadata,
    limit_of,
    listed,
    metadata_of,
    newest_first,
    paging_of,
    unix_time_of,
)
from gateway.api.request.gateway_fields import NAME
from gateway.api.request.validation import check_conversation_id
from gateway.api.shapes import Deleted, Json, ListObject, Unix, Usd, many, said, shape, shown
from gateway.core import errors, ids
from gateway.core.formats.responses.item_reader import ItemReader, ReadMessage
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.types import agents, audit_log, bill, chain, items, past_turns, records, report_lists, turn
from gateway.core.types.chat import a_pin
from gateway.core.types.content_parts import parts_of
from gateway.core.types.conversation import ConversationMessage
from gateway.documents.files import CallersFiles
from gateway.storage.conversations import ConversationRecords

# Reads the items that a client adds to a conversation as chat messages.

MAX_ITEMS = 20
"""OpenAI's limit for one request."""


def parse_items(
    value: Any, *, files: dict[str, str] | None = None, answers: dict[str, str] | None = None
) -> tuple[ConversationMessage, ...]:
    """Parses `items` to chat messages with new ids.
    `files`: receives the paths of files, by their ids; None: the sender's are not stored here, so that no image may be
    named by an id. `answers`: receives the paths of outputs of calls that are not among the items, by call id.
    Raises InvalidRequest: an item breaks a rule; `param` names it, as in `items[i]…`."""
    if value is None:
        raise errors.missing("items")
    if not isinstance(value, list):
        raise errors.invalid("items", "must be a list")
    if len(value) > MAX_ITEMS:
        raise errors.invalid("items", f"may hold {MAX_ITEMS} items at once")
    reader = ItemReader()
    for index, item in enumerate(value):
        reader.read(item, f"items[{index}]")
        if item.get("agent") is not None and item.get("type") != "reasoning":  # which the next item's message takes up
            reader.messages[-1].agent = read(NAME, item["agent"], f"items[{index}].agent")
    reader.end()
    for each in reader.messages:
        _find_files(each, files)
    made: set[str] = set()
    for each in reader.messages:
        made.update(chain.call_ids(each.body))
        if answers is not None and each.body["role"] == "tool" and each.body["tool_call_id"] not in made:
            answers.setdefault(each.body["tool_call_id"], each.where)
    return tuple(
        ConversationMessage(
            each.body["role"],
            each.body,
            message_id=ids.new_id("msg_"),
            status=each.status,
            digest=chain.message_digest(each.body),
            pinned=each.pinned,
            agent=each.agent if each.body["role"] == "assistant" else None,
        )
        for each in reader.messages
    )


def _find_files(message: ReadMessage, files: dict[str, str] | None) -> None:
    """Adds the files that the message names to `files`. Raises InvalidRequest: without these, it names an image."""
    content, field = message.body.get("content"), "output" if message.body["role"] == "tool" else "content"
    for index, part in enumerate(parts_of(content)):
        where, picture = f"{message.where}.{field}[{index}].file_id", items.named_picture(part)
        if picture is not None and files is None:
            raise errors.invalid(where, "is not supported: chat completions take images by URL or as data URLs")
        name = items.named_file(part) if picture is None else picture
        if name is not None and files is not None:
            files.setdefault(name, where)


ITEM_FIELDS = {
    "pinned?": said(bool, "It stays in every window; left out where it is not pinned."),
    "agent?": said(str, "The agent that wrote it; left out where there is none."),
}
Item = shape("Item", "OpenAI's item.", {"id": str, "type": str, **ITEM_FIELDS}, is_open=True)
NewItem = shape("NewItem", "OpenAI's item.", ITEM_FIELDS, is_open=True)
ItemUpdate = shape("ItemUpdate", "Whether the item stays in every window.", {"pinned": bool})
TEAM = {"metadata?": Metadata | None, "team_task?": str | None}
ConversationBody = shape(
    "NewConversation",
    "A conversation to begin.",
    {**TEAM, "items?": Annotated[many(NewItem), Field(max_length=MAX_ITEMS)] | None},
)
ConversationUpdate = shape(
    "ConversationUpdate", "Replaces the metadata as a whole, or the team task; what is not named stays.", TEAM
)
NewItems = shape(
    "NewItems", "Items to append.", {"items": Annotated[many(NewItem), Field(min_length=1, max_length=MAX_ITEMS)]}
)


class SpentCost(TypedDict):
    """What all models cost together."""

    planning_cost: Usd
    total_cost: Usd
    currency: Literal["USD"]
    priced: bool
    estimated: bool


class SpentFigures(TypedDict):
    """Tokens and cost of several requests together."""

    usage: bill.UsageMetadata
    cost: SpentCost


class AgentTotals(TypedDict):
    """What one agent took; requests without one are under null."""

    agent: str | None
    requests: int
    usage: bill.UsageMetadata
    cost: SpentCost


class ConversationFigures(TypedDict):
    """All of it; `agents` only where any was named."""

    turns: int
    requests: int
    usage: bill.UsageMetadata
    cost: SpentCost
    agents: NotRequired[list[AgentTotals]]


class TurnFigures(TypedDict):
    """One turn, all requests of its tool loop together."""

    number: int
    request_ids: list[str]
    status: turn.TurnStatus
    created_at: Unix
    usage: bill.UsageMetadata
    cost: SpentCost


class ConversationObject(TypedDict):
    """OpenAI's conversation; one alone has its totals and its latest turns, the oldest of these first. `updated_at`,
    `session` and `team_task` are the gateway's own."""

    id: str
    object: Literal["conversation"]
    created_at: Unix
    metadata: Metadata
    updated_at: NotRequired[Unix]
    session: NotRequired[str | None]
    team_task: NotRequired[
        Annotated[str, Field(description="What its agents work on, up to 5 KiB; left out where there is none.")]
    ]
    totals: NotRequired[ConversationFigures]
    turns: NotRequired[list[TurnFigures]]
    warnings: NotRequired[list[str]]


def as_conversation(record: records.ConversationRecord, warnings: Sequence[str] = ()) -> ConversationObject:
    found: Json = {"totals": None, "turns": None, "warnings": warnings or None}
    made = shown(ConversationObject, record, id=record.conversation_id, object="conversation", **found)
    return {**made, "session": record.session}


def with_totals(record: records.ConversationRecord, totals: past_turns.ConversationTotals) -> ConversationObject:
    """Returns a conversation with its tokens and cost so far, and those of each of its latest turns."""
    by = totals.by_agent.items() if not totals.by_agent.keys() <= {None} else ()
    agents = [{"agent": agent, "requests": each.requests, **as_spent(each)} for agent, each in by] or None
    own: Json = {"requests": totals.spent.requests, "agents": agents, **as_spent(totals.spent)}
    figures = shown(ConversationFigures, totals, **own)
    turns = [shown(TurnFigures, turn, **as_spent(turn.spent)) for turn in totals.latest]
    return {**as_conversation(record), "totals": figures, "turns": turns}


def as_spent(*parts: bill.CostSums) -> SpentFigures:
    """Returns tokens and cost of these together in the form of a bill; no cost where a price is not known (guarantee
    §6)."""
    spent = sum(parts, bill.CostSums())
    prompt, completion, priced = spent.prompt_tokens, spent.completion_tokens, not spent.unpriced
    return {
        "usage": bill.UsageMetadata(prompt, completion, prompt + completion),
        "cost": {
            "planning_cost": spent.planning if priced else None,
            "total_cost": spent.cost if priced else None,
            "currency": "USD",
            "priced": priced,
            "estimated": bool(spent.estimated),
        },
    }


def given_team_task(value: Any) -> tuple[str | None, list[str]]:
    """Validates `team_task`, what the agents of a conversation work on; returns what is stored of it, and a warning
    where that is not all. Raises InvalidRequest: it is no string."""
    if value is None:
        return None, []
    if not isinstance(value, str):
        raise errors.invalid("team_task", "must be a string")
    kept = agents.cut_team_task(value)
    return kept or None, [f"team_task_cut_at_{agents.MAX_TEAM_TASK_BYTES}_bytes"] if kept != value else []


def record_query(query: Mapping[str, str]) -> records.RecordQuery:
    """Parses the query of a list of conversations. Raises InvalidRequest: a parameter breaks its rule (`param`)."""
    check_named(query, "after", "session")
    after = query.get("after")
    if after is not None:
        check_conversation_id(after, "after")
    session = query.get("session")
    if session is not None and not is_session_name(session):
        raise errors.invalid("session", "must be 1 to 256 printable characters")
    return records.RecordQuery(
        limit=limit_of(query),
        after=after,
        newest_first=newest_first(query, "desc"),
        created_from=_time(query, "created_after", plus=1),
        created_until=_time(query, "created_before"),
        updated_from=_time(query, "updated_after", plus=1),
        updated_until=_time(query, "updated_before"),
        metadata=metadata_of(query),
        session=session,
    )


def _time(query: Mapping[str, str], name: str, *, plus: int = 0) -> datetime | None:
    """Returns a time of the query in seconds, as conversations show theirs. With `plus` 1, the first time after it."""
    second = unix_time_of(query, name)
    return None if second is None else datetime.fromtimestamp(second + plus, UTC)


class ConversationEndpoints:
    """The endpoints of the API: `all`, `one`, `items` and `item`."""

    def __init__(
        self,
        records: ConversationRecords,
        auth: KeyAuthenticator,
        max_body_bytes: int,
        hooks: TelemetryHooks,
        files: CallersFiles,
        delete: Callable[[str, str, audit_log.AuditActor | None], Awaitable[bool]],
    ) -> None:
        """`delete`: deletes a tenant's conversation, for an actor; returns False if there is none."""
        self._hooks = hooks
        self._delete = delete
        self._files = files
        self._records = records
        endpoint = partial(MethodEndpoint, auth, max_body_bytes)
        self.all = endpoint({"GET": self._list, "POST": self._create})
        self.one = endpoint({"GET": self._find, "POST": self._update, "DELETE": self.delete})
        self.items = endpoint({"GET": self._items, "POST": self._add, "DELETE": self._empty})
        self.item = endpoint({"GET": self._item, "POST": self._set_pin, "DELETE": self._delete_item})

    async def _create(self, call: ApiCall) -> ConversationObject:
        body = await call.body("metadata", "items", "team_task")
        metadata = given_metadata(body.get("metadata"))
        team_task, warnings = given_team_task(body.get("team_task"))
        messages, answers = await self._parsed(call, body["items"]) if body.get("items") is not None else ((), {})
        for where in answers.values():
            raise errors.unknown_call(where)
        new = records.NewConversation(ids.new_id(ids.CONVERSATION), metadata, messages, team_task, call.retention_days)
        made = await self._records.create(call.tenant, new, call.request_id)
        self._hooks.added(call.tenant, made.conversation_id, messages)
        if team_task is not None:
            self._hooks.team_task_changed(call.tenant, made.conversation_id, team_task)
        return as_conversation(made, warnings)

    async def _parsed(self, call: ApiCall, items: Any) -> tuple[tuple[ConversationMessage, ...], dict[str, str]]:
        caller, answers, named = call.received.caller, dict[str, str](), dict[str, str]()
        files = named if self._files.keeps(caller) else None
        messages = await call.received.run(partial(parse_items, files=files, answers=answers), items)
        for file_id, where in named.items():
            try:
                await self._files.name(file_id, caller)
            except errors.FileNotFound as error:
                raise errors.FileNotFound(error.message, param=where) from error
        return messages, answers

    async def _find(self, call: ApiCall) -> ConversationObject:
        return with_totals(*await self._records.totals(call.tenant, call.conversation_id))

    async def _update(self, call: ApiCall) -> ConversationObject:
        conversation_id = call.conversation_id
        body = await call.body("metadata", "team_task")
        if not body:
            raise errors.InvalidRequest("metadata is required.", param="metadata", code="missing_required_parameter")
        changes: dict[str, Any] = {}
        warnings: list[str] = []
        if "metadata" in body:
            changes["metadata"] = given_metadata(body["metadata"])
        if "team_task" in body:
            changes["team_task"], warnings = given_team_task(body["team_task"])
        found = await self._records.update(call.tenant, conversation_id, changes)
        if "team_task" in changes:
            self._hooks.team_task_changed(call.tenant, conversation_id, found.team_task)
        return as_conversation(found, warnings)

    async def delete(self, call: ApiCall) -> Deleted[Literal["conversation.deleted"]]:
        conversation_id = call.conversation_id
        if not await self._delete(call.tenant, conversation_id, call.actor):
            raise errors.ConversationNotFound("No such conversation.", param="conversation_id")
        return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}

    async def _list(self, call: ApiCall) -> ListObject[ConversationObject]:
        page = await self.page(call)
        return listed([as_conversation(each) for each in page.found], has_more=page.has_more)

    async def page(self, call: ApiCall) -> report_lists.QueryPage[records.ConversationRecord]:
        """Returns the page of conversations that the query parameters select."""
        query = record_query(call.query)
        if call.is_unnamed and query.session is None:
            raise errors.invalid("session", "is required without an API key")
        return await self._records.list_page(call.tenant, query)

    async def _items(self, call: ApiCall) -> ListObject[Json]:
        page = await self._records.items(call.tenant, call.conversation_id, paging_of(call.query, "desc"))
        return listed(page.found, has_more=page.has_more)

    async def _add(self, call: ApiCall) -> ListObject[Json]:
        conversation_id = call.conversation_id
        body = await call.body("items")
        if body.get("items") == []:
            raise errors.invalid("items", "must not be empty")
        messages, answers = await self._parsed(call, body.get("items"))
        asked = (call.request_id, call.retention_days, answers)
        made = await self._records.add_items(call.tenant, conversation_id, messages, *asked)
        self._hooks.added(call.tenant, conversation_id, messages)
        return listed(made, has_more=False)

    async def _empty(self, call: ApiCall) -> ConversationObject:
        """Deletes all items and what was made of them; the conversation stays."""
        conversation_id = call.conversation_id
        before = await self._records.find(call.tenant, conversation_id)
        found = await self._records.empty(call.tenant, conversation_id, call.actor)
        if before.team_task is not None:
            self._hooks.team_task_changed(call.tenant, conversation_id, None)
        return as_conversation(found)

    async def _item(self, call: ApiCall) -> Json:
        return await self._records.item(call.tenant, call.conversation_id, call.path["item_id"])

    async def _set_pin(self, call: ApiCall) -> Json:
        conversation_id = call.conversation_id
        body = await call.body("pinned")
        if "pinned" not in body:
            raise errors.missing("pinned")
        pinned = a_pin(body["pinned"], "pinned")
        return await self._records.set_pin(call.tenant, conversation_id, call.path["item_id"], pinned=pinned)

    async def _delete_item(self, call: ApiCall) -> ConversationObject:
        found = await self._records.delete_item(call.tenant, call.conversation_id, call.path["item_id"], call.actor)
        return as_conversation(found)
