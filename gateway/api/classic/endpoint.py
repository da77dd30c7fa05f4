"""The rest of `/api/v1/…`: conversations and their histories, clearing and deleting them, health, statistics, and the
prompt profile that a message calls for (guarantee §11.10). Each uses the same parts as its counterpart below `/v1/`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from typing_extensions import TypedDict

from gateway.api.api_call import ApiCall, MethodEndpoint
from gateway.api.auth import KeyAuthenticator
from gateway.api.classic.classic_chat import WORKFLOW, default_model, names_of
from gateway.api.conversations.context import as_context
from gateway.api.conversations.endpoint import ConversationEndpoints
from gateway.api.fields import Metadata, is_session_name
from gateway.api.operations import ReadyEndpoint
from gateway.api.pagination import check_named, limit_of, newest_first
from gateway.api.request.body_cache import BodyCache
from gateway.api.request.validation import CONVERSATION_ID
from gateway.api.server.asgi import Receive, Scope, Send, send_json
from gateway.api.shapes import IsoTime, Json, many, said, shape, shown
from gateway.api.statistics import Statistics, StatisticsEndpoint
from gateway.core import errors, names
from gateway.core.config.settings import Settings
from gateway.core.frozen_records import record
from gateway.core.tasks import offload_if
from gateway.core.types import conversation, memory, records, tool_steps
from gateway.core.types.conversation import ConversationMessage, ConversationRef, StoredConversation
from gateway.pipeline import ProfileComposer
from gateway.storage import ConversationStore, EntityStore, PathCache
from gateway.storage.conversations import ConversationRecords
from gateway.upstream.routing import ConfiguredRouter

LATEST_BYTES = 2**16
"""Bytes of a conversation's latest messages that choose the prompt profile: no more than a turn counts."""


class ClassicConversation(TypedDict):
    """A conversation without its turns; `conversation_id` is its client's own name where it has one."""

    conversation_id: str
    id: str
    created_at: IsoTime
    last_updated: IsoTime
    metadata: Metadata


class ClassicTurn(TypedDict):
    """A message of the user, and what came of it."""

    user_message: str
    agent_response: str
    timestamp: IsoTime | None
    mcp_tools_used: list[str]


class ClassicHistory(ClassicConversation):
    """A conversation with its turns, the oldest first."""

    turn_count: int
    turns: list[ClassicTurn]


MORE = {"has_more": bool}
ConversationPage = shape("ClassicConversations", "A page.", {"conversations": list[ClassicConversation], **MORE})
MENTIONED = {"mentioned_at": IsoTime, "action": str}
Workflow = shape(
    "ClassicWorkflow",
    "A workflow, with what was done with it last.",
    {"spec_id name": str, **MENTIONED, "aliases": list[str]},
)
ClassicWorkflows = shape(
    "ClassicWorkflows",
    "The workflows that a conversation is about, the latest first.",
    {"conversation_id id": str, "workflows": many(Workflow), **MORE},
)
Mention = shape(
    "ClassicMention",
    "A conversation, with what was done with the workflow there last.",
    {"conversation_id id": str, **MENTIONED},
)
ClassicMentions = shape(
    "ClassicMentions",
    "The conversations that are about a workflow, the latest first.",
    {"spec_id": str, "conversations": many(Mention), **MORE},
)
ClassicCleared = shape("ClassicCleared", "Done.", {"conversation_id id": str, "cleared? deleted?": bool})
ProfileInfo = shape(
    "PromptInfo",
    "The prompt profile that a message calls for.",
    {"model": str, "mode": str | None, "source? reason?": str, "tokens? saved_tokens? monolith_tokens?": int}
    | {"modes?": dict[str, int], "context": said(Json | None, "As `ConversationContext`.")},
)


@record
class ClassicStorage:
    """Where conversations and the entities that they are about are stored, and cached in the process."""

    things: EntityStore
    records: ConversationRecords
    store: ConversationStore
    paths: PathCache
    resends: BodyCache


