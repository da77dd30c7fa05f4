"""Shapes that answers share, and how a record becomes one. `/openapi.json` is built from the types of answers."""

from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from functools import reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

from pydantic import Field, WithJsonSchema
from typing_extensions import TypeAliasType, TypedDict

T = TypeVar("T")
Json = dict[str, Any]
Unix = Annotated[int, Field(description="Unix seconds.")]
Usd = Annotated[Decimal | None, Field(description="USD; null where a price is not known.")]
IsoTime = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Binary = Annotated[str, WithJsonSchema({"type": "string", "format": "binary"})]


def one_of(values: Iterable[str | None]) -> WithJsonSchema:
    """Annotates a text that is one of these values."""
    return WithJsonSchema({"enum": list(values)})


def shape(name: str, about: str, fields: dict[str, Any], *, is_open: bool = False) -> Any:
    """Makes the type of an object. `fields`: types by names, several separated by spaces, a `?` behind an optional one.
    `is_open`: see `open_ended`."""
    kinds = {each: kind for names, kind in fields.items() for each in names.split()}
    make: Any = TypedDict
    made = make(name, {n.rstrip("?"): NotRequired[k] if n.endswith("?") else k for n, k in kinds.items()})
    made.__doc__ = about
    return open_ended(made) if is_open else made


def many(kind: Any) -> Any:
    """Makes the type of a list whose members are of the type `kind`."""
    return GenericAlias(list, (kind,))


def either(name: str, *kinds: Any, about: str | None = None) -> Any:
    """Makes a named type that is one of several shapes."""
    return TypeAliasType(name, Annotated[reduce(or_, kinds), Field(description=about)])


def open_ended(kind: T) -> T:
    """Marks a shape that may have further fields."""
    vars_of: Any = kind
    vars_of.is_open = True
    return kind


def said(kind: Any, text: str, **more: Any) -> Any:
    """Annotates a type with a description."""
    return Annotated[kind, Field(description=text, **more)]


class ListObject(TypedDict, Generic[T]):
    """A page; the next one is `after=` its `last_id`."""

    object: Literal["list"]
    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(TypedDict, Generic[T]):
    """It is gone."""

    id: str
    object: T
    deleted: Literal[True]


class NamedConversation(TypedDict):
    """A conversation by its id."""

    id: str


class AgentName(TypedDict):
    """Who answered."""

    id: str
    type: str


def unix(time: datetime) -> int:
    return int(time.timestamp())


def shown(shape: Callable[..., T], record: object, time: Callable[[datetime], Any] = unix, **said: Any) -> T:
    """Returns a record in the shape of an answer: each of its fields from `said`, else from the record's attribute of
    that name. An optional field that is None is left out.
    `time`: how times are rendered."""
    kind: Any = shape
    found: Json = {}
    for name in kind.__annotations__:
        value = said[name] if name in said else getattr(record, name)
        if value is not None or name in kind.__required_keys__:
            value = time(value) if isinstance(value, datetime) else value
            found[name] = list(value) if isinstance(value, tuple) else value
    return shape(**found)


ErrorDetails = shape(
    "ErrorDetails",
    "What went wrong; `param` names the field.",
    {"message type": str, "param code": str | None}
    | {"upstream?": said(Any, "The upstream's own words, where they are not in OpenAI's shape.")},
)
Error = shape("Error", "OpenAI's error shape.", {"error": ErrorDetails})
