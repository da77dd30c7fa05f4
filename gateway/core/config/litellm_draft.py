"""What LiteLLM's settings say of our sections, before it is put beneath what the file itself says in them; how their
values are read, and what became of each (guarantee §9, §12.14)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from gateway.core.config.config_file import REFERENCE, ConfigurationError

MAX_LIMIT = 10**12
"""Beyond which a number is none that anybody means."""
NO_NUMBER = "is no number that could be taken over"


Group = Literal["kept", "replaced", "not supported"]
"""It means here what it means there; something else stands for it; it is ignored."""
GROUPS: tuple[Group, ...] = ("kept", "replaced", "not supported")


@dataclass(frozen=True, slots=True)
class SettingFate:
    """What becomes of a setting of somebody else's, in one line. `path` is where it stands: `section.name`; `origin`
    whose it is."""

    path: str
    group: Group
    text: str
    origin: str = "LiteLLM"


class UnreadableValue(ValueError):
    """A value of a setting that has none of the forms it may have. The message never repeats it."""


@dataclass(slots=True)
class LitellmDraft:
    """Sections of ours, and what they differ in from what was said.

    `spent` holds LiteLLM's settings of budgets by name, until all of them were read. `models` are the entries of
    `model_list`.
    """

    models: list[dict[str, Any]]
    routing: dict[str, Any] = field(default_factory=dict)
    upstream: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    spent: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of models that clients ask for, each once."""
        return list(dict.fromkeys(str(each.get("model_name")) for each in self.models))

    def differs(self, path: str, text: str) -> None:
        """Notes what a setting does not mean here."""
        self.warnings.append(f"{path}: {text}")

    def put_in(self, raw: dict[str, Any], origin: str) -> None:
        """Puts the sections beneath those of the file: what it says in ours counts.
        Raises ConfigurationError: a section of the file is no mapping."""
        for name, values in (("routing", self.routing), ("limits", self.limits), ("upstream", self.upstream)):
            own = raw.get(name) or {}
            if not isinstance(own, Mapping):
                raise ConfigurationError(f"{origin}: {name}: must be a mapping")
            if values:
                raw[name] = _beneath(dict(own), values, name, self.warnings)


def _beneath(own: dict[str, Any], values: Mapping[str, Any], path: str, warnings: list[str]) -> dict[str, Any]:
    merged = dict(own)
    for name, value in values.items():
        if name not in own:
            merged[name] = value
        elif isinstance(own[name], dict) and isinstance(value, dict):
            merged[name] = _beneath(own[name], value, f"{path}.{name}", warnings)
        elif own[name] != value:
            warnings.append(f"{path}.{name} is set in this file: it counts, not what LiteLLM's sections say of it")
    return merged


SettingReader = Callable[[LitellmDraft, str, Any], None]
"""Puts the value of a setting at a path into a draft; raises `UnreadableValue`."""


def whole(value: Any, least: int = 0) -> Any:
    """A whole number, or a reference to one that is not resolved yet.
    Raises UnreadableValue: it is none, or less than `least`."""
    found = number(value)
    if is_reference(found):
        return found
    if found != int(found) or found < least:
        raise UnreadableValue(NO_NUMBER)
    return int(found)


def number(value: Any) -> Any:
    """A number of 0 or more, or a reference to one that is not resolved yet. Raises UnreadableValue: it is none."""
    if is_reference(value):
        return value
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        raise UnreadableValue(NO_NUMBER) from None
    if isinstance(value, bool) or not found.is_finite() or not 0 <= found < MAX_LIMIT:
        raise UnreadableValue(NO_NUMBER)
    return int(found) if found == found.to_integral_value() else float(found)


def is_reference(value: Any) -> bool:
    """Whether a value stands in the environment or in a file, and was not looked up."""
    return isinstance(value, str) and value.startswith((REFERENCE, "file:///"))


def looked_up(value: Any) -> Any:
    """A value that has to be known to be taken over. Raises UnreadableValue: it stands in the environment."""
    if is_reference(value):
        raise UnreadableValue("stands in the environment: set what it stands for here by hand")
    return value


def mapping(value: Any) -> dict[str, Any]:
    """Raises UnreadableValue: it is no mapping."""
    if not isinstance(looked_up(value), dict):
        raise UnreadableValue("is no mapping")
    return {str(name): each for name, each in value.items()}


def unused(draft: LitellmDraft, path: str, names: Iterable[str]) -> None:
    """Notes the parts of a setting that nothing here stands for."""
    if found := ", ".join(names):
        draft.differs(path, f"{found} of it: nothing here stands for that")
