"""Entity memory: recalls the entities that a question names beside that question, and notes those of each turn
(guarantee §11.14 to §11.16).

A question names an entity by its aliases, the longest first: "Task Management", a workflow, is also "my task workflow".
Words are compared without case, width and punctuation: "Task-Management" and "task_management" are the same two words.
In scripts without spaces each character is a word."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gateway.context import collect
from gateway.core import errors, jsons
from gateway.core.instrumentation import logs
from gateway.core.tasks import offload_if
from gateway.core.types import conversation, memory, tool_steps
from gateway.core.types.chat import ChatRequest
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from gateway.pipeline.stages import PreparedRequest, RequestFeature, SettledRequest

ENTITY_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")
FILE_KIND = "file"
MIN_NAME_CHARS = 3
"""Fewest characters of a one-word name; a shorter one counts only if it has both letters and digits."""
MIN_ID_CHARS = 4
"""Fewest characters of a one-word id that may be an alias by itself: a "7" in a question is not an order."""
MAX_QUESTION_WORDS = 64
"""Words at the beginning of a question, and as many at its end, that are searched for entities."""
_LITTLE = (
    "the and for are was you your our their this that with from have has not but all any can will what which who how "
    "why when where there here into out about new old get set add use see let yes"
)
_COMMON = "main test data list item file name type user read write open"
LITTLE = frozenset(_LITTLE.split())
"""Words that name nothing, not even beside a type: "which workflow" means none in particular."""
COMMON = LITTLE | frozenset(_COMMON.split())
"""Words that occur in questions about anything: alone they name nothing."""


def words_of(text: str) -> list[str]:
    """Splits a text into words, normalised for comparison."""
    return ENTITY_WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def phrase(text: str) -> str:
    """Joins the normalised words of a text by spaces."""
    return " ".join(words_of(text))


def aliases_of(kind: str, thing_id: str, name: str | None, given: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns all aliases of an entity, given ones first, each once.

    "Task Management", a workflow, wf_12: task management, task management workflow, workflow task management, my task
    management, my task, task workflow, my task workflow, wf 12, workflow wf 12.
    """
    found = [phrase(alias) for alias in given]
    of_type = phrase(kind)
    names = words_of(name) if name else []
    if names:
        found += _of_name(names, of_type)
    if kind == FILE_KIND and name and (stem := words_of(name.rpartition(".")[0])):
        found += _of_name(stem, of_type)
    own = words_of(thing_id)
    if own and own != names:
        if len(own) > 1 or len(own[0]) >= MIN_ID_CHARS:
            found.append(" ".join(own))
        found.append(" ".join([of_type, *own]))
    return tuple(dict.fromkeys(alias for alias in found if alias))[: memory.MAX_ALIASES]


def _of_name(names: list[str], of_type: str) -> list[str]:
    """Returns the short forms of a name of these words."""
    whole, first = " ".join(names), names[0]
    found = [f"{of_type} {whole}"]
    if len(names) > 1 or _is_word(whole, LITTLE):
        found = [f"{whole} {of_type}", *found, f"my {whole}"]
    if len(names) > 1 or _is_word(whole, COMMON):
        found.insert(0, whole)
    if _is_word(first, COMMON):
        found += [f"my {first}", f"{first} {of_type}", f"my {first} {of_type}"]
    return found


def _is_word(word: str, but: frozenset[str]) -> bool:
    """Returns whether a word can name something by itself."""
    short = len(word) < MIN_NAME_CHARS and word.isascii() and (word.isalpha() or word.isdigit())
    return word not in but and not short


def noted(kind: str, thing_id: str, name: str | None, action: str, given: Iterable[str] = ()) -> memory.ThingNote:
    """Builds a note of an entity with all of its aliases."""
    return memory.ThingNote(kind, thing_id, name, aliases_of(kind, thing_id, name, given), action)


def file_name(path: str) -> str:
    """Returns the last part of a path."""
    return memory.as_line(re.split(r"[/\\]", path.rstrip("/\\"))[-1], memory.MAX_LOOKUP_KEY_CHARS) or path


