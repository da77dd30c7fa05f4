"""What the codes of explanations mean, in words."""

from gateway.explain import artifacts, prefix, request
from gateway.history import past_turns

WORDS = {
    request.NOT_STORED: "its words were not kept: store: false, a dry run, or mode off without a conversation",
    request.RELAYED: "its words were not kept: it was relayed, and only its usage is metered",
    request.DELETED: "its conversation was deleted: the bill is left",
    request.NO_MESSAGES: "none of its messages is stored: they were deleted",
    request.FAILED: "it failed before an answer: what was forwarded is not stored",
    past_turns.NO_BILL: "there is no bill of it here: it came with an import",
    past_turns.NOT_COUNTED: "rebuilt, and not held against the bill: its context was not managed",
    past_turns.AGENT: "the sections that its agent was sent are not stored",
    past_turns.PROFILE: "rebuilt without its prompt profile, which is not stored",
    past_turns.DELETED: "rebuilt from what is left: items of the conversation were deleted since",
    past_turns.OTHERWISE: "rebuilt, but not as many messages as the bill says",
    prefix.SYSTEM_CHANGED: "the system messages are others",
    prefix.WINDOW_MOVED: "something left the window",
    prefix.MEMORY_CHANGED: "the memory message is another",
    prefix.REWORDED: "a message was forwarded in another form",
}
"""By code. A code that is not here is told as it is."""
OF_ORIGINALS = {
    artifacts.EXCERPTS: "excerpts of old turns: there is no one original",
    artifacts.SUMMARY_OF_TURNS: "a summary of old turns: there is no one original",
    artifacts.NOT_READ: "a file, which is not read again for this",
    artifacts.GONE: "its original is not stored any more",
}
"""Why the original of an artifact is not there."""


def said(code: str | None) -> str:
    """What a code means."""
    return WORDS.get(code or "", code or "")


def why_gone(code: str) -> str:
    """Why an artifact's original is not there."""
    return OF_ORIGINALS.get(code, code)
