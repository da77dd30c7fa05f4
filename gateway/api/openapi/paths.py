"""Each path that the gateway serves itself, with its parameters and answers."""

from collections.abc import Iterable
from typing import Any

from gateway.api.openapi.message_schemas import message_paths
from gateway.api.openapi.schemas import FLAG, TEXT, UNIX, WHOLE, Schema, ref
from gateway.api.organization.parameters import COMPLETIONS, COSTS, EMBEDDINGS, LISTS, SAVINGS, ReportParameters
from gateway.inspection.request_search import AMOUNTS, FILTERS, SORTS, STATUSES

ID = "{completion_id}"
CHATS = "/v1/chat/completions"
CONVERSATIONS = "/v1/conversations"
NO_SECURITY: list[Any] = []
"""The security of what needs no key."""


def paths() -> dict[str, Any]:
    return {
        "/": {"get": _get("What this is, and where to look", "About", security=NO_SECURITY)},
        "/openapi.json": {"get": _get("This description", None, security=NO_SECURITY)},
        "/health/live": {"get": _get("Whether the process answers", "Health", security=NO_SECURITY)},
        "/health/ready": {"get": _ready()},
        "/metrics": {"get": _metrics()},
        "/mcp": {"post": _mcp()},
        "/v1/models": {"get": _get("List models", "Models")},
        "/v1/models/{model}": {"get": _get("One model", "Model", *_in_path("model"))},
        CHATS: {"post": _chat(), "get": _get("List stored completions", "StoredCompletions", *_completion_filters())},
        f"{CHATS}/{ID}": {
            "get": _get("A stored completion with its bill", "StoredCompletion", *_in_path("completion_id")),
            "post": _post("Replace metadata", "MetadataUpdate", "StoredCompletion", *_in_path("completion_id")),
            "delete": _get("Delete a stored completion", "DeletedCompletion", *_in_path("completion_id")),
        },
        f"{CHATS}/{ID}/messages": {
            "get": _get("The messages that it answers", "StoreMessages", *_in_path("completion_id"), *_paging("asc"))
        },
        **_responses(),
        **message_paths(),
        "/v1/compress": {
            "post": _post("Fitted messages and their bill, for another gateway", "CompressRequest", "Compressed")
        },
        **_conversations(),
        **_files(),
        **_classic(),
        **_memory(),
        **_organization(),
        "/v1/gateway/requests": {"get": _requests()},
        **_trail(),
        **_keys(),
    }


def _conversations() -> dict[str, Any]:
    one, item, attachment = f"{CONVERSATIONS}/{{conversation_id}}", "{item_id}", "{attachment_id}"
    named = _in_path("conversation_id")
    return {
        CONVERSATIONS: {
            "get": _get("List conversations", "Conversations", *_conversation_filters()),
            "post": _post("Begin a conversation", "NewConversation", "Conversation"),
        },
        f"{CONVERSATIONS}/import": {"post": _post("Import a conversation", "ConversationExport", "Conversation")},
        one: {
            "get": _get("A conversation with its totals", "Conversation", *named),
            "post": _post("Replace metadata or team task", "ConversationUpdate", "Conversation", *named),
            "delete": _get("Delete a conversation for good", "DeletedConversation", *named),
        },
        f"{one}/export": {"get": _get("Export a conversation", "ConversationExport", *named)},
        f"{one}/items": {
            "get": _get("List items", "Items", *named, *_paging("desc")),
            "post": _post("Append items", "NewItems", "Items", *named),
            "delete": _get("Empty a conversation, and keep it", "Conversation", *named),
        },
        f"{one}/items/{item}": {
            "get": _get("One item", "Item", *named, *_in_path("item_id")),
            "post": _post("Pin an item, or take its pin away", "ItemUpdate", "Item", *named, *_in_path("item_id")),
            "delete": _get("Delete an item", "Conversation", *named, *_in_path("item_id")),
        },
        f"{one}/context": {
            "get": _get("The window as the latest request left it", "ConversationContext", *named, *_of_model())
        },
        f"{one}/replay": {"post": _replay(named)},
        f"{one}/turns": {"get": _get("List turns", "Turns", *named, _of_replay(), *_paging("asc"))},
        f"{one}/turns/{{number}}": {
            "get": _get(
                "What a turn was sent, why, and what it cost", "TurnDetails", *named, *_in_path("number"), _of_replay()
            )
        },
        f"{one}/attachments": {"get": _get("List attached documents", "Attachments", *named, *_paging("asc"))},
        f"{one}/attachments/{attachment}": {
            "get": _get(
                "An attached document with its text", "Attachment", *named, *_in_path("attachment_id"), *_part()
            ),
            "delete": _get("Delete an attached document", "DeletedAttachment", *named, *_in_path("attachment_id")),
        },
    }


