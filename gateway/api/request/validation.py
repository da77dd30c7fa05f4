"""Validates a chat request at the edge and takes the gateway's own fields out of it (guarantee §2). Only what the
gateway relies on is checked; all other fields are forwarded untouched. Messages and tools are checked by hand: see ADR
17."""

import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from operator import itemgetter
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from gateway.api.fields import RequestFields, SessionName, keeps_metadata_rules, read
from gateway.api.request.gateway_fields import ContextField, Mode, Planning, Tokens, agent_of
from gateway.api.request.remembered_entities import memory_of
from gateway.api.server.asgi import an_object, json_body
from gateway.core import errors, ids, jsons
from gateway.core.config import setting_sections
from gateway.core.config.settings import Settings
from gateway.core.formats.responses import request_parser
from gateway.core.formats.responses.request_parser import ResponsesReading
from gateway.core.frozen_records import record
from gateway.core.types import chat, conversation, items, memory, tool_steps
from gateway.core.types.artifacts import ContextGoal, RequestAttachment
from gateway.core.types.chat import ChatRequest, ContextOptions, KnownMessages, PlainMessages, RequestCaller
from gateway.core.types.conversation import UNNAMED, ConversationRef

Recognition = Callable[[str, list[Any], int], KnownMessages]
"""Finds what an earlier request of a tenant reveals of messages that may be invalid, in a body of so many bytes: what
it knows is valid."""
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
PLAIN_ROLES = frozenset(("system", "developer", "user", "assistant"))
PINNED = "pinned"
NO_PINS: frozenset[int] = frozenset()
TEXT_ONLY, OBJECTS_ONLY = {str}, {dict}
role_of, content_of = itemgetter("role"), itemgetter("content")


def chat_body(raw: bytes) -> tuple[dict[str, Any], PlainMessages | None]:
    """Parses the body of a chat request to a JSON object; returns it with its messages where they are plain.
    Raises InvalidRequest: it is no JSON object."""
    try:
        body = jsons.loads(raw)
        plain = plain_messages(body.get("messages")) if isinstance(body, dict) else None
        if plain is None:
            body = jsons.checked(raw, body)
        else:  # texts are neither deep nor numbers: only the other fields need a check
            rest = {name: value for name, value in body.items() if name != "messages"}
            if jsons.checked(raw, rest, small=False) is not rest:
                body = jsons.loads_exact(raw)
    except jsons.JSONDecodeError:
        return json_body(raw), None
    return an_object(body), plain


def check_messages(messages: Any, known: int = 0) -> None:
    """Raises InvalidRequest: `messages` is no list of messages; `param` names `messages[i]…`.
    `known`: how many of them have been checked before."""
    if messages is None:
        raise errors.missing("messages")
    if not isinstance(messages, list) or not messages:
        raise errors.invalid("messages", "must be a list of at least one message")
    for index, message in enumerate(messages[known:], known):
        check_message(message, f"messages[{index}]")


def check_message(message: Any, where: str) -> None:
    """Raises InvalidRequest: it is no message; `param` names the field, which is at or under `where`."""
    if not _is_common(message):
        _check_message(message, where)
    if len(message) > 2 and not items.IN_BLOCKS.isdisjoint(message):
        for name in items.IN_BLOCKS.intersection(message):
            _check_blocks(message[name], f"{where}.{name}")


def without_pins(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], frozenset[int]]:
    """Returns the messages without `pinned`, a field of the gateway's own, and the indexes of those that are pinned.
    Raises InvalidRequest: `pinned` is neither true nor false; `param` names `messages[i].pinned`."""
    named = [index for index, message in enumerate(messages) if PINNED in message]
    if not named:
        return messages, NO_PINS
    pinned = frozenset(i for i in named if chat.a_pin(messages[i][PINNED], f"messages[{i}].{PINNED}"))
    found = list(messages)
    for index in named:
        found[index] = {name: value for name, value in messages[index].items() if name != PINNED}
    return found, pinned