class ClassicConversations:
    """The endpoints `all`, `history`, `one` (clears), `permanent` (deletes for good), and `workflows` of one, with
    `about`: the conversations of a workflow."""

    def __init__(self, stored: ClassicStorage, conversations: ConversationEndpoints, auth: KeyAuthenticator) -> None:
        self._stored = stored
        self._conversations = conversations
        self.all = MethodEndpoint(auth, 0, {"GET": self._list})
        self.history = MethodEndpoint(auth, 0, {"GET": self._history})
        self.one = MethodEndpoint(auth, 0, {"DELETE": self._clear})
        self.permanent = MethodEndpoint(auth, 0, {"DELETE": self._delete})
        self.workflows = MethodEndpoint(auth, 0, {"GET": self._workflows})
        self.about = MethodEndpoint(auth, 0, {"GET": self._about})

    async def _list(self, call: ApiCall) -> Json:
        page = await self._conversations.page(call)
        return {"conversations": [as_listed(each) for each in page.found], "has_more": page.has_more}

    async def _history(self, call: ApiCall) -> ClassicHistory:
        most = limit_of(call.query) if "limit" in call.query else None
        record = await find(self._stored.records, call)
        found = await self._stored.store.find_conversation(
            call.tenant, ConversationRef(record.conversation_id), max_bytes=None
        )
        path = found.path if found is not None else ()
        turns = await offload_if(len(path) >= conversation.INLINE_MESSAGES, turns_of, path)
        listed = turns if most is None else turns[-most:]
        return {**as_listed(record), "turn_count": len(turns), "turns": listed}

    async def _clear(self, call: ApiCall) -> Json:
        """Drops what this process caches of the conversation. What is stored stays, and is read again when needed."""
        record = await find(self._stored.records, call)
        self._stored.paths.drop(record.conversation_id)
        self._stored.resends.forget_tenant(call.tenant)  # they do not say whose conversation they are
        return {**names_of_conversation(record), "cleared": True}

    async def _delete(self, call: ApiCall) -> Json:
        record = await find(self._stored.records, call)
        await self._conversations.delete(replace(call, path={"conversation_id": record.conversation_id}))
        return {**names_of_conversation(record), "deleted": True}

    async def _workflows(self, call: ApiCall) -> Json:
        """What the conversation is about, the latest first."""
        record = await find(self._stored.records, call)
        query = memory.ThingQuery(
            limit_of(call.query), None, newest_first(call.query, "desc"), record.conversation_id, WORKFLOW
        )
        page = await self._stored.things.page(call.tenant, query, record.conversation_id)
        listed = [shown(Workflow, each, datetime.isoformat, spec_id=each.thing_id) for each in page.found]
        return {**names_of_conversation(record), "workflows": listed, "has_more": page.has_more}

    async def _about(self, call: ApiCall) -> Json:
        """The conversations that are about a workflow, the latest first. Raises Unauthorized: the caller has no key."""
        if call.is_unnamed:
            raise errors.Unauthorized("An API key is required to list the conversations that are about a workflow.")
        name = call.path["spec_id"]
        if names.has_nul(name):
            return {"spec_id": name, "conversations": [], "has_more": False}
        query = memory.ThingQuery(limit_of(call.query), None, newest_first(call.query, "desc"))
        page = await self._stored.things.conversations(call.tenant, WORKFLOW, name, query)
        ids = [str(each.conversation_id) for each in page.found]
        sessions = await self._stored.records.session_names(call.tenant, ids)
        listed = [
            shown(Mention, each, datetime.isoformat, conversation_id=sessions.get(each_id, each_id), id=each_id)
            for each, each_id in zip(page.found, ids, strict=True)
        ]
        return {"spec_id": name, "conversations": listed, "has_more": page.has_more}


async def find(store: ConversationRecords, call: ApiCall, name: str | None = None) -> records.ConversationRecord:
    """Finds the conversation of the path, or the one called `name`, by its id or by its client's own name.
    Raises ConversationNotFound: the tenant has none."""
    name = call.path["conversation_id"] if name is None else name
    if CONVERSATION_ID.match(name):
        return await store.find(call.tenant, name)
    page = await store.list_page(call.tenant, records.RecordQuery(1, session=name)) if is_session_name(name) else None
    if page is None or not page.found:
        raise errors.ConversationNotFound("No such conversation.", param="conversation_id")
    return page.found[0]


