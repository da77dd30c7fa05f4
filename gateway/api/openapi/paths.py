"""Each operation that the gateway serves itself: its parameters, and the types of its request and answer."""

import re
from typing import Any, Literal, NamedTuple

from gateway.api.audit_log.endpoint import TrailEventObject, TrailPage
from gateway.api.classic import endpoint as classic
from gateway.api.classic.classic_chat import ClassicAnswer, ClassicEvent, ClassicMessage
from gateway.api.compress.endpoint import Compressed, CompressRequest
from gateway.api.conversations.completion_endpoints import MetadataUpdate, StoredChat, StoreMessage
from gateway.api.conversations.context import ContextObject
from gateway.api.conversations.endpoint import (
    ConversationBody,
    ConversationObject,
    ConversationUpdate,
    Item,
    ItemUpdate,
    NewItems,
)
from gateway.api.conversations.memory_endpoints import AttachmentObject, NewThings, ThingConversationObject
from gateway.api.conversations.replay_endpoint import ReplayEstimate, ReplayEventObject
from gateway.api.conversations.replay_request import ReplayField
from gateway.api.conversations.transfer_endpoints import ConversationExport
from gateway.api.conversations.turn_endpoints import TurnDetailsObject, TurnObject
from gateway.api.files.endpoint import FileObject, FileUpload
from gateway.api.files.uploads import PartObject, Upload, UploadPart, UploadParts, UploadRequest
from gateway.api.keys.serializer import KeyObject, NewKeyObject, Rotation
from gateway.api.messages.count_tokens import CountedTokens
from gateway.api.messages.endpoint import Message, MessageEvent, MessagesError, MessagesRequest
from gateway.api.openapi.component_schemas import ComponentSchemas
from gateway.api.operations import Health, Model, Models
from gateway.api.organization.endpoint import CompletionsUsage, EmbeddingsUsage, OrganizationCost, reports_of
from gateway.api.organization.parameters import COMPLETIONS, COSTS, EMBEDDINGS, LISTS, SAVINGS, ReportParameters
from gateway.api.request.chat_shapes import ChatBody, ChatCompletion, ChatCompletionChunk, DryRun
from gateway.api.request.remembered_entities import MemoryThingObject
from gateway.api.request_list_endpoint import Requests
from gateway.api.responses.compact import CompactedResponse, CompactRequest
from gateway.api.responses.endpoint import Response, ResponseEvent, ResponseRequest
from gateway.api.responses.input_tokens import InputTokens
from gateway.api.shapes import Binary, Deleted, Error, Json, ListObject, said, shape
from gateway.api.statistics import Statistics
from gateway.core.config import setting_sections
from gateway.inspection import request_search

