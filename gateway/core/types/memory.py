"""What a conversation retains beyond its window: pinned messages, summaries of old turns (guarantee §11.12, §11.13),
and the entities that it is about, called things: any with a type and an id (guarantee §11.14 to §11.17)."""

import hmac
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Literal

from gateway.core import jsons
from gateway.core.frozen_records import record

EXTRACTS, SUMMARY = "extracts", "summary"
"""The `context.memory` without summaries, and the one in which summaries have priority over relevant passages."""


@record
class SummarySegment:
    """A summary of an unbroken run of old turns. It never changes; later turns get segments of their own, so that the
    segments of a branch, oldest first, cover it from its beginning without a gap.

    `first` and `last` are the sequence numbers of the first and the last message that it covers; `last_message_id`
    identifies the branch: the segment is valid if that message is on the path. `first_turn` and `last_turn` are the
    numbers of the turns, from 1, and `size_chars` the characters of the summarized text; 0 if unknown.
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
    """A stored message that no summary covers, without its body; `weight`: bytes that it takes at least in a window."""

    message_id: str
    number: int
    role: str
    weight: int


@record
class UncoveredPath:
    """The end of a path that no summary covers, oldest message first, up to an answer. `after` is the last message that
    a summary covers, `turns_before` the number of turns covered. `forgotten_at` is when an item of the conversation was
    last deleted: a summary must not contain what is deleted later."""

    messages: tuple[OldMessage, ...]
    after: str | None = None
    turns_before: int = 0
    forgotten_at: datetime | None = None


@record
class NewSegment:
    """A segment to be stored, made from the beginning of `uncovered`. `prompt_version`: of the summarizer's prompt."""

    segment: SummarySegment
    uncovered: UncoveredPath
    prompt_version: int


@record
class PinnedMessage:
    """A pinned message, as the memory message may show it.

    Attributes:
        body: the message as it was sent.
        speaker: its role, with the speaker's name if there is one.
        message_id: its stored id; None for a new message.
        index: its index in `WindowInputs.messages`; None if it can only be shown in the memory message.
        tool, arguments: of the call that a tool result answers; "" for other messages.
        files: texts of its `file` parts that the model cannot read, by part number.
    """

    body: dict[str, Any]
    speaker: str
    message_id: str | None = None
    index: int | None = None
    tool: str = ""
    arguments: str = ""
    files: Mapping[int, str] = field(default_factory=dict)

    def is_outside(self, first: int, left_out: frozenset[int]) -> bool:
        """Returns whether the pinned message is missing from a window that begins with message `first`, without those
        `left_out`."""
        return self.index is None or self.index < first or self.index in left_out


@record
class MemoryMessage:
    """The one labelled message of guarantee §4 I2, as it is forwarded.

    `pinned` are the messages that it contains, by their ids, or by their indexes in `WindowInputs.messages` if they
    have none yet. `segments` are the ids of its summaries.
    """

    body: dict[str, Any]
    pinned: tuple[str | int, ...] = ()
    segments: tuple[str, ...] = ()

    def named(self, names: Sequence[str | None]) -> "MemoryMessage":
        """Returns the memory message with indexes of messages replaced by ids: `names` holds the id at each index."""
        return replace(self, pinned=tuple(p if isinstance(p, str) else names[p] or "" for p in self.pinned))

    def renamed(self, ids: Mapping[Any, str]) -> "MemoryMessage":
        """Returns the memory message with the ids replaced, for messages stored under other ids."""
        return replace(self, pinned=tuple(ids.get(name, str(name)) for name in self.pinned))

    def as_json(self) -> dict[str, Any]:
        """Serializes the memory message for a frame."""
        return {"body": self.body, "pinned": list(self.pinned), "segments": list(self.segments)}


def memory_message_of(stored: Mapping[str, Any] | None) -> MemoryMessage | None:
    """Parses the memory message of a frame's JSON; None for None. Raises KeyError: it is no memory message."""
    if stored is None:
        return None
    return MemoryMessage(stored["body"], tuple(stored.get("pinned", ())), tuple(stored.get("segments", ())))