def _files() -> dict[str, Any]:
    named = _in_path("file_id")
    largest = {**WHOLE, "minimum": 1, "maximum": 10_000, "default": 10_000}
    paging = [_query("limit", largest), *_paging("desc")[1:], _query("purpose", TEXT)]
    form = {"required": True, "content": {"multipart/form-data": {"schema": ref("FileUpload")}}}
    content = {"application/octet-stream": {"schema": {**TEXT, "format": "binary"}}}
    return {
        "/v1/files": {
            "get": _get("List files", "Files", *paging),
            "post": {**_get("Upload a file", "File"), "requestBody": form},
        },
        "/v1/files/{file_id}": {
            "get": _get("A file", "File", *named),
            "delete": _get("Delete a file for good", "DeletedFile", *named),
        },
        "/v1/files/{file_id}/content": {"get": _operation("The content of a file", content, named)},
    }


def _classic() -> dict[str, Any]:
    base, named = "/api/v1", _in_path("conversation_id")
    one = f"{base}/conversations/{{conversation_id}}"
    streamed = {"schema": ref("ClassicEvent"), "description": "Deltas, the whole answer, then `[DONE]`."}
    stream = {**_operation("The same as a stream", {"text/event-stream": streamed}, ())}
    message, conversation = _query("message", TEXT), _query("conversation_id", TEXT)
    latest = _query("limit", {**WHOLE, "minimum": 1, "maximum": 100}, "The latest turns alone.")
    workflows = [each for each in _paging("desc") if each["name"] in ("limit", "order")]
    return {
        f"{base}/chat": {"post": _post("Say something", "ClassicMessage", "ClassicAnswer")},
        f"{base}/chat/stream": {"post": {**stream, "requestBody": _body("ClassicMessage")}},
        f"{base}/conversations": {"get": _get("List conversations", "ClassicConversations", *_conversation_filters())},
        f"{one}/history": {"get": _get("The turns of a conversation", "ClassicHistory", *named, latest)},
        f"{one}/workflows": {"get": _get("The workflows that it is about", "ClassicWorkflows", *named, *workflows)},
        f"{base}/workflows/{{spec_id}}/conversations": {
            "get": _get("The conversations of a workflow", "ClassicMentions", *_in_path("spec_id"), *workflows)
        },
        one: {"delete": _get("Drop what the process keeps of it", "ClassicCleared", *named)},
        f"{one}/permanent": {"delete": _get("Delete it for good", "ClassicCleared", *named)},
        f"{base}/health": {
            "get": _get("Whether it serves", "ClassicHealth", security=[{}, {"key": []}], unready="ClassicHealth")
        },
        f"{base}/memory/stats": {"get": _get("What the process keeps", "Statistics")},
        f"{base}/debug/prompt-info": {
            "get": _get("The prompt profile of a message", "PromptInfo", message, conversation, _query("model", TEXT))
        },
    }


