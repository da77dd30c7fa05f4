"""Which of them is asked for, and whether it is there."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from gateway.base.clock import SystemClock
from gateway.base.ids import COMPLETION, MESSAGE, RESPONSE, completion_of, new_id
from gateway.config.settings import Settings
from gateway.errors import ConversationNotFound, NotFound
from gateway.explain.as_json import conversation_json, request_json, turn_json
from gateway.explain.conversation import ExplainedConversation, ExplainedTurn
from gateway.explain.reader import PAGE, Explained
from gateway.explain.request import ExplainedRequest, explained_request
from gateway.models.report_lists import ConversationChoice, ListPart, RequestChoice
from gateway.operations.listed import request_json as line_json
from gateway.operations.reading import run_reading, tell_missing
from gateway.operations.screen import Screen, one_line
from gateway.operations.show.conversation import Decided, decided_in, write_bills, write_conversation, write_turn
from gateway.operations.show.request import write_request
from gateway.storage.conversations.outline import Outlines
from gateway.storage.database.engine import Transactions
from gateway.storage.large.documents import LargeDocuments
from gateway.storage.reports.conversations import list_conversations
from gateway.storage.reports.requests import list_requests, read_metadata

CONVERSATION, REQUEST = "conv_", ("req_", COMPLETION, RESPONSE, MESSAGE)
WHOLE_ID = len(new_id(CONVERSATION))
MOST_BILLS = 1000
"""Bills that are listed of a deleted conversation."""
Json = dict[str, Any]


def show(settings: Settings, options: argparse.Namespace, environ: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Returns 1 if there is no such thing, or the storage cannot be read.

    Raises:
        ValueError: the options do not go together, or with the id.
    """
    name = options.id
    if name.startswith(CONVERSATION):
        if (options.sent or options.why) and options.turn is None:
            raise ValueError("--sent and --why are of requests: say --turn N as well, or a request's id")
    elif not name.startswith(REQUEST):
        raise ValueError(f"{name!r} is no id: say conv_…, req_…, chatcmpl-…, resp_… or msg_…")
    elif options.turn is not None:
        raise ValueError("--turn is of a conversation: say conv_…")

    async def work(transactions: Transactions) -> int:
        shown = Show(settings, options, transactions, Screen(out, environ), err)
        try:
            return await (shown.conversation() if name.startswith(CONVERSATION) else shown.request())
        except (ConversationNotFound, NotFound) as error:
            err.write(f"{error.message}\n")
            return 1

    return run_reading(settings, work, err)


@dataclass(slots=True)
class Show:
    """One call of the command. Each method returns the exit status.

    Raises:
        ConversationNotFound, NotFound: from any method: there is none of that id to be seen.
        StorageUnavailable: from any method: the storage cannot be reached.
    """

    settings: Settings
    options: argparse.Namespace
    transactions: Transactions
    screen: Screen
    err: TextIO

    async def conversation(self) -> int:
        """A conversation, or one of its turns."""
        name = await self._named()
        turn = self.options.turn
        page = None if turn is None else (turn - 1) // PAGE + 1
        try:
            found = await self._explained.conversation(self.options.tenant, name, page=page)
        except ConversationNotFound:
            return await self._deleted(name)
        if turn is not None:
            return await self._turn(found)
        await tell_missing(self.transactions, self.err)
        decided = await self._decided(found.page)
        if self.options.json:
            turns = [{**turn_json(turn), **of._asdict()} for turn, of in zip(found.page, decided, strict=True)]
            self.screen.json({**conversation_json(found), "turns": turns})
        else:
            write_conversation(self.screen, found, decided)
        return 0

    async def request(self) -> int:
        """A request."""
        found = await self._request(self.options.id)
        if self.options.json:
            self.screen.json(self._request_json(found))
        else:
            write_request(self.screen, found, sent=self.options.sent, why=self.options.why)
        return 0

    @property
    def _explained(self) -> Explained:
        return Explained(Outlines(self.transactions), LargeDocuments(self.transactions, SystemClock()))

    async def _named(self) -> str:
        """The id, or the only one that begins so.

        Raises:
            ConversationNotFound: several begin so.
        """
        name: str = self.options.id
        if len(name) >= WHOLE_ID:
            return name
        part = ListPart(ConversationChoice(tenant=self.options.tenant, id=name), limit=2)
        found = await self.transactions.run(lambda connection: list_conversations(connection, part))
        if len(found.found) > 1:
            raise ConversationNotFound(f"Several conversations begin with {one_line(name)}: `gateway ls` lists them.")
        return found.found[0].id if found.found else name

    async def _deleted(self, name: str) -> int:
        """What is left of a conversation that is not stored: its bills."""
        part = ListPart(RequestChoice(tenant=self.options.tenant, conversation=name), limit=MOST_BILLS)
        found = await self.transactions.run(lambda connection: list_requests(connection, part))
        if not found.found:
            raise ConversationNotFound("No such conversation.", param="conversation_id")
        if self.options.json:
            bills = [line_json(line) for line in found.found]
            told = {"object": "conversation.deleted", "conversation": {"id": name}, "bills": bills}
            self.screen.json({**told, "has_more": found.older is not None})
        else:
            self.err.write("This conversation was deleted. Its bills are left:\n")
            write_bills(self.screen, found.found)
        return 0

    async def _turn(self, found: ExplainedConversation) -> int:
        number = self.options.turn
        turn = next((each for each in found.page if each.number == number), None)
        if turn is None:
            has = f"it has {found.turns}, counted from 1" if found.turns else "it has none"
            raise NotFound(f"No such turn in the current branch: {has}.")
        requests = [await self._request_or_none(name) for name in turn.request_ids]
        if self.options.json:
            listed = [
                self._request_json(each) if each is not None else {"request_id": name, "bill": None}
                for name, each in zip(turn.request_ids, requests, strict=True)
            ]
            self.screen.json({"object": "turn.explanation", **turn_json(turn), "requests": listed})
            return 0
        write_turn(self.screen, found, turn)
        for name, each in zip(turn.request_ids, requests, strict=True):
            self.screen.line()
            if each is None:
                self.screen.line(f"request {name}: no bill here: it came with an import and was paid elsewhere")
            else:
                write_request(self.screen, each, sent=self.options.sent, why=self.options.why)
        return 0

    async def _request(self, name: str) -> ExplainedRequest:
        stored = await self._explained.request(self.options.tenant, completion_of(name))
        return explained_request(stored, self.settings.context.document_min_chars)

    async def _request_or_none(self, name: str) -> ExplainedRequest | None:
        try:
            return await self._request(name)
        except NotFound:
            return None

    def _request_json(self, found: ExplainedRequest) -> Json:
        """All of it; with `--sent` what was forwarded stands in it word for word."""
        sent = {"sent": found.sent.messages} if self.options.sent else {}
        return {**request_json(found), **sent}

    async def _decided(self, turns: Sequence[ExplainedTurn]) -> list[Decided]:
        names = [name for turn in turns for name in turn.request_ids]
        read = await self.transactions.run(lambda connection: read_metadata(connection, names))
        by_id = dict(zip(names, read, strict=True))
        return [decided_in(by_id[name] for name in turn.request_ids) for turn in turns]