ThingScope = Literal["conversation", "user"]
CREATED, MODIFIED, DISCUSSED, DELETED = "created", "modified", "discussed", "deleted"
"""What was done with a thing, by the names of the rules; clients may use others."""
MAX_TYPE_CHARS, MAX_ID_CHARS, MAX_NAME_CHARS, MAX_ACTION_CHARS, MAX_ALIAS_CHARS = 64, 256, 256, 64, 128
MAX_GIVEN_ALIASES = 16
MAX_ALIASES = 32
"""Most aliases of one thing, given and derived; the latest count."""
MAX_NOTES = 50
"""Most things that one request may name."""
MAX_RECALLED = 5
"""Most remembered things shown in one request."""
KEY_WORDS = 4
"""An alias is looked up by at most this many of its first words."""
MAX_LOOKUP_KEY_CHARS = 200
NOT_IN_LINES = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories that end lines, control terminals, or are no characters."""
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of the text after them: a name with one could look like another name."""


@record
class ThingNote:
    """A thing as a request or a rule names it. Without a `name` a thing keeps the name that it has, or else is named by
    its id. `aliases` are words as `gateway.pipeline.features.entity_memory` returns them."""

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
    """A request's options for its memory of things, defaults applied. `notes`: the things to remember. `days`: how long
    a thing is remembered after its last mention; None: as long as its conversation or user."""

    notes: tuple[ThingNote, ...] = ()
    scope: ThingScope = "conversation"
    days: float | None = None


@record
class MemoryEntity:
    """A remembered thing, once for each conversation and once for each user for which it was noted. `times`: how often
    it was noted there; 0 if it was only shown."""

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
        """Makes a note of the thing, for another place."""
        return ThingNote(self.type, self.thing_id, self.name, self.aliases, self.action)


@record
class NotedThings:
    """Things that a turn or a client wants remembered. `places` are those for which they are noted: the conversation's
    id, then for a user the result of `user_place`. `recalled`: the things that were shown; the conversation is about
    each of them from then on, if it was not before."""

    notes: tuple[ThingNote, ...]
    places: tuple[str, ...]
    days: float | None = None
    recalled: tuple[MemoryEntity, ...] = ()


@record
class ThingQuery:
    """Selects a page of things in the order of their first notes; `after` is the memory id of the last one seen.
    `place`: only those of one conversation or user; `type`: only those of that type; `own`: of users' places only
    this."""

    limit: int = 20
    after: str | None = None
    newest_first: bool = True
    place: str | None = None
    type: str | None = None
    own: str | None = None


@record
class SearchPhrases:
    """Search phrases: runs of words that aliases may equal, and single words in a person's search."""

    whole: tuple[str, ...]
    words: tuple[str, ...] = ()


def user_place(secret: bytes, tenant: str, user: str) -> str:
    """Returns the place of a user's things: a keyed digest, so that the storage does not hold the name."""
    who = jsons.canonical([tenant, user])
    return "user_" + hmac.digest(secret, b"things\0" + who, "sha256").hex()[:48]


def is_line(text: str, most: int) -> bool:
    """Returns whether a text is one line of 1 to `most` characters, without characters that change its direction."""
    if not 0 < len(text) <= most or text.isspace():
        return False
    return text.isprintable() or not any(unicodedata.category(c) in NOT_IN_LINES or c in TURNING for c in text)


def as_line(text: str, most: int) -> str:
    kept = (" " if unicodedata.category(c) in NOT_IN_LINES else c for c in text[: 4 * most] if c not in TURNING)
    return " ".join("".join(kept).split())[:most].strip()


def lookup_key(alias: str) -> str:
    return " ".join(alias.split(" ", KEY_WORDS)[:KEY_WORDS])[:MAX_LOOKUP_KEY_CHARS]
