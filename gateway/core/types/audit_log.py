"""The audit trail: what administrators created, changed, viewed and deleted (guarantee §12.12)."""

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gateway.core.frozen_records import record

if TYPE_CHECKING:
    from gateway.core.types.chat import RequestCaller
    from gateway.core.types.keys import KeyPolicy

ACTIONS = frozenset(
    (
        *("key.created", "key.updated", "key.rotated", "key.revoked"),
        *("ui.login", "ui.logout"),
        *("overview.seen", "requests.seen", "conversations.seen", "conversation.seen"),
        *("request.seen", "request.text_seen", "request.replayed", "costs.seen"),
        *("keys.seen", "key.seen", "files.seen", "file.seen", "models.seen", "configuration.seen"),
        *("organization.seen", "conversation.exported", "conversation.imported", "trail.exported"),
        *("conversation.deleted", "item.deleted", "attachment.deleted", "completion.deleted", "memory.deleted"),
        *("conversation.emptied", "file.deleted"),
        *("conversations.purged", "user.purged", "storage.migrated", "storage.encrypted"),
    )
)
"""Actions that the trail records."""
LOCAL = "local"
"""The actor in the web UI where no keys exist: somebody on this machine."""
ANONYMOUS_ACTOR = "anonymous"
"""The actor of an API request without a key."""
UNKNOWN_ACTOR = "unknown"
"""The actor with an unknown key, or one whose id cannot be determined."""
FIRST_BEFORE = bytes(32)
"""`previous_digest` of the first event."""


@record
class AuditActor:
    """Who acts. `key_id` None: a command, and `name` is then the operating system's user."""

    key_id: str | None
    name: str | None = None


def actor_of(caller: "RequestCaller") -> AuditActor:
    """Returns the actor of a request: the id of its key, with the key's name or else its owner."""
    return actor_of_key(caller.key) if caller.key is not None else AuditActor(caller.key_id or ANONYMOUS_ACTOR)


def actor_of_key(key: "KeyPolicy") -> AuditActor:
    """Returns the holder of a key as an actor: the key's id, with its name or else its owner."""
    return AuditActor(key.key_id or UNKNOWN_ACTOR, key.name or key.owner)


@record
class NewEvent:
    """An event to be recorded. `tenant`: the owner of the data; None: all tenants, or none. `object_id`: the object
    acted on. `details`: ids and figures, never content or secrets. `ok` is False for a refused action."""

    by: AuditActor
    action: str
    object_id: str | None = None
    tenant: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    ok: bool = True


@record
class TrailEvent:
    """An event of the trail. `details` is JSON as stored; `digest` is keyed, over the event and the digest of the event
    before (`previous_digest`)."""

    number: int
    at: datetime
    actor: str | None
    actor_name: str | None
    tenant: str | None
    action: str
    object_id: str | None
    ok: bool
    details: str
    previous_digest: bytes
    digest: bytes

    @property
    def time(self) -> str:
        """UTC, to the microsecond: exact, as the digest is over it."""
        return self.at.astimezone(UTC).isoformat(timespec="microseconds")


@record
class TrailQuery:
    """Selects events in the order of their numbers: beyond number `after`, from `since` on and before `until`; with
    `newest_first` in descending order, and below `after`."""

    after: int | None = None
    limit: int = 20
    action: str | None = None
    actor: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    newest_first: bool = False


@record
class ChainAnchor:
    """An event as an earlier export or check recorded it."""

    number: int
    digest: bytes


@record
class ChainVerdict:
    """The result of a check of the chain: the number of valid events, the last of them, and the number of the first
    invalid one, with the reason; None: all are valid."""

    events: int
    last: ChainAnchor | None
    broken: int | None = None
    reason: str | None = None