JSON, STREAM = "application/json", "text/event-stream"
FORM, LINES, RAW = "multipart/form-data", "application/x-ndjson", "application/octet-stream"
About = shape("About", "What this is, and where to look.", {"name version description": str, "links": dict[str, str]})
TEXT: Json = {"type": "string"}
WHOLE: Json = {"type": "integer"}
FLAG: Json = {"type": "boolean"}
UNIX: Json = {"type": "integer", "description": "Unix seconds."}
PAIRS: Json = {"type": "object", "additionalProperties": TEXT}
TEXTS: Json = {"type": "array", "items": TEXT}
ORDER = [f"{sign}{name}" for name in request_search.SORTS for sign in ("", "-")]
PARAMETERS: dict[str, tuple[Json, str]] = {
    "limit": ({**WHOLE, "minimum": 1, "maximum": 100, "default": 20}, ""),
    "limit:files": ({**WHOLE, "minimum": 1, "maximum": 10_000, "default": 10_000}, ""),
    "limit:turns": ({**WHOLE, "minimum": 1, "maximum": 100}, "The latest turns alone."),
    "limit:text": ({**WHOLE, "minimum": 1}, "Characters of it; of a large document a million at most."),
    "offset": ({**WHOLE, "minimum": 0}, "First character of the text that is given."),
    "after": (TEXT, "The id of the last one seen."),
    "after:event": (WHOLE, "The number of the last one seen."),
    "order:asc": ({"enum": ["asc", "desc"], "default": "asc"}, ""),
    "order:desc": ({"enum": ["asc", "desc"], "default": "desc"}, ""),
    "conversation:own": (TEXT, "Required without a key."),
    "session": (TEXT, "Required without a key."),
    "metadata": (PAIRS, "`metadata[KEY]=VALUE`; all must hold."),
    "model:window": (TEXT, "Of the latest request for this model."),
    "user:memory": (TEXT, "What is known of this user; required without a key."),
    "query": (TEXT, "Search: one page, the best first."),
    "replay_id": (TEXT, "The branch of this replay in place of the current one."),
    "include": (TEXTS, "What is shown beside the usual."),
    "stream": (FLAG, "Its events again."),
    "starting_after": (WHOLE, "The number of the last event that was seen."),
    "include_revoked": (FLAG, "Also those."),
    "details": ({"enum": ["1", "true"]}, "`1`: also the statistics of memory and caches, for whoever holds a key."),
    **dict.fromkeys(("created_after", "created_before", "updated_after", "updated_before"), (UNIX, "")),
    **{f"{name}:unix": (UNIX, "") for name in ("since", "until")},
    **dict.fromkeys(request_search.AMOUNTS, ({"type": "number"}, "")),
    **dict.fromkeys(("http_status", "min_ms", "max_ms"), (WHOLE, "")),
    "status": ({"enum": ["ok", *request_search.TURN_STATUSES]}, ""),
    "since": (TEXT, "Arrived from then on: `24h`, `7d`, `yesterday`, a date."),
    "until": (TEXT, "Arrived before then."),
    "endpoint": (TEXT, "Which API, `chat` for chat completions."),
    "text": (TEXT, "A part of a user message, in any case."),
    "min_saved": ({"type": "number"}, "Net saving in USD; losses are below 0."),
    "tenant:requests": (TEXT, "For keys of role `admin`; else one's own."),
    "sort": ({"enum": ORDER, "default": "time"}, "The largest first; with `-` the smallest."),
    "older": (TEXT, "A place that a page told: what is further on in the order."),
    "newer": (TEXT, "A place that a page told: what is before it."),
}
"""Types of query parameters by name; a suffix behind a colon separates those of one name. Others are texts."""
HEADERS = {
    "X-Conversation-Id": "The conversation to continue.",
    "X-Context-Session": "The same by a name of the client's own.",
    "X-Context-Mode": "As `context.mode`.",
    "X-Context-Planning": "As `context.planning`.",
    "X-Context-Max-Input-Tokens": "As `context.max_input_tokens`.",
    "X-Gateway-Fallbacks": "`off`: no other model answers where this one fails.",
    "Idempotency-Key": "The same request with the same key is answered and charged once.",
}
TOLD = {
    "x-request-id": {"schema": TEXT},
    "x-conversation-id": {"schema": TEXT},
    "x-gateway-response-cost": {"schema": TEXT, "description": "USD; of answers that are not streamed."},
    "x-gateway-model": {"schema": TEXT, "description": "The model that answered instead of the one asked for."},
}
"""Headers of answers of models."""
NO_KEY: Json = {"security": []}
KEY_OR_NOT: Json = {"security": [{}, {"key": []}]}


class Events(NamedTuple):
    """The type of a stream's events, and their description."""

    kind: Any
    about: str


class Operation(NamedTuple):
    """`answer` and `body` are types, or types by media types; `query` names parameters, or is that of a report."""

    where: str
    summary: str
    answer: Any
    query: Any = ""
    body: Any = None
    more: Json = {}  # noqa: RUF012 - nobody changes it