def question_words(text: str) -> list[str]:
    """Returns the words of a question to search for entities: of a long one its beginning and its end."""
    found = words_of(text[:4000]) if len(text) <= 4000 else [*words_of(text[:2000]), "\n", *words_of(text[-2000:])]
    if len(found) <= 2 * MAX_QUESTION_WORDS:
        return found
    return [*found[:MAX_QUESTION_WORDS], "\n", *found[-MAX_QUESTION_WORDS:]]


def runs_of(words: list[str]) -> tuple[str, ...]:
    """Returns each run of one to four of these words, which are the keys of aliases; the longest first."""
    found = (
        " ".join(words[start : start + size])[: memory.MAX_LOOKUP_KEY_CHARS]
        for size in range(memory.KEY_WORDS, 0, -1)
        for start in range(len(words) - size + 1)
    )
    return tuple(dict.fromkeys(run for run in found if "\n" not in run))


Span = tuple[int, int]
"""Words of the question: start and end (exclusive)."""


def phrases_of(question: str) -> memory.SearchPhrases:
    """Returns the phrases to look up for a question."""
    return memory.SearchPhrases(tuple(run for run in runs_of(question_words(question)) if run not in COMMON))


def search_of(query: str) -> memory.SearchPhrases:
    """Returns the phrases to look up for a search, which also matches single words."""
    words = question_words(query)
    return memory.SearchPhrases(runs_of(words), tuple(dict.fromkeys(word for word in words if word != "\n")))


def named_by(
    question: str, found: Iterable[memory.MemoryEntity], most: int = memory.MAX_RECALLED
) -> tuple[memory.MemoryEntity, ...]:
    """Selects the entities that a question names, at most `most`.

    Words that name an entity do not name others by fewer of them: "my workflow 12" is not each entity that is "my
    workflow". Names that few entities share come first, then longer names, then the latest entities. Of an entity that
    is remembered for both the conversation and its user, the latest note counts.
    """
    words = question_words(question)
    latest: dict[tuple[str, str], memory.MemoryEntity] = {}
    for thing in found:
        known = latest.get(thing.key)
        if known is None or thing.mentioned_at > known.mentioned_at:
            latest[thing.key] = thing
    places = [(thing, spans) for thing in latest.values() if (spans := _spans(words, thing))]
    count = Counter(span for _, spans in places for span in spans)
    whole = {span for span in count if not any(_is_inside(span, other) for other in count)}
    worth = [(min((count[each], -_size(each)) for each in own), thing) for thing, s in places if (own := s & whole)]
    worth.sort(key=lambda each: (*each[0], *_latest_first(each[1])))
    return tuple(thing for _, thing in worth[:most])


def ranked(query: str, found: Iterable[memory.MemoryEntity]) -> tuple[memory.MemoryEntity, ...]:
    """Ranks search results: entities with an alias in the query, then those with most of its words, then the latest."""
    words = question_words(query)
    wanted = frozenset(words)

    def worth(thing: memory.MemoryEntity) -> tuple[int, int, float, str]:
        whole = max(map(_size, _spans(words, thing)), default=0)
        own = wanted.intersection(" ".join(thing.aliases).split(" "))
        return -whole, -len(own), *_latest_first(thing)

    return tuple(sorted(found, key=worth))


def _latest_first(thing: memory.MemoryEntity) -> tuple[float, str]:
    return -thing.mentioned_at.timestamp(), thing.memory_id


def _spans(words: Sequence[str], thing: memory.MemoryEntity) -> frozenset[Span]:
    """Returns where the entity's aliases are in the question."""
    text = f" {' '.join(words)} "
    here = [alias.split(" ") for alias in thing.aliases if f" {alias} " in text]
    return frozenset(
        (at, at + len(own))
        for own in here
        for at in range(len(words) - len(own) + 1)
        if words[at] == own[0] and list(words[at : at + len(own)]) == own
    )


def _size(span: Span) -> int:
    return span[1] - span[0]


def _is_inside(span: Span, other: Span) -> bool:
    """Returns whether a span is part of a longer one."""
    return other != span and other[0] <= span[0] and span[1] <= other[1]