def names_of_conversation(record: records.ConversationRecord) -> Json:
    return {"conversation_id": record.session or record.conversation_id, "id": record.conversation_id}


def as_listed(record: records.ConversationRecord) -> ClassicConversation:
    named = names_of_conversation(record)
    return shown(ClassicConversation, record, datetime.isoformat, last_updated=record.updated_at, **named)


def turns_of(path: Sequence[ConversationMessage]) -> list[ClassicTurn]:
    """Lists the turns of a path, the oldest first: a turn's answer is its last text, or those of several agents who
    spoke one after the other; its tools are those called."""
    starts = set(tool_steps.turn_starts(message.role for message in path))
    turns: list[ClassicTurn] = []
    for index, message in enumerate(path):
        if index in starts or not turns:
            said = tool_steps.text_of(message.content) if message.role == "user" else ""
            time = message.created_at.isoformat() if message.created_at is not None else None
            turns.append({"user_message": said, "agent_response": "", "timestamp": time, "mcp_tools_used": []})
        if message.role == "assistant":
            turn, said = turns[-1], tool_steps.text_of(message.content)
            if said and turn["agent_response"] and path[index - 1].role == "assistant":
                said = f"{turn['agent_response']}\n\n{said}"
            turn["agent_response"] = said or turn["agent_response"]
            turn["mcp_tools_used"] = _each_once(turn["mcp_tools_used"], names_of(tool_steps.calls_of(message.body)))
    return turns


def _each_once(known: Iterable[str], more: Iterable[str]) -> list[str]:
    return list(dict.fromkeys((*known, *more)))


HealthWithContext = shape("ClassicHealth", "Whether it serves.", {"status reason?": str, "context?": Statistics})


class ClassicHealth:
    """`GET /api/v1/health`: `/health/ready` with the statistics for whoever may see them; without them for others."""

    def __init__(self, ready: ReadyEndpoint, statistics: StatisticsEndpoint) -> None:
        self._ready = ready
        self._statistics = statistics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, said = await self._ready.state()
        try:
            await self._statistics.admit(scope)
        except errors.Unauthorized:
            await send_json(send, status, said)
            return
        await send_json(send, status, {**said, "context": self._statistics.as_json()})


class PromptInfo:
    """`GET /api/v1/debug/prompt-info`: the prompt profile that `message` calls for in `conversation_id`, its size in
    tokens of `model`, and how full the conversation's window is. No model is called."""

    def __init__(
        self,
        stored: ClassicStorage,
        profiles: ProfileComposer,
        router: ConfiguredRouter,
        auth: KeyAuthenticator,
        settings: Settings,
    ) -> None:
        self._stored = stored
        self._profiles = profiles
        self._router = router
        self._default = default_model(settings)
        self.endpoint = MethodEndpoint(auth, 0, {"GET": self._find})

    async def _find(self, call: ApiCall) -> Json:
        check_named(call.query, "message", "conversation_id", "model")
        model = call.query.get("model") or self._default
        if model is None:
            raise errors.missing("model")
        if not (self._router.lists(model) or self._router.serves_unlisted):
            raise self._router.unknown(model, call.received.caller)
        named, said = call.query.get("conversation_id"), call.query.get("message")
        found, window = None, None
        if named is not None:
            record = await find(self._stored.records, call, named)
            ref = ConversationRef(record.conversation_id)
            found = await self._stored.store.find_conversation(call.tenant, ref, max_bytes=LATEST_BYTES)
            window = as_context(await self._stored.records.window(call.tenant, record.conversation_id, None))
        profile = await self._profile(found, said, model)
        return {"model": model, **profile, "context": window}

    async def _profile(self, found: StoredConversation | None, said: str | None, model: str) -> Json:
        messages = [message.body for message in found.path] if found is not None else []
        messages += [{"role": "user", "content": said}] if said is not None else []
        before = found.profile if found is not None else None
        profile, modes = await self._profiles.every(messages, before, self._router.facts(model))
        if profile is None:
            return {"mode": None, "reason": "no_prompt_profiles"}
        tokens = {mode: each.tokens for mode, each in modes.items()}
        return {**profile.as_json(), "monolith_tokens": profile.tokens + profile.saved_tokens, "modes": tokens}