def _without_server_calls(
    messages: list[dict[str, Any]], settings: Settings
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Returns the messages without calls that a provider answered itself, and the names of their tools: clients that
    had them from another gateway can send no results.
    Raises InvalidRequest: they may not be left out (`upstream.hosted_tools`); `param` names `messages[i]`."""
    left_out = tool_steps.server_calls(messages)
    if not left_out:
        return messages, ()
    if settings.upstream.hosted_tools == "refuse":
        where = f"messages[{min(left_out)}]"
        text = f"{where} calls a tool of a provider's own without its result, and upstream.hosted_tools is refuse."
        raise errors.InvalidRequest(text, param=where, code="unsupported_parameter")
    found = list(messages)
    for index, calls in left_out.items():
        found[index] = tool_steps.without_some(found[index], calls)
    names = [str((call.get("function") or {}).get("name")) for calls in left_out.values() for call in calls]
    return found, tuple(dict.fromkeys(names))


def check_tools(body: dict[str, Any]) -> None:
    """Raises InvalidRequest: `tools` or `functions` is no list of objects; `param` names `tools[i]…`."""
    for name in ("tools", "functions"):
        tools = body.get(name)
        if tools is None:
            continue
        if not isinstance(tools, list):
            raise errors.invalid(name, "must be a list")
        for index, tool in enumerate(tools):
            if not isinstance(tool, dict):
                raise errors.invalid(f"{name}[{index}]", "must be an object")
            if not isinstance(tool.get("function", {}), dict):
                raise errors.invalid(f"{name}[{index}].function", "must be an object")


def plain_messages(messages: Any) -> PlainMessages | None:
    """Returns the messages if each is a role and a text and no more, so that nothing in them can be wrong; else None.

    Only built-in functions look at each message: every request passes here.
    """
    if type(messages) is not list or not messages:
        return None
    try:
        if len(messages[-1]) != 2:  # an agent's results: no need to look at its whole session
            return None
        roles = list(map(role_of, messages))
        texts = list(map(content_of, messages))
        if set(map(type, texts)) != TEXT_ONLY or not PLAIN_ROLES.issuperset(roles):
            return None
    except (KeyError, TypeError):
        return None
    if set(map(type, messages)) != OBJECTS_ONLY or max(map(len, messages)) != 2:
        return None
    return PlainMessages(roles, texts, list(map(len, texts)))


def _is_common(message: Any) -> bool:
    """Returns whether it is a text, a function call or a tool's result, in all fields that the gateway reads."""
    if type(message) is not dict:
        return False
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    if type(role) is not str or (type(content) is not str and not (content is None and role == "assistant")):
        return False
    if calls is not None:
        return role == "assistant" and type(calls) is list and all(map(_is_call, calls))
    return role in PLAIN_ROLES or (role == "tool" and type(message.get("tool_call_id")) is str)


def _is_call(call: Any) -> bool:
    if type(call) is not dict or type(call.get("id")) is not str:
        return False
    function = call.get("function")
    return type(function) is dict and type(function.get("name")) is str and type(function.get("arguments")) is str


def _check_message(message: Any, where: str) -> None:
    if not isinstance(message, dict):
        raise errors.invalid(where, "must be an object")
    role = message.get("role")
    if role not in ROLES:
        raise errors.invalid(f"{where}.role", f"must be one of {', '.join(ROLES)}")
    content = message.get("content")
    if content is None:
        if role != "assistant":
            raise errors.invalid(f"{where}.content", "is required")
    elif isinstance(content, list):
        _check_parts(content, f"{where}.content")
    elif not isinstance(content, str):
        raise errors.invalid(f"{where}.content", "must be a string or a list of parts")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise errors.invalid(f"{where}.tool_call_id", "must be a string")
    calls = message.get("tool_calls")
    if calls is not None:
        if role != "assistant" or not isinstance(calls, list):
            raise errors.invalid(f"{where}.tool_calls", "must be a list, on an assistant message")
        for index, call in enumerate(calls):
            _check_call(call, f"{where}.tool_calls[{index}]")


def _check_blocks(blocks: Any, where: str) -> None:
    if not isinstance(blocks, list | None):
        raise errors.invalid(where, "must be a list")
    for index, block in enumerate(blocks or ()):
        if not isinstance(block, dict):
            raise errors.invalid(f"{where}[{index}]", "must be an object")
        if not isinstance(block.get("type"), str):
            raise errors.invalid(f"{where}[{index}].type", "must be a string")


def _check_parts(parts: list[Any], where: str) -> None:
    for index, part in enumerate(parts):
        name = f"{where}[{index}]"
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise errors.invalid(name, "must be an object with a type")
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            raise errors.invalid(f"{name}.text", "must be a string")
        if part["type"] == "file" and not isinstance(part.get("file"), dict):
            raise errors.invalid(f"{name}.file", "must be an object")


def _check_call(call: Any, where: str) -> None:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        raise errors.invalid(f"{where}.id", "must be a string")
    function, kind = call.get("function"), call.get("type")
    if not isinstance(call.get("custom"), dict | None):
        raise errors.invalid(f"{where}.custom", "must be an object")
    if function is None and call.get("custom") is None and kind in (None, "function", "custom"):
        raise errors.missing(f"{where}.{kind or 'function'}")
    if function is None:
        return
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise errors.invalid(f"{where}.function.name", "must be a string")
    if not isinstance(function.get("arguments", ""), str):
        raise errors.invalid(f"{where}.function.arguments", "must be a string")


CONVERSATION_ID = re.compile(r"conv_[\w-]{1,58}\Z")


def check_conversation_id(name: str, param: str = "conversation_id") -> str:
    """Returns the id. Raises ConversationNotFound: no conversation can have it."""
    if not CONVERSATION_ID.match(name):
        raise errors.ConversationNotFound("No such conversation.", param=param)
    return name


MAX_CHOICES = 128
SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
FALLBACKS = "x-gateway-fallbacks"
PATIENCE_HEADERS = ("x-request-timeout", "x-stainless-timeout", "x-stainless-read-timeout")
"""Headers with the seconds that a client waits for an answer to begin: any client's, then those of two SDKs."""
OPTION_HEADERS = ("x-context-mode", "x-context-planning", "x-context-max-input-tokens")
GATEWAY_HEADERS = frozenset(
    name.encode() for name in ("x-conversation-id", "x-context-session", *OPTION_HEADERS, FALLBACKS)
)
"""Headers that are for the gateway alone; no upstream gets them."""
T = TypeVar("T")


def _printable(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("be 1 to 512 printable characters")
    return text


def attached(value: Any) -> Any:
    """Returns `attachments` as a list; a single string becomes a list."""
    return [value] if isinstance(value, str) else value


ATTACHED_AS = ("content", "attachment_id", "file_id", "file_data")
"""Fields of an attachment that hold or name its content."""
ModelName = Annotated[str, Field(max_length=512), AfterValidator(_printable)]


class ChatFields(RequestFields):
    """The fields of a chat request that the gateway reads, but for `messages`, `tools` and `conversation`."""

    model: ModelName
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    context: ContextField | None = None
    store: bool | None = None
    attachments: Annotated[list[RequestAttachment] | None, BeforeValidator(attached)] = None


CONTEXT_FIELDS = frozenset(ContextField.model_fields)
NO_CONTEXT = ContextField()
CHAT, SESSION = TypeAdapter(ChatFields), TypeAdapter(SessionName)
MODE, PLANNING, LIMIT = TypeAdapter(Mode), TypeAdapter(Planning), TypeAdapter(Tokens)
SWITCH: TypeAdapter[str] = TypeAdapter(Literal["on", "off"])


@record
class RequestArrival:
    """When a request arrived, by the clock and in monotonic seconds; its id, the bytes of its body, the fields of its
    log line, and whether its client has left since."""

    request_id: str
    at: datetime
    started: float
    size: int
    log_facts: dict[str, Any] = field(default_factory=dict)
    has_left: Callable[[], bool] = chat.never_leaves


def read_chat_body(
    raw: bytes,
    headers: Mapping[str, str],
    caller: RequestCaller,
    settings: Settings,
    arrival: RequestArrival,
    read: Callable[[ResponsesReading], object] = lambda _: None,
    unstored: Recognition | None = None,
) -> ChatRequest:
    """Parses the chat request of a body; for the other arguments see `parse_chat_request`.
    `read`: called with the reading of a body in another form than a chat's; errors name that form's fields.
    Raises InvalidRequest: it is no JSON object, or a field breaks a rule; `param` names it."""
    body, plain = chat_body(raw)
    if "messages" not in body and body.get("input") is not None:
        reading = request_parser.read_as_chat(body)
        read(reading)
        request = parse_chat_request(reading.chat, headers, caller, settings, arrival, unstored=unstored)
        return replace(request, native=reading.native)
    return parse_chat_request(body, headers, caller, settings, arrival, plain, unstored=unstored)


def parse_chat_request(
    body: dict[str, Any],
    headers: Mapping[str, str],
    caller: RequestCaller,
    settings: Settings,
    arrival: RequestArrival,
    plain: PlainMessages | None = None,
    known: KnownMessages | None = None,
    unstored: Recognition | None = None,
) -> ChatRequest:
    """Parses a body to the request that the pipeline takes.
    `headers`: those that begin with `x-`, in lower case; `plain`: its messages, where they are known to be plain;
    `known`: those that an earlier request shares; `unstored`: finds them for a request that is not stored.
    Raises InvalidRequest: a field breaks a rule; `param` names it."""
    fields = read(CHAT, body)
    check_spelling(body, settings)
    forward = dict(body)
    messages = forward.pop("messages", None)
    context = fields.context or NO_CONTEXT
    metadata = body.get("metadata")
    kept = dict(metadata) if metadata is not None and keeps_metadata_rules(metadata) else None
    conversation_id = _conversation(body.get("conversation"), context, metadata, headers)
    agent = agent_of(body.get("agent")) if "agent" in body else None
    is_delivery = agent is not None and not messages and isinstance(messages, list | None)
    has_tools = bool(body.get("tools") or body.get("functions"))
    options = _options(context, headers, settings, caller, has_tools=has_tools)
    store = settings.conversation.store if fields.store is None else fields.store
    recognised = known or KnownMessages()
    if plain is None and not (is_delivery and conversation_id != conversation.UNNAMED):
        is_stored = store and not chat.is_relayed(options, conversation_id)
        if known is None and unstored is not None and not is_stored and type(messages) is list:
            recognised = unstored(caller.tenant, messages, arrival.size)
        check_messages(messages, recognised.count)
    if messages and len(messages) > (most := settings.server.max_messages):
        raise errors.invalid("messages", f"must be at most {most} (server.max_messages); these are {len(messages)}")
    pinned = NO_PINS
    if plain is None and messages:
        messages, pinned = without_pins(messages)
    check_tools(body)
    left_out: tuple[str, ...] = ()
    if plain is None and messages and options.mode != "off":
        messages, left_out = _without_server_calls(messages, settings)
        if left_out and known is None:  # what was recognised are the messages with these calls
            recognised = KnownMessages()
    for name in ("context", "conversation", "attachments", "agent", "memory"):
        forward.pop(name, None)
    if not settings.upstream.forward_store:  # both are sent upstream, or neither
        forward.pop("store", None)
        if metadata is None or kept is not None:
            forward.pop("metadata", None)
    request = ChatRequest(
        request_id=arrival.request_id,
        caller=caller,
        model=fields.model,
        messages=tuple(messages or ()),
        forward=forward,
        conversation=conversation_id,
        attachments=_attachments(fields.attachments),
        options=options,
        store=store,
        stream=bool(fields.stream),
        include_usage=bool(fields.stream and (fields.stream_options or {}).get("include_usage")),
        choices=fields.n or 1,
        metadata=kept,
        arrived_at=arrival.at,
        started=arrival.started,
        size=arrival.size,
        plain=plain if messages else None,
        agent=agent,
        pinned=pinned,
        log_facts=arrival.log_facts,
        has_left=arrival.has_left,
        known=recognised,
        patience=_patience(headers),
        fallbacks=FALLBACKS not in headers or _header(SWITCH, headers, FALLBACKS) != "off",
        left_out=left_out,
    )
    if "memory" not in body and not settings.memory.things:
        return request
    return replace(request, memory=_memory(body.get("memory"), request, settings))


def _memory(value: Any, request: ChatRequest, settings: Settings) -> memory.EntityMemoryOptions | None:
    of_things = settings.memory
    keeps = request.keeps_content
    return memory_of(value, request.end_user, keeps=keeps, default=of_things.things, days=of_things.things_days)


def check_spelling(body: dict[str, Any], settings: Settings) -> None:
    """Raises InvalidRequest: with a `model_list`, a field is `model` in other letter case. Some upstreams read such a
    field as `model`, and the later of the two, which would bypass the list."""
    for name in body if settings.model_list else ():
        if len(name) == len("model") and name != "model" and name.lower() == "model":
            raise errors.invalid(name, "must be written 'model'")


def _options(
    context: ContextField, headers: Mapping[str, str], settings: Settings, caller: RequestCaller, *, has_tools: bool
) -> ContextOptions:
    """Returns the options of a request. The body outranks headers, these the key, and that the configuration."""
    defaults, limit = settings.context, None
    if caller.key is not None and caller.key.context != setting_sections.NO_DEFAULTS:
        of_key = caller.key.context
        said = of_key.model_dump(exclude={"max_input_tokens"}, exclude_none=True)
        defaults, limit = defaults.model_copy(update=said), of_key.max_input_tokens
    goal = ContextGoal.REASONING if has_tools else ContextGoal.SYNTHESIS
    if context is NO_CONTEXT and headers.keys().isdisjoint(OPTION_HEADERS):
        return ContextOptions(
            defaults.mode,
            defaults.planning,
            goal,
            limit,
            memory=defaults.memory,
            recall=defaults.recall,
            economy=defaults.economy,
            untouched_tools=defaults.untouched_tools,
            cite=defaults.cite and defaults.mode != "off",
        )
    models = context.models.model_dump(exclude_none=True) if context.models else {}
    for role, name in models.items():
        if not (settings.serves_unlisted or settings.lists(name)):
            param = f"context.models.{role}"
            raise errors.InvalidRequest(
                f"{param}: {settings.unknown(name, caller.may_ask)}", param=param, code="invalid_value"
            )
    mode = context.mode or _header(MODE, headers, OPTION_HEADERS[0]) or defaults.mode
    return ContextOptions(
        mode,
        context.planning or _header(PLANNING, headers, OPTION_HEADERS[1]) or defaults.planning,
        goal if context.goal is None else ContextGoal(context.goal),
        context.max_input_tokens or _header(LIMIT, headers, OPTION_HEADERS[2]) or limit,
        bool(context.dry_run),
        models,
        context.profile,
        context.memory or defaults.memory,
        recall=defaults.recall if context.recall is None else context.recall,
        economy=context.economy or defaults.economy,
        untouched_tools=(*defaults.untouched_tools, *(context.untouched_tools or ())),
        cite=mode != "off" and (defaults.cite if context.cite is None else context.cite),
    )


def _header(adapter: TypeAdapter[T], headers: Mapping[str, str], name: str) -> T | None:
    """Returns a header's value; None for an empty one."""
    text = _given(headers, name)
    if not text:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= 10
    return read(adapter, int(text) if is_number else text.lower(), name)


def _given(headers: Mapping[str, str], name: str) -> str:
    """Returns a header's value without the blanks around it, which are not part of it; "" without one. Some clients
    encode texts in UTF-8, others in Latin-1."""
    value = (headers.get(name) or "").strip(" \t")
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def _patience(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that the client waits; None where its header is no number of them."""
    for name in PATIENCE_HEADERS:
        if name in headers:
            return float(headers[name]) if SECONDS.fullmatch(headers[name]) else None
    return None


def _conversation(value: Any, context: ContextField, metadata: Any, headers: Mapping[str, str]) -> ConversationRef:
    """Returns the conversation that a request names by the first name; an id outranks a session (guarantee §2)."""
    field = "conversation"
    if isinstance(value, dict):
        field, value = "conversation.id", value.get("id")
        if value is None:
            raise errors.invalid(field, "is required")
    if value is not None and not isinstance(value, str):
        raise errors.invalid(field, "must be a string")
    if value is None:
        value = _given(headers, "x-conversation-id") or None
    if value is None and isinstance(metadata, dict):  # also one that is not stored
        named = metadata.get("conversation_id")
        value = named if isinstance(named, str) and CONVERSATION_ID.match(named) else None
    if value is not None:  # instead of a malformed id one that no conversation has: a 404
        return ConversationRef(conversation_id=value if CONVERSATION_ID.match(value) else ids.CONVERSATION)
    session = context.session or _given(headers, "x-context-session")
    return ConversationRef(session=read(SESSION, session, "x-context-session")) if session else UNNAMED


def _attachments(value: list[RequestAttachment] | None) -> tuple[RequestAttachment, ...]:
    for index, attachment in enumerate(value or ()):
        given = [name for name in ATTACHED_AS if getattr(attachment, name) is not None]
        if len(given) != 1:
            raise errors.invalid(
                f"attachments[{index}]", f"needs one of {', '.join(ATTACHED_AS)}, and no other of them"
            )
        said = getattr(attachment, given[0])
        if not said or said.isspace():
            raise errors.invalid(f"attachments[{index}].{given[0]}", "must not be empty")
    return tuple(value or ())
