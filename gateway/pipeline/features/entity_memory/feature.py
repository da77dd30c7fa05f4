"""Where entity memory acts: what a question names of it stands beside that question, and what a turn says is noted with
it (guarantee §11.14 to §11.16)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gateway.context.artifacts.collect import current_turn
from gateway.conversations.matching import end_user_of
from gateway.core import jsons
from gateway.core.errors import StorageUnavailable
from gateway.core.instrumentation.logs import get_logger
from gateway.core.tasks import offload_if
from gateway.core.types.chat import ChatRequest
from gateway.core.types.conversation import INLINE_MESSAGES, ConversationHistory, ConversationMessage
from gateway.core.types.memory import (
    CREATED,
    DELETED,
    DISCUSSED,
    MAX_ID_CHARS,
    MAX_NAME_CHARS,
    MAX_NOTES,
    MAX_TYPE_CHARS,
    MODIFIED,
    MemoryEntity,
    NotedThings,
    SearchPhrases,
    ThingNote,
    as_line,
    is_line,
)
from gateway.core.types.tool_steps import RESULT_ROLES, calls_of, result_of, take_call, text_of
from gateway.pipeline.features.entity_memory.aliases import FILE, file_name, noted
from gateway.pipeline.features.entity_memory.naming import named_by, phrases_of
from gateway.pipeline.hooks import RequestFeature
from gateway.pipeline.stages import PreparedRequest, SettledRequest

# What tools tell of things: rules from a call and its result to what is noted (guarantee §11.15, ADR 24).
#
# 1. The tool's name has a verb: `create_workflow_from_description` creates, `orders.list` discusses. Without a verb
# nothing is noted but files. 2. The words beside the verb are the type, in the singular: `workflow`, `order`,
# `purchase_order`. 3. The result, where it is JSON, holds the thing or a list of things: each with its id and, where
# it has one, its name. Where it holds none, an id among the arguments counts, but for what is created. 4. A path
# among the arguments is a file. 5. A result that tells of an error notes nothing.

VERBS = {
    **dict.fromkeys(("create", "add", "new", "make", "insert", "upload", "register"), CREATED),
    **dict.fromkeys(("update", "edit", "rename", "modify", "patch", "change", "write", "append", "move"), MODIFIED),
    **dict.fromkeys(("replace", "assign", "close", "reopen"), MODIFIED),
    **dict.fromkeys(("delete", "remove", "drop", "cancel"), DELETED),
    **dict.fromkeys(("get", "read", "search", "list", "find", "show", "view", "fetch", "load", "open"), DISCUSSED),
}
"""What a verb in a tool's name does with a thing."""
_ENDS = "from by with for in on to of at into and details detail info status id ids"
ENDS = frozenset(_ENDS.split())
"""Words at which the type has ended."""
FILLERS = frozenset(["the", "a", "an", "all", "my", "new", "one", "many", "bulk"])
PLACES = frozenset(["file", "files", "directory", "folder", "dir", "path"])
PATHS = ("path", "file_path", "filepath", "filename", "file_name", "target_file")
NAMES = ("name", "title", "new_name", "display_name", "label", "subject", "summary")
LISTS = ("results", "items", "data", "records", "hits", "matches", "entries")
INSIDE = ("data", "result", "item", "record", "object")
FAULTS = ("error", "errors", "is_error", "isError")
SUCCESS = ("success", "ok", "succeeded")
MAX_OF_RESULT = 10
"""Things that one result notes."""
MAX_CHARS = 256 * 1024
"""Characters of a result that is read as JSON; of a longer one only the arguments count."""
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
Json = Mapping[str, Any]


def things_of_steps(messages: Sequence[ConversationMessage], first_new: int) -> tuple[ThingNote, ...]:
    """What the tool results among the new messages tell.
    `messages`: the conversation; the calls of the first new results may stand before these; `first_new`: index of the
    first new message."""
    start = first_new
    while start and messages[start - 1].role in RESULT_ROLES:
        start -= 1
    found: list[ThingNote] = []
    calls: list[dict[str, Any]] = []
    for number, message in enumerate(messages[max(0, start - 1) :], max(0, start - 1)):
        if message.role not in RESULT_ROLES:
            calls = calls_of(message.body)
            continue
        call = take_call(calls, message.body)
        if number >= first_new and call:
            _, text, tool, arguments = result_of(message.body, call)
            found += things_of(tool, arguments, text)
    return tuple(found[:MAX_NOTES])


def things_of(tool: str, arguments: str, result: str) -> list[ThingNote]:
    """What one call and its result tell, `MAX_OF_RESULT` things at most.
    `arguments, result`: as they were written; JSON counts, another result only says that the call was answered."""
    given, told = _json(arguments), _json(result)
    if not isinstance(given, dict):
        given = {}
    if _is_fault(told, result):
        return []
    action, kind = _verb_and_type(tool)
    found = [_file(path, action or DISCUSSED) for name in PATHS if (path := _text(given.get(name), MAX_ID_CHARS))]
    if action is not None and kind and kind not in PLACES and is_line(kind, MAX_TYPE_CHARS):
        found += _of_result(kind, action, given, told)
    by_key = {note.key: note for note in found}
    return list(by_key.values())[:MAX_OF_RESULT]


