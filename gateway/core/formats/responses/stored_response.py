"""What is stored of a response's request beside its answer, and what the stored response later shows of that request
(guarantee §10.5)."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core.formats.responses.response_completion import ECHOED, ENCRYPTED, echo, with_sealed
from gateway.core.ids import content_digest
from gateway.core.jsons import Json
from gateway.core.types.agents import CHAT
from gateway.core.types.conversation import INSTRUCTION_ROLES, ConversationMessage
from gateway.core.types.items import answered_kind, call_kinds, items_of
from gateway.core.types.tool_steps import calls_of
from gateway.core.types.turn import BROUGHT, OWN_INSTRUCTIONS, is_own

Named = tuple[str, Json]
"""A message with its id."""
RESPONSE_ECHOED_FIELDS = (
    *(name for name in ECHOED if name not in ("instructions", "metadata", "store")),
    "text",
    "reasoning",
)
"""Request fields that are stored with the answer. Instructions are among the system messages, metadata is beside the
completion."""
CLIENTS_RESULTS = ("computer_call_output", "mcp_approval_response")
"""Items that only clients make, to answer hosted calls."""
SYSTEM_TOO = "system_messages"
"""Whether the request had leading system messages, beside its instructions."""


def asked_of(body: Mapping[str, Any], messages: Sequence[Json]) -> Json:
    """Returns what is stored of a request with its answer (`ChatRequest.asked`).
    `messages`: those of the request in a chat's form, its instructions first."""
    asked: Json = {name: body[name] for name in RESPONSE_ECHOED_FIELDS if body.get(name) is not None}
    own = body.get("instructions")
    if own:
        asked[OWN_INSTRUCTIONS] = content_digest(own)
    leading = next((i for i, each in enumerate(messages) if each["role"] not in INSTRUCTION_ROLES), len(messages))
    last = messages[-1] if len(messages) > leading else {}
    agent = body.get("agent")
    delivers = isinstance(agent, dict) and agent.get("type", CHAT) != CHAT and not agent.get("prefill")
    is_prefill = last.get("role") == "assistant" and not calls_of(last) and not delivers
    return {**asked, BROUGHT: len(messages) - leading - is_prefill, SYSTEM_TOO: leading > bool(own)}


def echoed_of(asked: Mapping[str, Any] | None, metadata: Json | None, instructions: Sequence[Json]) -> Json:
    """Returns the request fields that a stored response repeats; none were stored of a chat.
    `instructions`: the system messages that were in force."""
    found = {name: value for name, value in (asked or {}).items() if name in RESPONSE_ECHOED_FIELDS}
    if is_own(asked, instructions):
        found["instructions"] = instructions[0]["content"]
    return echo({**found, "metadata": metadata}, store=True)


def input_of(asked: Mapping[str, Any] | None, found: Sequence[Named], include: Sequence[str]) -> list[Json]:
    """Returns the items that a request brought, oldest first; of a chat, all that its answer follows.
    `found`: the messages before the answer, from the system messages in force on, then the answer, which begins with
    hosted calls of the client's and their results, if these came last."""
    *found, answer = found or [("", {"role": "assistant"})]
    leading = next((i for i, (_, each) in enumerate(found) if each["role"] not in INSTRUCTION_ROLES), len(found))
    system, said = found[:leading], found[leading:]
    brought = said
    if asked is not None and BROUGHT in asked:
        brought = said[len(said) - min(asked[BROUGHT], len(said)) :]
        own = is_own(asked, [body for _, body in system])
        system = system[own:] if asked.get(SYSTEM_TOO) else []
    calls: dict[str, str] = {}
    items: list[Json] = []
    for name, body in said[: len(said) - len(brought)]:
        calls |= call_kinds(ConversationMessage(body["role"], body, message_id=name))
    for name, body in (*system, *brought):
        message = ConversationMessage(body["role"], body, message_id=name)
        calls |= call_kinds(message)
        found_items = items_of(message, calls)
        items += with_sealed(found_items, body) if ENCRYPTED in include else found_items
    whole = items_of(ConversationMessage("assistant", answer[1], message_id=answer[0]), calls)
    whole = with_sealed(whole, answer[1]) if ENCRYPTED in include else whole
    last = max((number for number, each in enumerate(whole, 1) if each["type"] in CLIENTS_RESULTS), default=0)
    return items + whole[:last]


def referred(message: ConversationMessage, item_id: str) -> Json | None:
    """Finds the item of a stored message by its id, with all that its maker needs back; None if there is none."""
    call_id = str(message.body.get("tool_call_id"))
    items = items_of(message, {call_id: answered_kind(item_id)})
    found = next((item for item in with_sealed(items, message.body) if item["id"] == item_id), None)
    return None if found is None else {name: value for name, value in found.items() if name != "agent"}
