"""The field `memory` and the memory API: entities to remember (guarantee §11.14), and how they are shown."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

from gateway.api.fields import RequestFields, read
from gateway.api.shapes import Unix, shown
from gateway.core import errors
from gateway.core.types import memory
from gateway.pipeline import entity_memory


def _line(most: int) -> AfterValidator:
    def check(text: str) -> str:
        if not memory.is_line(text, most):
            raise ValueError(f"be one line of 1 to {most} characters, without control characters")
        return text

    return AfterValidator(check)


# no {1,64} in the pattern: Rust's engine takes 30 ms to compile a bounded repeat of Unicode's \w
ThingType = Annotated[str, Field(max_length=memory.MAX_TYPE_CHARS, pattern=r"^[\w.:-]+$")]
ThingId = Annotated[str, _line(memory.MAX_ID_CHARS)]
ThingName = Annotated[str, _line(memory.MAX_NAME_CHARS)]
ThingAction = Annotated[str, _line(memory.MAX_ACTION_CHARS)]
Alias = Annotated[str, _line(memory.MAX_ALIAS_CHARS)]


class ThingField(RequestFields):
    """A thing to remember: a file, an order, a ticket, a workflow."""

    model_config = ConfigDict(extra="forbid")

    type: ThingType
    id: ThingId
    name: ThingName | None = None
    aliases: Annotated[list[Alias], Field(max_length=memory.MAX_GIVEN_ALIASES)] | None = None
    action: ThingAction | None = None

    def as_note(self) -> memory.ThingNote:
        """Returns the entity as a note with all of its aliases."""
        return entity_memory.noted(self.type, self.id, self.name, self.action or memory.DISCUSSED, self.aliases or ())


Scope = Literal["conversation", "user"]
Things = Annotated[list[ThingField], Field(max_length=memory.MAX_NOTES)]


class MemoryField(RequestFields):
    """`memory`: what to remember, and whose memory the question may be answered from. If present, memory is on."""

    model_config = ConfigDict(extra="forbid")

    remember: Things | None = None
    scope: Scope | None = None
    things: bool | None = None


class RememberedEntities(RequestFields):
    """A body of the memory's API with several things."""

    model_config = ConfigDict(extra="forbid")

    remember: Annotated[list[ThingField], Field(min_length=1, max_length=memory.MAX_NOTES)]
    scope: Scope | None = None
    user: Annotated[str, Field(min_length=1)] | None = None


FIELD, THING, SEVERAL = TypeAdapter(MemoryField), TypeAdapter(ThingField), TypeAdapter(RememberedEntities)
NO_FIELD = MemoryField()


def memory_of(
    value: Any, user: str | None, *, keeps: bool, default: bool, days: float | None
) -> memory.EntityMemoryOptions | None:
    """Parses the memory options of a chat request; None where it has no memory.
    `value`: its field `memory`; `user`: the user that it names; `keeps`: whether what its user and its model write is
    stored; `default`: whether entities are remembered where the request does not choose; `days`: for how long.
    Raises InvalidRequest: a field breaks a rule; `param` names it."""
    fields = read(FIELD, value, "memory") if value is not None else NO_FIELD
    is_on = (default if value is None else True) if fields.things is None else fields.things
    notes = tuple(each.as_note() for each in fields.remember or ())
    scope = fields.scope or "conversation"
    if notes and not keeps:
        raise errors.invalid("memory.remember", "needs a request that is stored: nothing is kept of this one")
    if notes and not is_on:
        raise errors.invalid("memory.things", "must not be false where something is to be remembered")
    _check_user(scope, user, "memory.scope")
    return memory.EntityMemoryOptions(notes, scope, days) if is_on else None


def things_in(body: dict[str, Any], own: str | None) -> tuple[tuple[memory.ThingNote, ...], str | None]:
    """Parses a body of the memory's API: one or several entities, and the user for whom they are noted, too.
    `own`: the user that the caller's token names, who counts in place of any other.
    Raises InvalidRequest: a field breaks a rule; `param` names it."""
    if "remember" not in body:
        return (read(THING, body).as_note(),), None
    fields = read(SEVERAL, body)
    user = own or fields.user
    _check_user(fields.scope or "conversation", user, "scope")
    return tuple(each.as_note() for each in fields.remember), user if fields.scope == "user" else None


class MemoryThingObject(TypedDict):
    """A thing that is remembered; `id` is that of the memory, `thing_id` its own."""

    id: str
    object: Literal["memory.thing"]
    type: str
    thing_id: str
    name: str
    aliases: list[str]
    action: Annotated[str, Field(description="What was done with it last.")]
    times: Annotated[int, Field(description="How often it was noted; 0: it was only shown.")]
    scope: Scope
    conversation_id: str | None
    created_at: Unix
    mentioned_at: Unix
    expires_at: Unix | None


def as_memory(thing: memory.MemoryEntity) -> MemoryThingObject:
    return shown(MemoryThingObject, thing, id=thing.memory_id, object="memory.thing")


def _check_user(scope: Scope, user: str | None, where: str) -> None:
    if scope == "user" and user is None:
        raise errors.invalid(where, "is for requests that name their user (user or safety_identifier)")
