"""What a conversation keeps beyond its window: pinned messages, summaries of old turns (guarantee §11.12, §11.13), and
the things that it is about: any with a type and an id (guarantee §11.14 to §11.17)."""

import hmac
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Literal

from gateway.core import jsons
from gateway.core.frozen_records import record

EXTRACTS, SUMMARY = "extracts", "summary"
"""The `context.memory` without summaries, and the one in which they come before passages that may be of use."""


@record
class SummarySegment:
    """A summary of an unbroken run of old turns. It is made once and never changed; later turns get segments of their
    own, so that the segments of a branch, oldest first, cover it from its beginning without a gap.

    `first` and `last` are the sequence numbers of the first and the last message that it covers; `last_message_id`
    tells the branch: it holds where that message is on the path. `first_turn` and `last_turn` are the numbers of the
    turns, from 1, and `size_chars` the characters of what it was made of; 0 where that is not known.
    """

    segment_id: str
    first: int
    last: int
    last_message_id: str
    text: str
    first_turn: int = 0
    last_turn: int = 0
    size_chars: int = 0


@record
class OldMessage:
    """A stored message that no summary covers, without its body; `weight`: bytes that it takes in a window at least."""

    message_id: str
    number: int
    role: str
    weight: int


@record
class UncoveredPath:
    """The end of a path that no summary covers, oldest message first, up to an answer. `after` is the last message that
    one covers, `turns_before` how many turns are covered. `forgotten_at` is when an item of the conversation was last
    deleted: what is deleted later must not be told by a summary of it."""

    messages: tuple[OldMessage, ...]
    after: str | None = None
    turns_before: int = 0
    forgotten_at: datetime | None = None


@record
class NewSegment:
    """A segment to be stored, made of the beginning of `uncovered`. `prompt_version`: by which words."""

    segment: SummarySegment
    uncovered: UncoveredPath
    prompt_version: int


@record
class PinnedMessage:
    """A pinned message, as the memory message may show it.

    Attributes:
        body: the message as it was sent.
        speaker: its role, with the name of who said it if there is one.
        message_id: its stored id; None of a new message.
        index: its index in `WindowInputs.messages`; None where it can only stand in the memory message.
        tool, arguments: of the call that a tool's result answers; "" for others.
        files: texts of its `file` parts that the model cannot take, by the number of the part.
    """

    body: dict[str, Any]
    speaker: str
    message_id: str | None = None
    index: int | None = None
    tool: str = ""
    arguments: str = ""
    files: Mapping[int, str] = field(default_factory=dict)

    def is_outside(self, first: int, left_out: frozenset[int]) -> bool:
        """Whether a window that begins with message `first`, without those `left_out`, does not hold it."""
        return self.index is None or self.index < first or self.index in left_out


@record
class MemoryMessage:
    """The one labelled message of guarantee §4 I2, as it is forwarded.

    `pinned` are the messages that it holds, by their ids; by their indexes in `WindowInputs.messages` where they have
    none yet. `segments` are the ids of its summaries.
    """

    body: dict[str, Any]
    pinned: tuple[str | int, ...] = ()
    segments: tuple[str, ...] = ()

    def named(self, names: Sequence[str | None]) -> "MemoryMessage":
        """The same where each message has an id: that at its index in `names`."""
        return replace(self, pinned=tuple(p if isinstance(p, str) else names[p] or "" for p in self.pinned))

    def renamed(self, ids: Mapping[Any, str]) -> "MemoryMessage":
        """The same where messages are stored under other ids."""
        return replace(self, pinned=tuple(ids.get(name, str(name)) for name in self.pinned))

    def as_json(self) -> dict[str, Any]:
        """As it stands in a frame."""
        return {"body": self.body, "pinned": list(self.pinned), "segments": list(self.segments)}


def memory_message_of(stored: Mapping[str, Any] | None) -> MemoryMessage | None:
    """The message of a frame's JSON; None where there is none. Raises KeyError: it is no such object."""
    if stored is None:
        return None
    return MemoryMessage(stored["body"], tuple(stored.get("pinned", ())), tuple(stored.get("segments", ())))