# What tool calls reveal of entities: rules from a call and its result to notes (guarantee §11.15, ADR 24).
#
# 1. The tool's name has a verb: `create_workflow_from_description` creates, `orders.list` discusses. Without a verb
# only files are noted. 2. The words beside the verb are the type, in the singular: `workflow`, `order`,
# `purchase_order`. 3. A JSON result holds the entity or a list of entities: each with its id and, where it has one,
# its name. If it holds none, an id among the arguments counts, except for what is created. 4. A path among the
# arguments is a file. 5. A result that reports an error notes nothing.

VERBS = {
    **dict.fromkeys(("create", "add", "new", "make", "insert", "upload", "register"), memory.CREATED),
    **dict.fromkeys(
        ("update", "edit", "rename", "modify", "patch", "change", "write", "append", "move"), memory.MODIFIED
    ),
    **dict.fromkeys(("replace", "assign", "close", "reopen"), memory.MODIFIED),
    **dict.fromkeys(("delete", "remove", "drop", "cancel"), memory.DELETED),
    **dict.fromkeys(
        ("get", "read", "search", "list", "find", "show", "view", "fetch", "load", "open"), memory.DISCUSSED
    ),
}
"""The action that a verb in a tool's name stands for."""
_ENDS = "from by with for in on to of at into and details detail info status id ids"
TYPE_ENDS = frozenset(_ENDS.split())
"""Words that end the type."""
FILLERS = frozenset(["the", "a", "an", "all", "my", "new", "one", "many", "bulk"])
NON_ENTITY_KINDS = frozenset(["file", "files", "directory", "folder", "dir", "path"])
PATHS = ("path", "file_path", "filepath", "filename", "file_name", "target_file")
NAME_FIELDS = ("name", "title", "new_name", "display_name", "label", "subject", "summary")
ENTITY_LIST_FIELDS = ("results", "items", "data", "records", "hits", "matches", "entries")
INSIDE = ("data", "result", "item", "record", "object")
FAULT_FIELDS = ("error", "errors", "is_error", "isError")
SUCCESS = ("success", "ok", "succeeded")
MAX_OF_RESULT = 10
"""Entities noted from one result."""
MAX_READ_RESULT_CHARS = 256 * 1024
"""Characters up to which a result is read as JSON; beyond that only the call's arguments count."""
TOOL_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
Json = Mapping[str, Any]


def things_of_steps(messages: Sequence[ConversationMessage], first_new: int) -> tuple[memory.ThingNote, ...]:
    """Extracts the entities that the tool results among the new messages reveal.
    `messages`: the conversation; the calls of the first new results may precede these; `first_new`: index of the first
    new message."""
    start = first_new
    while start and messages[start - 1].role in tool_steps.RESULT_ROLES:
        start -= 1
    found: list[memory.ThingNote] = []
    calls: list[dict[str, Any]] = []
    for number, message in enumerate(messages[max(0, start - 1) :], max(0, start - 1)):
        if message.role not in tool_steps.RESULT_ROLES:
            calls = tool_steps.calls_of(message.body)
            continue
        call = tool_steps.take_call(calls, message.body)
        if number >= first_new and call:
            _, text, tool, arguments = tool_steps.result_of(message.body, call)
            found += things_of(tool, arguments, text)
    return tuple(found[: memory.MAX_NOTES])


def things_of(tool: str, arguments: str, result: str) -> list[memory.ThingNote]:
    """Extracts the entities that one call and its result reveal, `MAX_OF_RESULT` at most.
    `arguments, result`: as they were written; JSON is read, any other result only shows that the call was answered."""
    given, data = _json(arguments), _json(result)
    if not isinstance(given, dict):
        given = {}
    if _is_fault(data, result):
        return []
    action, kind = _verb_and_type(tool)
    found = [
        _file(path, action or memory.DISCUSSED)
        for name in PATHS
        if (path := _text(given.get(name), memory.MAX_ID_CHARS))
    ]
    if action is not None and kind and kind not in NON_ENTITY_KINDS and memory.is_line(kind, memory.MAX_TYPE_CHARS):
        found += _of_result(kind, action, given, data)
    by_key = {note.key: note for note in found}
    return list(by_key.values())[:MAX_OF_RESULT]


