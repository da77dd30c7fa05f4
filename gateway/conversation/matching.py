"""Where a request continues its stored conversation (contract §3.1, §3.4). Pure: digests in, positions out."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.conversation.messages import is_tool_step
from gateway.models.conversation import ConversationMessage


@dataclass(frozen=True, slots=True)
class Continuation:
    """The request continues after `kept` messages of the stored path with the sent messages from `first_new` on."""

    kept: int
    first_new: int
    restored: int = 0


def continue_path(path: Sequence[ConversationMessage], sent: Sequence[ConversationMessage]) -> Continuation:
    """Without assistant messages `sent` is a delta, appended to the whole path; with them it is a resend, compared
    from the path's beginning, else as a run that ends at the head. The first difference branches."""
    if not any(message.role == "assistant" for message in sent):
        return Continuation(kept=len(path), first_new=0)
    from_start = _compare(path, sent, 0)
    if from_start.first_new:
        return from_start
    for start in range(1, len(path)):
        run = _compare(path, sent, start)
        if run.first_new and run.kept == len(path):
            return run
    return Continuation(kept=0, first_new=0)


def _compare(path: Sequence[ConversationMessage], sent: Sequence[ConversationMessage], start: int) -> Continuation:
    """Walks both sides. Whole tool steps that the client left out are passed over: they are restored."""
    at, index, restored = start, 0, 0
    while index < len(sent):
        if at < len(path) and path[at].digest == sent[index].digest:
            at, index = at + 1, index + 1
            continue
        beyond = _after_steps(path, at)
        if beyond > at and not is_tool_step(sent[index]) and _same(path, beyond, sent[index]):
            restored += sum(message.role == "tool" for message in path[at:beyond])
            at = beyond
            continue
        break
    return Continuation(kept=at, first_new=index, restored=restored)


def _after_steps(path: Sequence[ConversationMessage], at: int) -> int:
    """The index after the tool steps and empty partial answers that begin at `at`."""
    if at < len(path) and path[at].role == "tool":
        return at  # in the middle of a step: the client sent its call, so it must send its results
    while at < len(path) and (is_tool_step(path[at]) or path[at].status == "partial"):
        at += 1
    return at


def _same(path: Sequence[ConversationMessage], at: int, message: ConversationMessage) -> bool:
    return at < len(path) and path[at].digest == message.digest