CHAT, ONE_CHAT = "/v1/chat/completions", "/v1/chat/completions/{completion_id}"
ALL, ONE = "/v1/conversations", "/v1/conversations/{conversation_id}"
ITEM, DOCUMENT, NOTE = f"{ONE}/items/{{item_id}}", f"{ONE}/attachments/{{attachment_id}}", f"{ONE}/memory/{{memory_id}}"
REPLY, FILE = "/v1/responses/{response_id}", "/v1/files/{file_id}"
CLASSIC, ONE_CLASSIC = "/api/v1", "/api/v1/conversations/{conversation_id}"
MEMORY, KEYS, KEY = "/v1/memory", "/v1/gateway/keys", "/v1/gateway/keys/{key_id}"
TRAIL, REPORTS = "/v1/gateway/trail", "/v1/organization"
OLDEST, LATEST = "limit after order:asc", "limit after order:desc"
BEGUN = f"session created_after created_before updated_after updated_before metadata {LATEST}"
THINGS, EVENTS = f"query type {LATEST}", "after:event action actor since:unix until:unix"
CHUNKS = Events(ChatCompletionChunk, "One chunk an event, then `[DONE]`.")
OF_RESPONSES = Events(ResponseEvent, "OpenAI's events, each under its name.")
OF_MESSAGES = Events(MessageEvent, "One event of Anthropic's each, under its name.")
REPLAYED = Events(ReplayEventObject, "One object an event, then `[DONE]`.")
DELTAS = Events(ClassicEvent, "Deltas, the whole answer, then `[DONE]`.")
OF_MODELS: Json = {"headers": TOLD}
ANTHROPICS: Json = {"error": MessagesError}
KNOWN = "Keys made at runtime, the latest in front, and behind them those of the configuration."
FORGOTTEN_ENTITY = Deleted[Literal["memory.thing.deleted"]]
REQUESTS_LISTED = f"{' '.join(request_search.FILTERS)} tenant:requests sort older newer"
OPERATIONS: list[tuple[Any, ...]] = [
    ("GET /", "What this is, and where to look", About, "", None, NO_KEY),
    ("GET /openapi.json", "This description", Json, "", None, NO_KEY),
    ("GET /health/live", "Whether the process answers", Health, "", None, NO_KEY),
    ("GET /health/ready", "Whether requests can be served", Health, "details", None, {**KEY_OR_NOT, "503": Health}),
    ("GET /metrics", "Counts for Prometheus", {"text/plain": str}, "", None, KEY_OR_NOT),
    ("POST /mcp", "The MCP server: one message of its protocol", Json, "", Json),
    ("GET /v1/models", "List models", Models),
    ("GET /v1/models/{model}", "One model", Model),
    (f"POST {CHAT}", "Ask a model", {JSON: ChatCompletion | DryRun, STREAM: CHUNKS}, "", ChatBody, OF_MODELS),
    (f"GET {CHAT}", "List stored completions", ListObject[StoredChat],
     f"conversation:own model agent metadata {OLDEST}"),
    (f"GET {ONE_CHAT}", "A stored completion with its bill", StoredChat),
    (f"POST {ONE_CHAT}", "Replace metadata", StoredChat, "", MetadataUpdate),
    (f"DELETE {ONE_CHAT}", "Delete a stored completion", Deleted[Literal["chat.completion.deleted"]]),
    (f"GET {ONE_CHAT}/messages", "The messages that it answers", ListObject[StoreMessage], OLDEST),
    ("POST /v1/responses", "Ask a model by OpenAI's Responses", {JSON: Response | DryRun, STREAM: OF_RESPONSES}, "",
     ResponseRequest, OF_MODELS),
    ("POST /v1/responses/compact", "Compact a history", CompactedResponse, "", CompactRequest),
    ("POST /v1/responses/input_tokens", "Count the tokens of such a request", InputTokens, "", ResponseRequest),
    (f"GET {REPLY}", "A stored response with its bill", Response, "include stream starting_after"),
    (f"DELETE {REPLY}", "Delete a stored response", Deleted[Literal["response"]]),
    (f"POST {REPLY}/cancel", "Refused: no response is made in the background", Response),
    (f"GET {REPLY}/input_items", "What its request brought", ListObject[Item], f"include {LATEST}"),
    ("POST /v1/messages", "Ask a model in Anthropic's words", {JSON: Message, STREAM: OF_MESSAGES}, "",
     MessagesRequest, ANTHROPICS),
    ("POST /v1/messages/count_tokens", "Count the tokens of such a request", CountedTokens, "", MessagesRequest,
     ANTHROPICS),
    ("POST /v1/compress", "Fitted messages and their bill, for another gateway", Compressed, "", CompressRequest),
    (f"GET {ALL}", "List conversations", ListObject[ConversationObject], BEGUN),
    (f"POST {ALL}", "Begin a conversation", ConversationObject, "", ConversationBody),
    (f"POST {ALL}/import", "Import a conversation", ConversationObject, "", ConversationExport),
    (f"GET {ONE}", "A conversation with its totals", ConversationObject),
    (f"POST {ONE}", "Replace metadata or team task", ConversationObject, "", ConversationUpdate),
    (f"DELETE {ONE}", "Delete a conversation for good", Deleted[Literal["conversation.deleted"]]),
    (f"GET {ONE}/export", "Export a conversation", ConversationExport),
    (f"GET {ONE}/items", "List items", ListObject[Item], LATEST),
    (f"POST {ONE}/items", "Append items", ListObject[Item], "", NewItems),
    (f"DELETE {ONE}/items", "Empty a conversation, and keep it", ConversationObject),
    (f"GET {ITEM}", "One item", Item),
    (f"POST {ITEM}", "Pin an item, or take its pin away", Item, "", ItemUpdate),
    (f"DELETE {ITEM}", "Delete an item", ConversationObject),
    (f"GET {ONE}/context", "The window as the latest request left it", ContextObject, "model:window"),
    (f"POST {ONE}/replay", "Run turns anew on a branch", {JSON: ReplayEstimate, STREAM: REPLAYED}, "", ReplayField),
    (f"GET {ONE}/turns", "List turns", ListObject[TurnObject], f"replay_id {OLDEST}"),
    (f"GET {ONE}/turns/{{number}}", "What a turn was sent, why, and what it cost", TurnDetailsObject, "replay_id"),
    (f"GET {ONE}/attachments", "List attached documents", ListObject[AttachmentObject], OLDEST),
    (f"GET {DOCUMENT}", "An attached document with its text", AttachmentObject, "offset limit:text"),
    (f"DELETE {DOCUMENT}", "Delete an attached document", Deleted[Literal["conversation.attachment.deleted"]]),
    ("GET /v1/files", "List files", ListObject[FileObject], "limit:files after order:desc purpose"),
    ("POST /v1/files", "Upload a file", FileObject, "", {FORM: FileUpload}),
    (f"GET {FILE}", "A file", FileObject),
    (f"DELETE {FILE}", "Delete a file for good", Deleted[Literal["file"]]),
    ("POST /v1/uploads", "Begin an upload in parts", Upload, "", UploadRequest),
    ("POST /v1/uploads/{upload_id}/parts", "Upload a part", PartObject, "", {FORM: UploadPart}),
    ("POST /v1/uploads/{upload_id}/complete", "Make a file of the parts", Upload, "", UploadParts),
    ("POST /v1/uploads/{upload_id}/cancel", "Drop an upload", Upload),
    (f"GET {FILE}/content", "The content of a file", {RAW: Binary}),
    (f"POST {CLASSIC}/chat", "Say something", ClassicAnswer, "", ClassicMessage),
    (f"POST {CLASSIC}/chat/stream", "The same as a stream", {STREAM: DELTAS}, "", ClassicMessage),
    (f"GET {CLASSIC}/conversations", "List conversations", classic.ConversationPage, BEGUN),
    (f"GET {ONE_CLASSIC}/history", "The turns of a conversation", classic.ClassicHistory, "limit:turns"),
    (f"GET {ONE_CLASSIC}/workflows", "The workflows that it is about", classic.ClassicWorkflows, "limit order:desc"),
    (f"GET {CLASSIC}/workflows/{{spec_id}}/conversations", "The conversations of a workflow", classic.ClassicMentions,
     "limit order:desc"),
    (f"DELETE {ONE_CLASSIC}", "Drop what the process keeps of it", classic.ClassicCleared),
    (f"DELETE {ONE_CLASSIC}/permanent", "Delete it for good", classic.ClassicCleared),
    (f"GET {CLASSIC}/health", "Whether it serves", classic.HealthWithContext, "", None,
     {**KEY_OR_NOT, "503": classic.HealthWithContext}),
    (f"GET {CLASSIC}/memory/stats", "What the process keeps", Statistics),
    (f"GET {CLASSIC}/debug/prompt-info", "The prompt profile of a message", classic.ProfileInfo,
     "message conversation_id model"),
    (f"GET {ONE}/memory", "List or search the things that a conversation is about", ListObject[MemoryThingObject],
     THINGS),
    (f"POST {ONE}/memory", "Remember things", ListObject[MemoryThingObject], "", NewThings),
    (f"GET {NOTE}", "One of them", MemoryThingObject),
    (f"DELETE {NOTE}", "Forget one", FORGOTTEN_ENTITY),
    (f"GET {MEMORY}", "List or search all remembered things", ListObject[MemoryThingObject], f"user:memory {THINGS}"),
    (f"GET {MEMORY}/{{memory_id}}", "One of them", MemoryThingObject),
    (f"DELETE {MEMORY}/{{memory_id}}", "Forget one", FORGOTTEN_ENTITY),
    (f"GET {MEMORY}/{{type}}/{{thing_id}}/conversations", "List the conversations that are about a thing",
     ListObject[ThingConversationObject], LATEST),
    (f"GET {REPORTS}/costs", "What requests cost, by the day", reports_of(OrganizationCost), COSTS),
    (f"GET {REPORTS}/usage/completions", "Tokens and requests of chats", reports_of(CompletionsUsage), COMPLETIONS),
    (f"GET {REPORTS}/usage/embeddings", "Tokens and requests of embeddings", reports_of(EmbeddingsUsage), EMBEDDINGS),
    ("GET /v1/gateway/requests", "List requests (viewer, admin)", Requests, f"{REQUESTS_LISTED} limit"),
    (f"GET {TRAIL}", "List what administrators did", TrailPage, f"{EVENTS} limit order:asc"),
    (f"GET {TRAIL}/export", "The same as lines of JSON, all of them", {LINES: TrailEventObject}, EVENTS),
    (f"GET {KEYS}", "List keys, the latest in front (admin)", said(ListObject[KeyObject], KNOWN),
     "limit after tenant owner include_revoked"),
    (f"POST {KEYS}", "Make a key, which is shown once (admin)", NewKeyObject, "", setting_sections.KeyFields),
    (f"GET {KEYS}/self", "The key that asks", KeyObject),
    (f"GET {KEY}", "A key (admin)", KeyObject),
    (f"POST {KEY}", "Change a key; null takes a field back (admin)", KeyObject, "", setting_sections.KeyFields),
    (f"DELETE {KEY}", "Revoke a key for good (admin)", KeyObject),
    (f"POST {KEY}/rotate", "Give a key another secret part (admin)", NewKeyObject, "", Rotation),
]  # fmt: skip