def _verb_and_type(tool: str) -> tuple[str | None, str]:
    """Returns what a tool does, and with what type of entity; None and "" where its name does not show that."""
    words = [word.lower() for word in TOOL_NAME_WORD.findall(tool[: 2 * memory.MAX_TYPE_CHARS])]
    at = next((i for i, word in enumerate(words) if word in VERBS), None)
    if at is None:
        return None, ""
    nouns: list[str] = []
    for word in words[at + 1 :]:
        if word in TYPE_ENDS:
            break
        nouns += [] if word in FILLERS else [word]
    nouns = nouns or [word for word in words[:at] if word not in FILLERS][-1:]
    return VERBS[words[at]], "_".join([*nouns[:-1], singular(nouns[-1])]) if nouns else ""


def singular(word: str) -> str:
    """Returns a noun's singular, in English."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _of_result(kind: str, action: str, given: Json, data: Any) -> Iterator[memory.ThingNote]:
    records, changes = _records(kind, data), action in (memory.CREATED, memory.MODIFIED)
    named = name_in(kind, given) if changes and len(records) <= 1 else None  # else it names what was searched for
    with_ids = [(thing_id, each) for each in records if (thing_id := _id(kind, each))]
    for thing_id, each in with_ids:
        yield noted(kind, thing_id, name_in(kind, each) or named, action)
    if not with_ids and action != memory.CREATED and len(records) <= 1 and (thing_id := _id(kind, given)):
        yield noted(kind, thing_id, named, action)


def _records(kind: str, data: Any) -> list[dict[str, Any]]:
    """Returns the objects of a result that may be entities: the one that it is or holds, or those of its list."""
    found: Any = data
    if isinstance(data, dict):
        one = next((data[name] for name in (kind, *INSIDE) if isinstance(data.get(name), dict)), data)
        several = (data[name] for name in (kind + "s", kind, *ENTITY_LIST_FIELDS) if isinstance(data.get(name), list))
        found = [one] if one is not data else next(several, [data])
    return [each for each in found[:MAX_OF_RESULT] if isinstance(each, dict)] if isinstance(found, list) else []


def _id(kind: str, record: Json) -> str | None:
    last = kind.rpartition("_")[2]
    names = (f"{kind}_id", f"{last}_id", f"{last}Id", "id", "spec_id", "key", "uuid", "number")
    return next((found for name in names if (found := _text(record.get(name), memory.MAX_ID_CHARS))), None)


def name_in(kind: str, record: Json) -> str | None:
    """Returns the name of an entity of this type in its record; None without one."""
    values = (record.get(name) for name in (f"{kind}_name", *NAME_FIELDS))
    return next(
        (memory.as_line(value, memory.MAX_NAME_CHARS) for value in values if isinstance(value, str) and value.strip()),
        None,
    )


def _file(path: str, action: str) -> memory.ThingNote:
    return noted(FILE_KIND, path, file_name(path), action)


def _text(value: Any, most: int) -> str | None:
    """Returns a text, or an integer as one; None where it cannot name anything."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 10**most else ""
    return value if isinstance(value, str) and memory.is_line(value, most) else None


def _json(text: str) -> Any:
    if len(text) > MAX_READ_RESULT_CHARS or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return jsons.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_fault(data: Any, text: str) -> bool:
    if isinstance(data, dict):
        return any(data.get(name) for name in FAULT_FIELDS) or any(data.get(name) is False for name in SUCCESS)
    return data is None and text.lstrip()[:5].lower() == "error"


log = logs.get_logger("gateway.pipeline.features.entity_memory")


class EntityReader(Protocol):
    """Reads what is remembered (guarantee §11.14).
    Raises StorageUnavailable: the storage cannot be reached, or not within its timeout."""

    async def place_of(self, tenant: str, user: str) -> str:
        """Returns the place that holds the entities of a tenant's user."""

    async def recall(
        self, tenant: str, places: list[str], phrases: memory.SearchPhrases
    ) -> tuple[memory.MemoryEntity, ...]:
        """Reads the entities of these places that one of the phrases names: of each phrase the latest few."""


