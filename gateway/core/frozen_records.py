"""Records: dataclasses that are quick to make: their classes, of which four hundred are loaded, and their objects."""

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[T]) -> type[T]:
    """Makes a dataclass whose objects have slots, equality and a hash, and which mypy treats as frozen.

    Nothing is enforced at run time: creating an object of `@dataclass(frozen=True)` takes seven times as long, as each
    field is set by a call. Creating such a class takes five times as long, too, as each method is compiled from text.
    """
    made = dataclass(slots=True, eq=False, repr=False)(kind)
    for method in _methods(fields(made)):  # type: ignore[arg-type]
        if method.__name__ not in kind.__dict__:
            setattr(made, method.__name__, method)
    return made


def _methods(all_fields: tuple[Field[Any], ...]) -> list[Callable[..., Any]]:
    """Makes the methods that a dataclass has beside its constructor."""
    names = [each.name for each in all_fields if each.compare]
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    def __repr__(self: Any) -> str:  # noqa: N807
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in all_fields if each.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    return [__eq__, __hash__, __repr__]