def paths(schemas: ComponentSchemas) -> Json:
    """Describes each path with its operations. `schemas` makes the schemas of their types."""
    found: Json = {}
    for each in OPERATIONS:
        told = Operation(*each)
        method, path = told.where.split()
        found.setdefault(path, {})[method.lower()] = _operation(told, path, schemas)
    return found


def _operation(told: Operation, path: str, schemas: ComponentSchemas) -> Json:
    more = dict(told.more)
    error, headers = more.pop("error", Error), more.pop("headers", None)
    answers: Json = {"200": {"description": "Done.", "content": _content(told.answer, schemas)}}
    if "503" in more:
        answers["503"] = {"description": "Not now.", "content": _content(more.pop("503"), schemas)}
    answers["default"] = {"description": error.__doc__, "content": _content(error, schemas)}
    parameters = [_parameter("path", name, (TEXT, ""), required=True) for name in re.findall(r"\{(\w+)\}", path)]
    if headers is not None:
        answers["200"]["headers"] = headers
        parameters += [_parameter("header", name, (TEXT, text)) for name, text in HEADERS.items()]
    if isinstance(told.query, ReportParameters):
        parameters += _report_parameters(told.query)
    else:
        names = told.query.split()
        parameters += [_parameter("query", name.partition(":")[0], PARAMETERS.get(name, (TEXT, ""))) for name in names]
    found: Json = {"summary": told.summary, "responses": answers, **more}
    if told.body is not None:
        found["requestBody"] = {"required": True, "content": _content(told.body, schemas)}
    return {**found, "parameters": parameters} if parameters else found


