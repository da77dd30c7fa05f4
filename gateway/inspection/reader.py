"""Reads what is to be explained: a page of a conversation, a request by its id."""

from collections.abc import Sequence
from dataclasses import replace

from gateway import retrieval
from gateway.core import errors
from gateway.core.frozen_records import record
from gateway.core.tasks import offload_if
from gateway.core.types import conversation, past_turns, turn
from gateway.core.types.artifacts import Artifact
from gateway.inspection.explained_conversation import (
    ExplainedConversation,
    branch_of,
    explained_conversation,
    failed_behind,
    told_messages,
)
from gateway.inspection.explained_request import DELETED, NO_MESSAGES, NOT_STORED, RELAYED, RequestBehind, StoredRequest
from gateway.inspection.rebuilt_turns import in_turns, turns_of
from gateway.storage import LargeDocuments
from gateway.storage.conversations import PastReader

TURNS_PER_PAGE = 100
"""Turns of one page."""
MAX_BEFORE = 8
"""Earlier requests that are searched for the last one of the same model."""


@record
class TurnChoice:
    """Which turns of a branch: the last `limit`, those before or after the turn that begins with a message, or those
    around turn number `turn`, none if that does not exist. `with_words`: with the content of their messages."""

    before: str | None = None
    after: str | None = None
    turn: int | None = None
    limit: int = TURNS_PER_PAGE
    with_words: bool = False

    def of(self, turns: Sequence[past_turns.PastTurn]) -> range:
        """Returns the indexes of the chosen turns. Raises NotFound: no turn of the branch begins with that message."""
        count = len(turns)
        if self.turn is not None:
            if self.turn > count:
                return range(count, count)
            first = max(0, min(self.turn - 1 - self.limit // 2, count - self.limit))
            return range(first, min(count, first + self.limit))
        key = self.before or self.after
        if key is None:
            return range(max(0, count - self.limit), count)
        at = next((n for n, each in enumerate(turns) if each.messages[0].message.message_id == key), None)
        if at is None:
            raise errors.NotFound("No such turn.", param="before" if self.before else "after")
        if self.before:
            return range(max(0, at - self.limit), at)
        return range(at + 1, min(count, at + 1 + self.limit))


LAST_TURNS = TurnChoice()


class ExplanationReader:
    """Reads for the web UI and commands. `tenant`: whose rows may be seen; None: everybody's."""

    def __init__(self, past: PastReader, large: LargeDocuments) -> None:
        self._past = past
        self._large = large

    async def conversation(
        self, tenant: str | None, conversation_id: str, *, branch: str | None = None, choice: TurnChoice = LAST_TURNS
    ) -> ExplainedConversation:
        """Reads some turns of a branch and explains them.
        `branch`: the branch's last message; None, or a message of the current branch: that one.
        Raises ConversationNotFound: no visible conversation has that id; NotFound: the branch has no such turn;
        StorageUnavailable: the storage cannot be reached."""
        outline = await self._past.outline(tenant, conversation_id)
        is_long = len(outline.messages) >= conversation.INLINE_MESSAGES
        path, turns = await offload_if(is_long, _branch, outline, branch)
        chosen = choice.of(turns)
        shown, first = turns[chosen.start : chosen.stop], chosen.start + 1
        requests = [each.request_id for turn in shown for each in turn.requests]
        failed = failed_behind(outline, shown, first)
        requests += [each.request_id for some in failed.values() for each in some]
        said = [str(each.message.message_id) for turn in shown for each in turn.messages if each.message.role == "user"]
        names = {str(each.message.message_id) for turn in shown for each in told_messages(turn)}
        told = [each for each in outline.messages if each.message_id in names] if choice.with_words else []
        found = await self._past.page(outline, list(dict.fromkeys(requests)), said, told)
        return await offload_if(is_long, explained_conversation, outline, path, len(turns), shown, found, first)

    async def request(self, tenant: str | None, request_id: str) -> StoredRequest:
        """Reads a request by `req_…` or `chatcmpl-…`.
        Raises NotFound: no visible request has that id; StorageUnavailable: the storage cannot be reached."""
        completion, branch = await self._past.request(tenant, request_id)
        entry = completion.ledger
        stored = StoredRequest(completion)
        if branch is None:
            return replace(stored, reason=_why_nothing(entry))
        is_long = len(branch.messages) >= conversation.INLINE_MESSAGES
        path, turn, request, before = await offload_if(is_long, _found, branch, entry.request_id)
        if request is None:
            return replace(stored, reason=NO_MESSAGES)
        stored = replace(stored, path=path, request=request, number=turn)
        bills, named = await self._past.beside(entry, path, [each.request_id for each in before], _names(entry))
        attached = await self._with_texts(entry.tenant, path, request, named)
        behind = _behind(entry, before, bills)
        asked = [(request, entry), *([(behind[0], behind[1])] if behind is not None else [])]
        frames = await self._past.frames(path, [_answer(*each) for each in asked if each[0].answer is not None])
        if request.answer is None:
            return replace(stored, attached=tuple(attached))
        found = RequestBehind(*behind, frames[1]) if behind is not None else None
        return replace(stored, frame=frames[0], before=found, attached=tuple(attached))

    async def _with_texts(
        self,
        tenant: str,
        path: past_turns.ConversationPath,
        request: past_turns.PastRequest,
        attached: Sequence[Artifact],
    ) -> Sequence[Artifact]:
        """Returns the documents; the text of a large one is what the request's question needed of it at that time."""
        if not any(each.is_excerpt for each in attached):
            return attached

        said = (*path.messages[: request.before], *request.brought)
        question, recent = retrieval.question_in([each.message for each in said])
        return await retrieval.read_for(attached, self._large, tenant, question, recent)


def _why_nothing(entry: turn.LedgerEntry) -> str:
    """Returns why a request has no branch."""
    if entry.conversation_id is not None:
        return DELETED
    return RELAYED if entry.metadata.get("managed") is False else NOT_STORED


def _answer(request: past_turns.PastRequest, entry: turn.LedgerEntry) -> tuple[str, str, object]:
    answer = request.answer
    assert answer is not None
    return entry.window_model, str(answer.message.message_id), answer.committed_at


def _branch(
    outline: past_turns.ConversationOutline, last: str | None
) -> tuple[past_turns.ConversationPath, list[past_turns.PastTurn]]:
    path = branch_of(outline)
    if last is not None and all(each.message.message_id != last for each in path.messages):
        path = branch_of(outline, last)
    return path, turns_of(path)


def _found(
    path: past_turns.ConversationPath, request_id: str
) -> tuple[past_turns.ConversationPath, int | None, past_turns.PastRequest | None, list[past_turns.PastRequest]]:
    """Returns the branch with its turns whole, the number of the request's turn, the request, and the answered requests
    before it, the latest first, `MAX_BEFORE` at most."""
    path = in_turns(path)
    turns = turns_of(path)
    for past in reversed(turns):
        for request in reversed(past.requests):
            if request.request_id == request_id:
                before = [each for one in turns for each in one.answered if each.before < request.before]
                return path, past.number, request, before[-MAX_BEFORE:][::-1]
    return path, None, None, []


def _behind(
    entry: turn.LedgerEntry, before: Sequence[past_turns.PastRequest], bills: Sequence[turn.LedgerEntry]
) -> tuple[past_turns.PastRequest, turn.LedgerEntry] | None:
    """Returns the latest earlier request that asked the same model and was committed before this one arrived."""
    by_id = {bill.request_id: bill for bill in bills}
    for each in before:
        bill, answer = by_id.get(each.request_id), each.answer
        if bill is None or bill.model != entry.model or answer is None or answer.committed_at is None:
            continue
        if answer.committed_at <= entry.created_at:
            return each, bill
    return None


def _names(entry: turn.LedgerEntry) -> list[str]:
    """Returns the content ids of the artifacts that a bill names."""
    used = entry.metadata.get("context_utilization") or {}
    records = used.get("artifacts_processed") or ()
    return list(dict.fromkeys(str(each.get("artifact_id", "")).partition("-")[0] for each in records))
