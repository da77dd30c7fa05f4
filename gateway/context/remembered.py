"""Recalls the things that a question names: they come with the conversation, and stand in the question's block
(guarantee §11.14)."""

from dataclasses import replace

from gateway.artifacts.collect import current_turn
from gateway.errors import StorageUnavailable
from gateway.history.recognition import end_user_of
from gateway.models.conversation import ConversationMessage, History
from gateway.models.exchange import ChatRequest
from gateway.models.tool_steps import RESULT_ROLES, calls_of, text_of
from gateway.ports import ThingReader
from gateway.telemetry.logs import get_logger
from gateway.things.naming import named_by, phrases_of

log = get_logger("gateway.context.remembered")


async def with_things(request: ChatRequest, history: History, things: ThingReader) -> History:
    """The conversation with what its question names of the memory that the request has on. One indexed read, where
    there is anything to read; without the storage nothing is remembered, and the answer still comes."""
    question = _question(request, history) if request.remembers else ""
    if not question.strip():
        return history
    phrases = phrases_of(question)
    try:
        places = await _places(request, history, things)
        if not (places and phrases.whole):
            return history
        found = await things.recall(request.caller.tenant, places, phrases)
    except StorageUnavailable as error:
        log.warning("memory_unavailable", reason=error.message)
        return history
    return replace(history, things=named_by(question, found)) if found else history


async def _places(request: ChatRequest, history: History, things: ThingReader) -> list[str]:
    """Where the request may look: in its own conversation, unless that may be somebody else's who said the same
    (guarantee §3.2), and where it says so in what is known of its user."""
    known = history.conversation_id or request.conversation.conversation_id
    places = [known] if known is not None and not (history.created or history.unproven) else []
    memory, user = request.memory, end_user_of(request.forward)
    if memory is not None and memory.scope == "user" and user is not None:
        places.append(await things.place_of(request.caller.tenant, user))
    return places


def _question(request: ChatRequest, history: History) -> str:
    """What the current turn is about, where its block is made now: the user's message, if it is new. An agent that
    reads sections may be given another agent's message."""
    if not history.messages:
        return ""
    current = history.messages[current_turn(history)]
    if request.is_worded:
        current = next((each for each in reversed(history.messages) if _is_said(each)), current)
    elif current.role != "user" or current.message_id is not None:
        return ""
    return text_of(current.content)


def _is_said(message: ConversationMessage) -> bool:
    """Whether it is no tool step, and has words."""
    is_step = message.role in RESULT_ROLES or calls_of(message.body)
    return not is_step and bool(text_of(message.content).strip())
