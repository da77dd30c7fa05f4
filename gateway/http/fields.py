"""Reads fields of a document that anybody may have written; each that breaks its rule is named (contract §7)."""

from datetime import UTC, datetime
from typing import Any

from gateway.errors import InvalidRequest
from gateway.http.messages import invalid

MOST_NUMBER = 2**31 - 1


class Fields:
    """An object at a place of the document, such as `messages[3]`; the document itself is at no place."""

    def __init__(self, value: Any, where: str = "") -> None:
        if not isinstance(value, dict):
            raise invalid(where, "must be an object")
        self._value = value
        self._prefix = f"{where}." if where else ""

    def invalid(self, name: str, rule: str) -> InvalidRequest:
        """A 400 that names the field and its rule."""
        return invalid(self._prefix + name, rule)

    def __call__(self, name: str) -> Any:
        """The field as it is, None if it is not there."""
        return self._value.get(name)

    def text(self, name: str, most: int | None = None) -> str:
        """A string that a database takes."""
        value = self._value.get(name)
        if not isinstance(value, str) or "\x00" in value:
            raise self.invalid(name, "must be a string")
        if most is not None and not 1 <= len(value) <= most:
            raise self.invalid(name, f"must be a string of 1 to {most} characters")
        return value

    def maybe_text(self, name: str, most: int | None = None) -> str | None:
        """The same, or null."""
        return None if self._value.get(name) is None else self.text(name, most)

    def one_of(self, name: str, known: tuple[str, ...]) -> str:
        """One of these words."""
        value = self._value.get(name)
        if not isinstance(value, str) or value not in known:
            raise self.invalid(name, f"must be one of {', '.join(known)}")
        return value

    def number(self, name: str, below: int = MOST_NUMBER + 1) -> int:
        """A whole number from 0 on."""
        value = self._value.get(name)
        if type(value) is not int or not 0 <= value < below:
            raise self.invalid(name, f"must be a whole number from 0 to {below - 1}" if below else "names nothing")
        return value

    def maybe_number(self, name: str, below: int = MOST_NUMBER + 1) -> int | None:
        """The same, or null."""
        return None if self._value.get(name) is None else self.number(name, below)

    def maybe_flag(self, name: str) -> bool | None:
        """True, false or null."""
        value = self._value.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.invalid(name, "must be true, false or null")
        return value

    def time(self, name: str) -> datetime:
        """A point in time, in UTC."""
        value = self._value.get(name)
        try:
            found = datetime.fromisoformat(value if isinstance(value, str) else "")
            if found.tzinfo is not None:
                return found.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        raise self.invalid(name, "must be a time with its zone, such as 2026-01-31T12:00:00.000000Z")

    def members(self, name: str, most: int | None = None) -> list[Any]:
        """The members of a list, so many at most."""
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self.invalid(name, "must be a list")
        if most is not None and len(value) > most:
            raise self.invalid(name, f"may have {most} members")
        return value

    def objects(self, name: str, most: int | None = None) -> list["Fields"]:
        """The objects of a list."""
        return [Fields(value, f"{self._prefix}{name}[{i}]") for i, value in enumerate(self.members(name, most))]

    def where(self, name: str) -> str:
        """The place of a field."""
        return self._prefix + name
