"""What conversations are about: files, orders, tickets, workflows, any thing with a type and an id (guarantee
§11.14 to §11.17)."""

import hmac
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gateway.core import jsons

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
MAX_KEY_CHARS = 200
NOT_IN_LINES = ("Cc", "Cs", "Zl", "Zp")
"""Categories of characters that end lines, steer terminals, or are no characters."""
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of what follows: a name with one could be shown as another."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class EntityMemoryOptions:
    """What a request says of its memory of things, defaults applied. `notes`: what it wants remembered. `days`: how
    long a thing is remembered after it was mentioned last; None: as long as what it belongs to."""

    notes: tuple[ThingNote, ...] = ()
    scope: ThingScope = "conversation"
    days: float | None = None


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class NotedThings:
    """What a turn or a client wants remembered. `places` are those that it is noted for: the conversation's id, then of
    a user what `user_place` gives. `recalled`: what was shown of the user's things; a conversation that has not met one
    of them yet is about it from then on."""

    notes: tuple[ThingNote, ...]
    places: tuple[str, ...]
    days: float | None = None
    recalled: tuple[ThingNote, ...] = ()


@dataclass(frozen=True, slots=True)
class ThingQuery:
    """A page of things, in the order in which they were noted first; `after` is the memory id of the last one seen.
    With `place`: those of a conversation or a user alone; with `type`: of that type alone."""

    limit: int = 20
    after: str | None = None
    newest_first: bool = True
    place: str | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True)
class ThingPage:
    """What a query found, and whether there is more behind it."""

    found: tuple[MemoryEntity, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class SearchPhrases:
    """What is looked for: runs of words that aliases may equal, and where something is searched for by hand single
    words, too."""

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
    """As much of a text as `is_line` allows."""
    kept = (" " if unicodedata.category(c) in NOT_IN_LINES else c for c in text[: 4 * most] if c not in TURNING)
    return " ".join("".join(kept).split())[:most].strip()


def lookup_key(alias: str) -> str:
    """The words by which an alias is found."""
    return " ".join(alias.split(" ", KEY_WORDS)[:KEY_WORDS])[:MAX_KEY_CHARS]
