"""Where entity memory acts: what a question names of it stands beside that question, and what a turn says is noted with
it (guarantee §11.14 to §11.16)."""

from dataclasses import replace
from typing import Protocol

from gateway.artifacts.collect import current_turn
from gateway.base.tasks import offload_if
from gateway.errors import StorageUnavailable
from gateway.features.entity_memory.naming import named_by, phrases_of
from gateway.features.entity_memory.rules import things_of_steps
from gateway.history.recognition import end_user_of
from gateway.models.conversation import INLINE_MESSAGES, ConversationMessage, History
from gateway.models.exchange import ChatRequest
from gateway.models.things import NotedThings, Phrases, Thing
from gateway.models.tool_steps import RESULT_ROLES, calls_of, text_of
from gateway.telemetry.logs import get_logger
from gateway.turn.hooks import Feature
from gateway.turn.stages import Prepared, Settled

log = get_logger("gateway.features.entity_memory")


class EntityReader(Protocol):
    """Reads what is remembered (guarantee §11.14).

    Raises:
        StorageUnavailable: the storage cannot be reached, or not within its timeout.
    """

    async def place_of(self, tenant: str, user: str) -> str:
        """Where the things of a tenant's user belong."""
        ...

    async def recall(self, tenant: str, places: list[str], phrases: Phrases) -> tuple[Thing, ...]:
        """Things of these places that are called by one of the phrases: of each the latest few."""
        ...


class EntityMemory:
    """Brings back and notes what conversations and users are about."""

    def __init__(self, reader: EntityReader) -> None:
        self._reader = reader

    def build(self) -> Feature:
        """Builds the feature."""
        return Feature(on_history=self._recalled, on_bill=self._noted)

    async def _recalled(self, prepared: Prepared) -> Prepared:
        history = prepared.history
        if history is None or not prepared.request.remembers:
            return prepared
        return replace(prepared, history=await with_things(prepared.request, history, self._reader))

    async def _noted(self, settled: Settled) -> Settled:
        """Adds what the turn says of entities, where the request has its memory on: what it names, what tools told, and
        what it was reminded of."""
        prepared, failed = settled.attempted.prepared, settled.attempted.outcome.status == "failed"
        memory, history, built = prepared.request.memory, prepared.history, prepared.context
        if memory is None or history is None or built is None or prepared.conversation_id is None or failed:
            return settled
        places, user = [prepared.conversation_id], end_user_of(prepared.request.forward, prepared.request.caller)
        if memory.scope == "user" and user is not None:
            places.append(await self._reader.place_of(prepared.request.caller.tenant, user))
        shown = {each["memory_id"] for each in built.utilization.things or ()}
        recalled = tuple(thing.as_note() for thing in history.things if thing.memory_id in shown)
        is_large = len(history.messages) >= INLINE_MESSAGES
        told = await offload_if(is_large, things_of_steps, history.messages, history.stored)
        notes = (*told, *memory.notes)
        if not (notes or recalled):
            return settled
        return replace(settled, things=NotedThings(notes, tuple(places), memory.days, recalled))


async def with_things(request: ChatRequest, history: History, things: EntityReader) -> History:
    """Returns the conversation with what its question names of the memory that the request has on. One indexed read,
    where there is anything to read; without the storage nothing is remembered, and the answer still comes."""
    question = _asked(request, history) if request.remembers else ""
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


async def _places(request: ChatRequest, history: History, things: EntityReader) -> list[str]:
    """Where the request may look: in its own conversation, unless that may be somebody else's who said the same
    (guarantee §3.2), and where it says so in what is known of its user."""
    known = history.conversation_id or request.conversation.conversation_id
    places = [known] if known is not None and not (history.created or history.unproven) else []
    memory, user = request.memory, end_user_of(request.forward, request.caller)
    if memory is not None and memory.scope == "user" and user is not None:
        places.append(await things.place_of(request.caller.tenant, user))
    return places


def _asked(request: ChatRequest, history: History) -> str:
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
