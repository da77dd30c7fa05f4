"""The shape of `messages` and tools: as much of it as the gateway relies on. Checked by hand: see ADR 17."""

from operator import itemgetter
from typing import Any

from gateway.api.fields import a_pin, invalid, missing
from gateway.api.server.receiving import an_object, json_body
from gateway.core import jsons
from gateway.core.types.chat import PlainMessages
from gateway.core.types.items import ANTHROPIC_BLOCKS, SIGNED

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
PLAIN_ROLES = frozenset(("system", "developer", "user", "assistant"))
IN_BLOCKS = frozenset((SIGNED, "reasoning_items", "output_items", ANTHROPIC_BLOCKS))
"""Fields that hold what other APIs have beside a chat's words, as chats' clients send them again."""
PINNED = "pinned"
NO_PINS: frozenset[int] = frozenset()
TEXT_ONLY, OBJECTS_ONLY = {str}, {dict}
role_of, content_of = itemgetter("role"), itemgetter("content")


def chat_body(raw: bytes) -> tuple[dict[str, Any], PlainMessages | None]:
    """The body of a chat request as a JSON object, and its messages where they are plain.
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
    """`known`: how many of them have been checked before.
    Raises InvalidRequest: not a list of messages; names `messages[i]…`."""
    if messages is None:
        raise missing("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", "must be a list of at least one message")
    for index, message in enumerate(messages[known:], known):
        check_message(message, f"messages[{index}]")


def check_message(message: Any, where: str) -> None:
    """Raises InvalidRequest: no message; names the field, which is at or under `where`."""
    if not _is_common(message):
        _check_message(message, where)
    if len(message) > 2 and not IN_BLOCKS.isdisjoint(message):
        for name in IN_BLOCKS.intersection(message):
            _check_blocks(message[name], f"{where}.{name}")


def without_pins(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], frozenset[int]]:
    """The messages without `pinned`, a field of the gateway's own, and the indexes of those that are pinned.
    Raises InvalidRequest: it is neither true nor false; names `messages[i].pinned`."""
    named = [index for index, message in enumerate(messages) if PINNED in message]
    if not named:
        return messages, NO_PINS
    pinned = frozenset(i for i in named if a_pin(messages[i][PINNED], f"messages[{i}].{PINNED}"))
    found = list(messages)
    for index in named:
        found[index] = {name: value for name, value in messages[index].items() if name != PINNED}
    return found, pinned


def check_tools(body: dict[str, Any]) -> None:
    """Raises InvalidRequest: `tools` or `functions` is no list of objects; names `tools[i]…`."""
    for name in ("tools", "functions"):
        tools = body.get(name)
        if tools is None:
            continue
        if not isinstance(tools, list):
            raise invalid(name, "must be a list")
        for index, tool in enumerate(tools):
            if not isinstance(tool, dict):
                raise invalid(f"{name}[{index}]", "must be an object")
            if not isinstance(tool.get("function", {}), dict):
                raise invalid(f"{name}[{index}].function", "must be an object")


def plain_messages(messages: Any) -> PlainMessages | None:
    """The messages if each is a role and a text and no more, so that nothing of them can be wrong.

    Only built-in functions look at each message: this is on the way of every request.
    """
    if type(messages) is not list or not messages:
        return None
    try:
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
    """Whether it is a text, a function call or a tool's result, in which nothing the gateway reads can be wrong."""
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
        raise invalid(where, "must be an object")
    role = message.get("role")
    if role not in ROLES:
        raise invalid(f"{where}.role", f"must be one of {', '.join(ROLES)}")
    content = message.get("content")
    if content is None:
        if role != "assistant":
            raise invalid(f"{where}.content", "is required")
    elif isinstance(content, list):
        _check_parts(content, f"{where}.content")
    elif not isinstance(content, str):
        raise invalid(f"{where}.content", "must be a string or a list of parts")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise invalid(f"{where}.tool_call_id", "must be a string")
    calls = message.get("tool_calls")
    if calls is not None:
        if role != "assistant" or not isinstance(calls, list):
            raise invalid(f"{where}.tool_calls", "must be a list, on an assistant message")
        for index, call in enumerate(calls):
            _check_call(call, f"{where}.tool_calls[{index}]")


def _check_blocks(blocks: Any, where: str) -> None:
    if not isinstance(blocks, list | None):
        raise invalid(where, "must be a list")
    for index, block in enumerate(blocks or ()):
        if not isinstance(block, dict):
            raise invalid(f"{where}[{index}]", "must be an object")
        if not isinstance(block.get("type"), str):
            raise invalid(f"{where}[{index}].type", "must be a string")


def _check_parts(parts: list[Any], where: str) -> None:
    for index, part in enumerate(parts):
        name = f"{where}[{index}]"
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise invalid(name, "must be an object with a type")
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            raise invalid(f"{name}.text", "must be a string")
        if part["type"] == "file" and not isinstance(part.get("file"), dict):
            raise invalid(f"{name}.file", "must be an object")


def _check_call(call: Any, where: str) -> None:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        raise invalid(f"{where}.id", "must be a string")
    function = call.get("function")
    if not isinstance(call.get("custom"), dict | None):
        raise invalid(f"{where}.custom", "must be an object")
    if function is None:
        return  # custom tools carry `custom` instead
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise invalid(f"{where}.function.name", "must be a string")
    if not isinstance(function.get("arguments", ""), str):
        raise invalid(f"{where}.function.arguments", "must be a string")