def _memory() -> dict[str, Any]:
    of_conversation, named = f"{CONVERSATIONS}/{{conversation_id}}/memory", _in_path("conversation_id")
    one, thing = _in_path("memory_id"), [*_in_path("type"), *_in_path("thing_id")]
    pages = [_query("query", TEXT, "Search: one page, the best first."), _query("type", TEXT), *_paging("desc")]
    user = _query("user", TEXT, "What is known of this user; required without a key.")
    return {
        of_conversation: {
            "get": _get("List or search the things that a conversation is about", "MemoryThings", *named, *pages),
            "post": _post("Remember things", "NewThings", "MemoryThings", *named),
        },
        f"{of_conversation}/{{memory_id}}": {
            "get": _get("One of them", "MemoryThing", *named, *one),
            "delete": _get("Forget one", "DeletedMemoryThing", *named, *one),
        },
        "/v1/memory": {"get": _get("List or search all remembered things", "MemoryThings", user, *pages)},
        "/v1/memory/{memory_id}": {
            "get": _get("One of them", "MemoryThing", *one),
            "delete": _get("Forget one", "DeletedMemoryThing", *one),
        },
        "/v1/memory/{type}/{thing_id}/conversations": {
            "get": _get("List the conversations that are about a thing", "ThingConversations", *thing, *_paging("desc"))
        },
    }


def _organization() -> dict[str, Any]:
    told = (
        ("costs", "What requests cost, by the day", "OrganizationCosts", COSTS),
        ("usage/completions", "Tokens and requests of chats", "OrganizationCompletions", COMPLETIONS),
        ("usage/embeddings", "Tokens and requests of embeddings", "OrganizationEmbeddings", EMBEDDINGS),
    )
    return {
        f"/v1/organization/{path}": {"get": _get(summary, schema, *_usage_parameters(kind))}
        for path, summary, schema, kind in told
    }


def _requests() -> dict[str, Any]:
    whole, amounts = ("http_status", "min_ms", "max_ms"), {"type": "number"}
    kinds: dict[str, Schema] = {**dict.fromkeys(whole, WHOLE), **dict.fromkeys(AMOUNTS, amounts)}
    kinds["status"] = {"enum": ["ok", *STATUSES]}
    said = {
        "since": "Arrived from then on: `24h`, `7d`, `yesterday`, a date.",
        "until": "Arrived before then.",
        "endpoint": "Which API, `chat` for chat completions.",
        "text": "A part of a user message, in any case.",
        "min_saved": "Net saving in USD; losses are below 0.",
    }
    found = [_query(name, kinds.get(name, TEXT), said.get(name, "")) for name in FILTERS]
    found.append(_query("tenant", TEXT, "For keys of role `admin`; else one's own."))
    orders: Schema = {"enum": [f"{sign}{name}" for name in SORTS for sign in ("", "-")], "default": "time"}
    found.append(_query("sort", orders, "The largest first; with `-` the smallest."))
    places = {"older": "further on in the order", "newer": "before it"}
    found += [_query(name, TEXT, f"A place that a page told: what is {text}.") for name, text in places.items()]
    return _get("List requests (viewer, admin)", "Requests", *found, _paging("desc")[0])


def _trail() -> dict[str, Any]:
    named = [_query("after", WHOLE, "The number of the last one seen."), _query("action", TEXT), _query("actor", TEXT)]
    named += [_query(name, UNIX) for name in ("since", "until")]
    paging = [each for each in _paging("asc") if each["name"] != "after"]
    lines = {"application/x-ndjson": {"schema": ref("TrailEvent")}}
    return {
        "/v1/gateway/trail": {"get": _get("List what administrators did", "TrailEvents", *named, *paging)},
        "/v1/gateway/trail/export": {"get": _operation("The same as lines of JSON, all of them", lines, named)},
    }


def _keys() -> dict[str, Any]:
    every, named = "/v1/gateway/keys", _in_path("key_id")
    one = f"{every}/{{key_id}}"
    filters = [_query("tenant", TEXT), _query("owner", TEXT), _query("include_revoked", FLAG, "Also those.")]
    paging = [each for each in _paging("desc") if each["name"] != "order"]
    return {
        every: {
            "get": _get("List keys, the latest in front (admin)", "Keys", *paging, *filters),
            "post": _post("Make a key, which is shown once (admin)", "KeyFields", "NewKey"),
        },
        f"{every}/self": {"get": _get("The key that asks", "Key")},
        one: {
            "get": _get("A key (admin)", "Key", *named),
            "post": _post("Change a key; null takes a field back (admin)", "KeyFields", "Key", *named),
            "delete": _get("Revoke a key for good (admin)", "Key", *named),
        },
        f"{one}/rotate": {"post": _post("Give a key another secret part (admin)", "Rotation", "NewKey", *named)},
    }


