"""How a conversation begins, as lists of conversations show it and search for it (guarantee §13.1)."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.core.types.chat import texts_of
from gateway.storage.stored_keys import storable

LENGTH = 200
"""Characters that are kept of it."""
NO_QUESTION: dict[str, str | None] = {"question": None, "question_folded": None}
FORGOTTEN: dict[str, str | None] = {"question": "", "question_folded": ""}
"""Of a conversation whose question was deleted: nothing takes its place."""


def question_columns(bodies: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
    """The columns of a conversation that begins with these messages: the beginning of the first user message with a
    text, in one line, and the same for a search that ignores case; None where there is no such message."""
    for body in bodies:
        if body.get("role") == "user" and (text := _begins(body.get("content"))):
            return {"question": text, "question_folded": folded(text)[:LENGTH]}
    return NO_QUESTION


def folded(text: str) -> str:
    """A text as questions are searched: in one line, whatever its case."""
    return storable(" ".join(text.split())).casefold()


def _begins(content: Any) -> str:
    found = next((text for text in texts_of(content, "text") if text.strip()), "")
    return storable(" ".join(found.lstrip()[: 4 * LENGTH].split())[:LENGTH])