def _verb_and_type(tool: str) -> tuple[str | None, str]:
    """What a tool does, and with what type of things; None and "" where its name does not say."""
    words = [word.lower() for word in WORDS.findall(tool[: 2 * MAX_TYPE_CHARS])]
    at = next((i for i, word in enumerate(words) if word in VERBS), None)
    if at is None:
        return None, ""
    nouns: list[str] = []
    for word in words[at + 1 :]:
        if word in ENDS:
            break
        nouns += [] if word in FILLERS else [word]
    nouns = nouns or [word for word in words[:at] if word not in FILLERS][-1:]
    return VERBS[words[at]], "_".join([*nouns[:-1], singular(nouns[-1])]) if nouns else ""


def singular(word: str) -> str:
    """A noun's singular, in English."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _of_result(kind: str, action: str, given: Json, told: Any) -> Iterator[ThingNote]:
    records, changes = _records(kind, told), action in (CREATED, MODIFIED)
    named = _name(kind, given) if changes and len(records) <= 1 else None  # else it is what was searched for
    with_ids = [(thing_id, each) for each in records if (thing_id := _id(kind, each))]
    for thing_id, each in with_ids:
        yield noted(kind, thing_id, _name(kind, each) or named, action)
    if not with_ids and action != CREATED and len(records) <= 1 and (thing_id := _id(kind, given)):
        yield noted(kind, thing_id, named, action)


def _records(kind: str, told: Any) -> list[dict[str, Any]]:
    """The objects of a result that may be things: the one that it is or holds, or those of its list."""
    found: Any = told
    if isinstance(told, dict):
        one = next((told[name] for name in (kind, *INSIDE) if isinstance(told.get(name), dict)), told)
        several = (told[name] for name in (kind + "s", kind, *LISTS) if isinstance(told.get(name), list))
        found = [one] if one is not told else next(several, [told])
    return [each for each in found[:MAX_OF_RESULT] if isinstance(each, dict)] if isinstance(found, list) else []


def _id(kind: str, record: Json) -> str | None:
    last = kind.rpartition("_")[2]
    names = (f"{kind}_id", f"{last}_id", f"{last}Id", "id", "spec_id", "key", "uuid", "number")
    return next((found for name in names if (found := _text(record.get(name), MAX_ID_CHARS))), None)


def _name(kind: str, record: Json) -> str | None:
    values = (record.get(name) for name in (f"{kind}_name", *NAMES))
    return next((as_line(value, MAX_NAME_CHARS) for value in values if isinstance(value, str) and value.strip()), None)


def _file(path: str, action: str) -> ThingNote:
    return noted(FILE, path, file_name(path), action)


def _text(value: Any, most: int) -> str | None:
    """A text, or a whole number as one; None where it cannot name anything."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 10**most else ""
    return value if isinstance(value, str) and is_line(value, most) else None


def _json(text: str) -> Any:
    if len(text) > MAX_CHARS or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return jsons.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_fault(told: Any, text: str) -> bool:
    if isinstance(told, dict):
        return any(told.get(name) for name in FAULTS) or any(told.get(name) is False for name in SUCCESS)
    return told is None and text.lstrip()[:5].lower() == "error"


log = get_logger("gateway.pipeline.features.entity_memory")


class EntityReader(Protocol):
    """Reads what is remembered (guarantee §11.14).
    Raises StorageUnavailable: the storage cannot be reached, or not within its timeout."""

    async def place_of(self, tenant: str, user: str) -> str:
        """Where the things of a tenant's user belong."""
        ...

    async def recall(self, tenant: str, places: list[str], phrases: SearchPhrases) -> tuple[MemoryEntity, ...]:
        """Things of these places that are called by one of the phrases: of each the latest few."""
        ...


class EntityMemory:
    """Brings back and notes what conversations and users are about."""

    def __init__(self, reader: EntityReader) -> None:
        self._reader = reader

    def build(self) -> RequestFeature:
        return RequestFeature(on_history=self._recalled, on_bill=self._noted)

    async def _recalled(self, prepared: PreparedRequest) -> PreparedRequest:
        history = prepared.history
        if history is None or not prepared.request.remembers:
            return prepared
        return replace(prepared, history=await with_things(prepared.request, history, self._reader))

    async def _noted(self, settled: SettledRequest) -> SettledRequest:
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


async def with_things(request: ChatRequest, history: ConversationHistory, things: EntityReader) -> ConversationHistory:
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


async def _places(request: ChatRequest, history: ConversationHistory, things: EntityReader) -> list[str]:
    """Where the request may look: in its own conversation, unless that may be somebody else's who said the same
    (guarantee §3.2), and where it says so in what is known of its user."""
    known = history.conversation_id or request.conversation.conversation_id
    places = [known] if known is not None and not (history.created or history.unproven) else []
    memory, user = request.memory, end_user_of(request.forward, request.caller)
    if memory is not None and memory.scope == "user" and user is not None:
        places.append(await things.place_of(request.caller.tenant, user))
    return places


def _asked(request: ChatRequest, history: ConversationHistory) -> str:
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