def _content(kinds: Any, schemas: ComponentSchemas) -> Json:
    """Describes a content by media types."""
    found: Json = {}
    for media, kind in (kinds if isinstance(kinds, dict) else {JSON: kinds}).items():
        is_stream = isinstance(kind, Events)
        said = {"description": kind.about} if is_stream else {}
        found[media] = {"schema": schemas.of(kind.kind if is_stream else kind), **said}
    return found


def _parameter(place: str, name: str, said: tuple[Json, str], *, required: bool = False) -> Json:
    found: Json = {"name": name, "in": place, "schema": said[0]}
    if said[1]:
        found["description"] = said[1]
    if said[0] is PAIRS:
        found["style"] = "deepObject"
    return {**found, "required": True} if required else found


def _report_parameters(kind: ReportParameters) -> list[Json]:
    """Describes the parameters of a report. Lists are `NAME[]`, sent once for each member."""
    most = max(width.most for width in kind.widths.values())
    schemas: dict[str, Json] = {
        "start_time": UNIX,
        "end_time": UNIX,
        "bucket_width": {"enum": list(kind.widths), "default": "1d"},
        "limit": {**WHOLE, "minimum": 1, "maximum": most},
        "page": TEXT,
        "batch": FLAG,
        "group_by": {"type": "array", "items": {"enum": list(kind.groups)}},
        "include": {"type": "array", "items": {"const": SAVINGS}},
    }
    return [
        _parameter(
            "query",
            f"{name}[]" if name in LISTS else name,
            (schemas.get(name, TEXTS), ""),
            required=name == "start_time",
        )
        for name in kind.known
    ]