ThingScope = Literal["conversation", "user"]
CREATED, MODIFIED, DISCUSSED, DELETED = "created", "modified", "discussed", "deleted"
"""What was done with a thing, in the words of the rules; clients may use others."""
MAX_TYPE_CHARS, MAX_ID_CHARS, MAX_NAME_CHARS, MAX_ACTION_CHARS, MAX_ALIAS_CHARS = 64, 256, 256, 64, 128
MAX_GIVEN_ALIASES = 16
MAX_ALIASES = 32
"""Of one thing, given and made; of more the latest count."""
MAX_NOTES = 50
"""Things that one request may name."""
MAX_RECALLED = 5
"""Things that one request is reminded of."""
KEY_WORDS = 4
"""Words by which an alias is looked up: of a longer one its first."""
MAX_LOOKUP_KEY_CHARS = 200
NOT_IN_LINES = ("Cc", "Cs", "Zl", "Zp")
"""Categories of characters that end lines, steer terminals, or are no characters."""
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of what follows: a name with one could be shown as another."""


@record
class ThingNote:
    """A thing as a request or a rule names it. Without a `name` it keeps the one that it has, else its id is its name.
    `aliases` are words as `gateway.pipeline.features.entity_memory` gives them."""

    type: str
    thing_id: str
    name: str | None
    aliases: tuple[str, ...]
    action: str

    @property
    def key(self) -> tuple[str, str]:
        return self.type, self.thing_id


@record
class EntityMemoryOptions:
    """What a request says of its memory of things, defaults applied. `notes`: what it wants remembered. `days`: how
    long a thing is remembered after it was mentioned last; None: as long as what it belongs to."""

    notes: tuple[ThingNote, ...] = ()
    scope: ThingScope = "conversation"
    days: float | None = None


@record
class MemoryEntity:
    """A thing that is remembered, once for each conversation and once for each user that it was noted for. `times`: how
    often it was noted there; 0 where it was only shown."""

    memory_id: str
    scope: ThingScope
    conversation_id: str | None
    type: str
    thing_id: str
    name: str
    aliases: tuple[str, ...]
    action: str
    times: int
    created_at: datetime
    mentioned_at: datetime
    expires_at: datetime | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.type, self.thing_id

    def as_note(self) -> ThingNote:
        """The same for another place."""
        return ThingNote(self.type, self.thing_id, self.name, self.aliases, self.action)


@record
class NotedThings:
    """What a turn or a client wants remembered. `places` are those that it is noted for: the conversation's id, then of
    a user what `user_place` gives. `recalled`: what was shown of the user's things; a conversation that has not met one
    of them yet is about it from then on."""

    notes: tuple[ThingNote, ...]
    places: tuple[str, ...]
    days: float | None = None
    recalled: tuple[ThingNote, ...] = ()


@record
class ThingQuery:
    """A page of things, in the order in which they were noted first; `after` is the memory id of the last one seen.
    With `place`: those of a conversation or a user alone; with `type`: of that type alone."""

    limit: int = 20
    after: str | None = None
    newest_first: bool = True
    place: str | None = None
    type: str | None = None


@record
class SearchPhrases:
    """What is looked for: runs of words that aliases may equal, in searches by hand single words, too."""

    whole: tuple[str, ...]
    words: tuple[str, ...] = ()


def user_place(secret: bytes, tenant: str, user: str) -> str:
    """Where the things of a tenant's user belong: a keyed digest, so that the storage does not hold the name."""
    who = jsons.canonical([tenant, user])
    return "user_" + hmac.digest(secret, b"things\0" + who, "sha256").hex()[:48]


def is_line(text: str, most: int) -> bool:
    """Whether it is one line of 1 to `most` characters that are shown in the order in which they are written."""
    if not 0 < len(text) <= most or text.isspace():
        return False
    return text.isprintable() or not any(unicodedata.category(c) in NOT_IN_LINES or c in TURNING for c in text)


def as_line(text: str, most: int) -> str:
    kept = (" " if unicodedata.category(c) in NOT_IN_LINES else c for c in text[: 4 * most] if c not in TURNING)
    return " ".join("".join(kept).split())[:most].strip()


def lookup_key(alias: str) -> str:
    return " ".join(alias.split(" ", KEY_WORDS)[:KEY_WORDS])[:MAX_LOOKUP_KEY_CHARS]