def _usage_parameters(kind: ReportParameters) -> list[dict[str, Any]]:
    """Lists are `NAME[]`, once for each member."""
    most = max(width.most for width in kind.widths.values())
    schemas: dict[str, Schema] = {
        "start_time": UNIX,
        "end_time": UNIX,
        "bucket_width": {"enum": list(kind.widths), "default": "1d"},
        "limit": {**WHOLE, "minimum": 1, "maximum": most},
        "page": TEXT,
        "batch": {"type": "boolean"},
        "group_by": {"type": "array", "items": {"enum": list(kind.groups)}},
        "include": {"type": "array", "items": {"const": SAVINGS}},
    }
    listed: Schema = {"type": "array", "items": TEXT}
    found = [_query(f"{name}[]" if name in LISTS else name, schemas.get(name, listed)) for name in kind.known]
    return [{**each, "required": True} if each["name"] == "start_time" else each for each in found]


def _of_replay() -> dict[str, Any]:
    return _query("replay_id", TEXT, "The branch of this replay in place of the current one.")


def _replay(named: Iterable[Any]) -> dict[str, Any]:
    streamed = {"schema": ref("ReplayEvent"), "description": "One object an event, then `[DONE]`."}
    estimated = {"application/json": {"schema": ref("ReplayEstimate")}}
    found = _operation("Run turns anew on a branch", estimated | {"text/event-stream": streamed}, named)
    return {**found, "requestBody": _body("ReplayRequest")}


def _chat() -> dict[str, Any]:
    streamed = {"schema": ref("ChatCompletionChunk"), "description": "One chunk an event, then `[DONE]`."}
    return _asking("Ask a model", "ChatRequest", "ChatCompletion", streamed)


def _responses() -> dict[str, Any]:
    one, named = "/v1/responses/{response_id}", _in_path("response_id")
    include = _query("include", {"type": "array", "items": TEXT}, "What is shown beside the usual.")
    again = [
        _query("stream", FLAG, "Its events again."),
        _query("starting_after", WHOLE, "The number of the last event that was seen."),
    ]
    paging = _paging("desc")
    return {
        "/v1/responses": {"post": _response()},
        "/v1/responses/compact": {"post": _post("Compact a history", "CompactRequest", "CompactedResponse")},
        one: {
            "get": _get("A stored response with its bill", "Response", *named, include, *again),
            "delete": _get("Delete a stored response", "DeletedResponse", *named),
        },
        f"{one}/cancel": {"post": _get("Refused: no response is made in the background", "Response", *named)},
        f"{one}/input_items": {"get": _get("What its request brought", "Items", *named, include, *paging)},
    }


def _response() -> dict[str, Any]:
    streamed = {"schema": ref("ResponseEvent"), "description": "OpenAI's events, each under its name."}
    return _asking("Ask a model by OpenAI's Responses", "ResponseRequest", "Response", streamed)


def _asking(summary: str, body: str, answer: str, streamed: dict[str, Any]) -> dict[str, Any]:
    answered = {"application/json": {"schema": {"anyOf": [ref(answer), ref("DryRun")]}}}
    headers = {
        "x-request-id": {"schema": TEXT},
        "x-conversation-id": {"schema": TEXT},
        "x-gateway-response-cost": {"schema": TEXT, "description": "USD; of answers that are not streamed."},
        "x-gateway-model": {"schema": TEXT, "description": "The model that answered instead of the one asked for."},
    }
    parameters = [
        _header("X-Conversation-Id", "The conversation to continue."),
        _header("X-Context-Session", "The same by a name of the client's own."),
        _header("X-Context-Mode", "As `context.mode`."),
        _header("X-Context-Planning", "As `context.planning`."),
        _header("X-Context-Max-Input-Tokens", "As `context.max_input_tokens`."),
        _header("X-Gateway-Fallbacks", "`off`: no other model answers where this one fails."),
        _header("Idempotency-Key", "The same request with the same key is answered and charged once."),
    ]
    found = _operation(summary, answered | {"text/event-stream": streamed}, parameters)
    found["responses"]["200"]["headers"] = headers
    found["requestBody"] = _body(body)
    return found


