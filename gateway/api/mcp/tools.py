"""The tools: checks their arguments, asks the past and the memory of one tenant, words what was found."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gateway.api.fields import invalid, missing, read
from gateway.api.mcp import results as words
from gateway.api.mcp.arguments import READ, REMEMBER, SEARCH, TOOLS, ReadArguments, RememberArguments, SearchArguments
from gateway.api.mcp.asker import McpCaller
from gateway.api.mcp.past.conversation_search import PastSearch
from gateway.api.request.validation import CONVERSATION_ID
from gateway.core.errors import ConversationNotFound, NotFound, Unauthorized
from gateway.core.fair_queue import SharedRoom
from gateway.core.ids import content_digest
from gateway.core.types.entities import DISCUSSED, MAX_NAME_CHARS, ThingNote, is_line
from gateway.pipeline.features.entity_memory import noted
from gateway.storage.entities.entity_store import EntityStore

NOTE = "note"
"""The type of what is remembered as a text."""
NOTE_ID_CHARS = 16
CALLS_AT_ONCE = 4
"""Calls of tools that are worked on at once; those of tenants take turns (§12.16)."""


@dataclass(frozen=True, slots=True)
class McpResult:
    """What a tool gives."""

    text: str
    content: dict[str, Any]


class McpTools:
    """The three tools over what is stored. None asks a model or costs anything."""

    def __init__(self, past: PastSearch, things: EntityStore, days: float | None) -> None:
        """`days`: how long things are remembered (`memory.things_days`)."""
        self._past = past
        self._things = things
        self._days = days
        self._turns = SharedRoom(CALLS_AT_ONCE)
        run: dict[str, Callable[[McpCaller, Any], Awaitable[McpResult]]] = {
            SEARCH.name: self._search,
            READ.name: self._read,
            REMEMBER.name: self._remember,
        }
        self._run = {facts.name: (facts.arguments, run[facts.name]) for facts in TOOLS}

    def __contains__(self, name: str) -> bool:
        return name in self._run

    async def call(self, asker: McpCaller, name: str, arguments: dict[str, Any]) -> McpResult:
        """
        Raises:
            GatewayError: an argument breaks its rule, what it names is not there, or the storage is not.
        """
        adapter, run = self._run[name]
        given = read(adapter, words.plain(arguments))
        async with self._turns.turn(asker.tenant):
            result = await run(asker, given)
        return McpResult(words.plain(result.text), words.plain(result.content))

    async def _search(self, asker: McpCaller, given: SearchArguments) -> McpResult:
        if not asker.is_one:
            raise Unauthorized("An API key is required to search: send 'Authorization: Bearer KEY'.")
        if not given.query.strip():
            raise invalid("query", "must have a word")
        found = await self._past.search(asker.tenant, given.query, given.limit)
        return McpResult(words.found_as_text(found), words.found_as_object(found))

    async def _read(self, asker: McpCaller, given: ReadArguments) -> McpResult:
        name, place = given.artifact_id, given.conversation_id
        if place is None and not asker.is_one:
            raise invalid("conversation_id", "is required without an API key")
        if given.question is not None and given.offset:
            raise invalid("offset", "is for readings without a question")
        if "\x00" in name or (place is not None and not CONVERSATION_ID.match(place)):
            where = f" in {place}" if place is not None else ""  # in the words of one that is only unknown
            raise NotFound(f"No artifact {name}{where}.", param="artifact_id")
        found = await self._past.artifact(asker.tenant, name, place, given.question, given.offset)
        return McpResult(words.extract_as_text(found), words.extract_as_object(found))

    async def _remember(self, asker: McpCaller, given: RememberArguments) -> McpResult:
        place, user = given.conversation_id, given.user
        if place is None and user is None:
            raise missing("conversation_id or user")
        if place is not None and not CONVERSATION_ID.match(place):
            raise ConversationNotFound("No such conversation.", param="conversation_id")
        made = await self._things.note(asker.tenant, place, _notes(given), user, self._days)
        return McpResult(words.remembered_as_text(made), words.things_as_object(made))


def _notes(given: RememberArguments) -> tuple[ThingNote, ...]:
    """What is to be remembered.

    Raises:
        InvalidRequest: neither a text nor things, or both, or a text that is no line.
    """
    if given.text is None:
        if not given.things:
            raise missing("text or things")
        return tuple(each.as_note() for each in given.things)
    if given.things is not None:
        raise invalid("text", "must not be there beside things")
    if not is_line(given.text, MAX_NAME_CHARS):
        raise invalid("text", f"must be one line of 1 to {MAX_NAME_CHARS} characters, without control characters")
    return (noted(NOTE, f"{NOTE}_{content_digest(given.text)[:NOTE_ID_CHARS]}", given.text, DISCUSSED),)