class EntityMemory:
    """Recalls and notes the entities that conversations and users deal with."""

    def __init__(self, reader: EntityReader) -> None:
        self._reader = reader

    def build(self) -> RequestFeature:
        return RequestFeature(needs="memory", on_history=self._recalled, on_bill=self._noted)

    async def _recalled(self, prepared: PreparedRequest) -> PreparedRequest:
        history = prepared.history
        if history is None or not prepared.request.remembers:
            return prepared
        return replace(prepared, history=await with_things(prepared.request, history, self._reader))

    async def _noted(self, settled: SettledRequest) -> SettledRequest:
        """Adds the turn's notes, if the request has its memory on: entities that it names, that tools reported, and
        that were recalled for it; of a failed turn only the last, with which its block goes."""
        prepared, failed = settled.attempted.prepared, settled.attempted.outcome.status == "failed"
        wanted_memory, history, built = prepared.request.memory, prepared.history, prepared.context
        if wanted_memory is None or history is None or built is None or prepared.conversation_id is None:
            return settled
        places, user = [prepared.conversation_id], prepared.request.end_user
        shown = {each["memory_id"] for each in built.utilization.things or ()}
        recalled = tuple(thing for thing in history.things if thing.memory_id in shown)
        notes: tuple[memory.ThingNote, ...] = ()
        if not failed:
            if wanted_memory.scope == "user" and user is not None:
                places.append(await self._reader.place_of(prepared.request.caller.tenant, user))
            is_large = len(history.messages) >= conversation.INLINE_MESSAGES
            from_tools = await offload_if(is_large, things_of_steps, history.messages, history.stored)
            notes = (*from_tools, *wanted_memory.notes)
        if not (notes or recalled):
            return settled
        return replace(settled, things=memory.NotedThings(notes, tuple(places), wanted_memory.days, recalled))


async def with_things(request: ChatRequest, history: ConversationHistory, things: EntityReader) -> ConversationHistory:
    """Adds to the conversation the remembered entities that its question names, if the request has its memory on. Takes
    one indexed read, if any; without the storage nothing is recalled, and the answer still comes."""
    question = _asked(request, history) if request.remembers else ""
    if not question.strip():
        return history
    phrases = phrases_of(question)
    try:
        places = await _places(request, history, things)
        if not (places and phrases.whole):
            return history
        found = await things.recall(request.caller.tenant, places, phrases)
    except errors.StorageUnavailable as error:
        log.warning("memory_unavailable", reason=error.message)
        return history
    return replace(history, things=named_by(question, found)) if found else history


async def _places(request: ChatRequest, history: ConversationHistory, things: EntityReader) -> list[str]:
    """Returns the places that the request may read: its own conversation, unless that may be another client's with the
    same messages (guarantee §3.2), and its user's if the scope is `user`."""
    known = history.conversation_id or request.conversation.conversation_id
    places = [known] if known is not None and not (history.created or history.unproven) else []
    memory, user = request.memory, request.end_user
    if memory is not None and memory.scope == "user" and user is not None:
        places.append(await things.place_of(request.caller.tenant, user))
    return places


def _asked(request: ChatRequest, history: ConversationHistory) -> str:
    """Returns the question of the current turn, if its block is built now: the user's message, if it is new. An agent
    that reads sections may receive another agent's message."""
    if not history.messages:
        return ""
    current = history.messages[collect.current_turn(history)]
    if request.is_worded:
        current = next((each for each in reversed(history.messages) if _is_said(each)), current)
    elif current.role != "user" or current.message_id is not None:
        return ""
    return tool_steps.text_of(current.content)


def _is_said(message: ConversationMessage) -> bool:
    """Returns whether a message has text and is not a tool step."""
    is_step = message.role in tool_steps.RESULT_ROLES or tool_steps.calls_of(message.body)
    return not is_step and bool(tool_steps.text_of(message.content).strip())