def _get(
    summary: str, answer: str | None, *parameters: Any, security: Any = None, unready: str | None = None
) -> dict[str, Any]:
    schema: Schema = ref(answer) if answer else {"type": "object"}
    found = _operation(summary, {"application/json": {"schema": schema}}, parameters)
    if security is not None:
        found["security"] = security
    if unready:
        content = {"application/json": {"schema": ref(unready)}}
        found["responses"]["503"] = {"description": "Not now.", "content": content}
    return found


def _ready() -> dict[str, Any]:
    text = "`1`: also the statistics of memory and caches, for whoever holds a key."
    details = _query("details", {"enum": ["1", "true"]}, text)
    return _get("Whether requests can be served", "Health", details, security=[{}, {"key": []}], unready="Health")


def _of_model() -> list[dict[str, Any]]:
    return [_query("model", TEXT, "Of the latest request for this model.")]


def _post(summary: str, body: str, answer: str, *parameters: Any) -> dict[str, Any]:
    return {**_get(summary, answer, *parameters), "requestBody": _body(body)}


def _metrics() -> dict[str, Any]:
    return {**_operation("Counts for Prometheus", {"text/plain": {"schema": TEXT}}, ()), "security": [{}, {"key": []}]}


def _mcp() -> dict[str, Any]:
    message = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
    return {**_get("The memory as an MCP server: one message of its protocol", None), "requestBody": message}


def _operation(summary: str, content: dict[str, Any], parameters: Iterable[Any]) -> dict[str, Any]:
    refused = {"description": "OpenAI's error shape.", "content": {"application/json": {"schema": ref("Error")}}}
    found: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "Done.", "content": content}, "default": refused},
    }
    given = list(parameters)
    return {**found, "parameters": given} if given else found


def _body(schema: str) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": ref(schema)}}}


def _in_path(name: str) -> list[dict[str, Any]]:
    return [{"name": name, "in": "path", "required": True, "schema": TEXT}]


def _query(name: str, schema: Schema, text: str = "") -> dict[str, Any]:
    found = {"name": name, "in": "query", "schema": schema}
    return {**found, "description": text} if text else found


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "schema": TEXT, "description": text}


def _paging(order: str) -> list[dict[str, Any]]:
    return [
        _query("limit", {**WHOLE, "minimum": 1, "maximum": 100, "default": 20}),
        _query("after", TEXT, "The id of the last one seen."),
        _query("order", {"enum": ["asc", "desc"], "default": order}),
    ]


def _part() -> list[dict[str, Any]]:
    return [
        _query("offset", {**WHOLE, "minimum": 0}, "First character of the text that is given."),
        _query("limit", {**WHOLE, "minimum": 1}, "Characters of it; of a large document a million at most."),
    ]


def _metadata_filter() -> dict[str, Any]:
    pairs = {"type": "object", "additionalProperties": TEXT}
    return {**_query("metadata", pairs, "`metadata[KEY]=VALUE`; all must hold."), "style": "deepObject"}


def _completion_filters() -> list[dict[str, Any]]:
    named = [_query("conversation", TEXT, "Required without a key."), _query("model", TEXT), _query("agent", TEXT)]
    return [*named, _metadata_filter(), *_paging("asc")]


def _conversation_filters() -> list[dict[str, Any]]:
    times = ("created_after", "created_before", "updated_after", "updated_before")
    session = _query("session", TEXT, "Required without a key.")
    return [session, *(_query(name, UNIX) for name in times), _metadata_filter(), *_paging("desc")]
