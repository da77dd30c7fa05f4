"""What a check looks at, and how it says that something is wrong."""

from dataclasses import dataclass, field
from typing import Any

from tests.properties.cases import Case

Json = dict[str, Any]
INSTRUCTIONS = ("system", "developer")
LEFT_OUT: Json = {}
"""Stands among the forms of a message for a request that did not forward it."""


class Broken(Exception):
    """An invariant does not hold; `name` is the section of the guarantees."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        self.name = name


def hold(name: str, condition: object, what: str) -> None:
    """Raises Broken: the condition does not hold."""
    if not condition:
        raise Broken(name, what)


@dataclass
class Seen:
    """One request: `originals` are all messages that it is about, as they were said, in their order; `forwarded` is
    what a model was sent, `figures` the bill's `context_utilization`. `standing` is what was forwarded before, in every
    form, for each of `originals`."""

    case: Case
    originals: list[Json]
    forwarded: list[Json]
    figures: Json
    indexes: list[int] = field(default_factory=list)
    """Which of `originals` each forwarded message is: `window.check` finds it out."""
    standing: dict[int, list[Json]] = field(default_factory=dict)
    memory: Json | None = None
    """The memory message, which is not among `forwarded`."""

    @property
    def sent(self) -> list[Json]:
        """All that was forwarded, in its order."""
        if self.memory is None:
            return self.forwarded
        system = sum(1 for i in self.indexes if i < min(self._said, default=0))
        return [*self.forwarded[:system], self.memory, *self.forwarded[system:]]

    @property
    def _said(self) -> list[int]:
        return [i for i in self.indexes if self.originals[i]["role"] not in INSTRUCTIONS]

    @property
    def records(self) -> list[Json]:
        records: list[Json] = self.figures["artifacts_processed"]
        return records

    @property
    def current(self) -> int:
        """The message that begins the current turn, as an index of `originals`; -1 without any."""
        return turn_begin(self.originals)


def turn_begins(messages: list[Json]) -> list[int]:
    """Indexes of the user messages that begin a turn: all but those in a tool loop."""
    said = [i for i, m in enumerate(messages) if m["role"] not in INSTRUCTIONS]
    found = []
    for at, index in enumerate(said):
        before = next((messages[i]["role"] for i in reversed(said[:at]) if messages[i]["role"] != "user"), None)
        if messages[index]["role"] == "user" and before != "tool":
            found.append(index)
    return found


def turn_begin(messages: list[Json]) -> int:
    """Index of the last of them; -1 without any."""
    return max(turn_begins(messages), default=-1)


def beside(messages: list[Json]) -> list[int]:
    """Indexes of what users said directly before the message that begins the current turn."""
    found: list[int] = []
    for index in range(turn_begin(messages) - 1, -1, -1):
        if messages[index]["role"] not in ("user", *INSTRUCTIONS):
            break
        found = [index, *found] if messages[index]["role"] == "user" else found
    return found


def amid(messages: list[Json]) -> list[int]:
    """Indexes of what was said in the tool loop under way."""
    current = turn_begin(messages)
    return [i for i, m in enumerate(messages) if m["role"] == "user" and i > current >= 0]


def text_of(content: Any) -> str:
    """The text of a content, without what is no text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(p.get("text", "")) for p in parts if p.get("type") == "text")
