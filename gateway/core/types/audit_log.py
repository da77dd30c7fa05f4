"""What administrators made, changed, saw and deleted, as the trail tells it (guarantee §12.12)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gateway.core.frozen_records import record

if TYPE_CHECKING:
    from gateway.core.types.chat import RequestCaller

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
"""What the trail tells of."""
LOCAL = "local"
"""Who looks at the page where there are no keys: somebody on this machine."""
ANONYMOUS_ACTOR = "anonymous"
"""Who asks the API without any key."""
UNKNOWN_ACTOR = "unknown"
"""Who gave a key that is not known, or whose id cannot be told."""
FIRST_BEFORE = bytes(32)
"""What stands for the digest before the first event."""


@record
class AuditActor:
    """Who acts. `key_id`: of the key; None: a command, and `name` is then that of the user of its system."""

    key_id: str | None
    name: str | None = None


def actor_of(caller: "RequestCaller") -> AuditActor:
    """Who makes a request: a key by its id, with its name or else its owner."""
    if caller.key is not None:
        return AuditActor(caller.key_id or UNKNOWN_ACTOR, caller.key.name or caller.key.owner)
    return AuditActor(caller.key_id or ANONYMOUS_ACTOR)


@record
class NewEvent:
    """What is to be recorded. `tenant`: whose data it is about; None: of all, or of none. `object_id`: what it is done
    to. `details`: ids and figures, never content or secrets. `ok` is False for what was refused."""

    by: AuditActor
    action: str
    object_id: str | None = None
    tenant: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    ok: bool = True


@dataclass(frozen=True, slots=True)
class TrailEvent:
    """An event of the trail. `details` is JSON, as it is stored; `digest` is keyed, over the event and
    `previous_digest`, that of the event before."""

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
    """Events that were asked for, in the order of their numbers: behind `after`, from `since` on and before `until`;
    with `newest_first` the other way round."""

    after: int | None = None
    limit: int = 20
    action: str | None = None
    actor: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    newest_first: bool = False


@record
class ChainAnchor:
    """An event as an earlier export or check had it."""

    number: int
    digest: bytes


@record
class ChainVerdict:
    """What a check of the chain found: so many events that hold, the last of them, and the number of the first that
    does not, with the reason; None: all hold."""

    events: int
    last: ChainAnchor | None
    broken: int | None = None
    reason: str | None = None
