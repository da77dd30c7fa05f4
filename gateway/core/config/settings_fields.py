"""What settings are made of: sections, words, prices, durations."""

import re
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def _exact_decimal(value: Any) -> Any:
    """A price as it is written: 2.5e-06 means exactly that, not the nearest double."""
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic turns ValueError into its report
    return Decimal(str(value)) if isinstance(value, float | int) else value


def words(annotation: Any) -> tuple[str, ...]:
    """The words that a setting may be, where they are enumerated."""
    if get_origin(annotation) is Literal:
        return tuple(word for word in get_args(annotation) if isinstance(word, str))
    return tuple(word for each in get_args(annotation) for word in words(each))


def _as_word(value: Any, allowed: tuple[str, ...]) -> Any:
    """The word that was written. YAML 1.1 reads some bare words as booleans, `off` among them; case does not matter."""
    if isinstance(value, bool):
        meant = [word for word in allowed if yaml.safe_load(word) is value]
        return meant[0] if len(meant) == 1 else value
    if isinstance(value, str) and value not in allowed:
        near = value.strip().lower()
        return near if near in allowed else value
    return value


SEGMENT = r"(?!\.{1,2}(?:/|$))(?:[\w.:~-]+|\*)"
RELAY_PATTERN = rf"(?:(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) +)?/?(?:v1/)?{SEGMENT}(?:/{SEGMENT})*"


def _relay_pattern(text: str) -> str:
    if not re.fullmatch(RELAY_PATTERN, text, re.ASCII):
        raise ValueError("must read 'path' or 'METHOD path', as in 'POST /v1/batches' or 'batches/*'")
    return text


ORIGIN = r"\*|https?://(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"


def _origin(text: str) -> str:
    if not re.fullmatch(ORIGIN, text, re.ASCII):
        raise ValueError("must read 'https://HOST', with a port where it has one and nothing behind, or '*'")
    return text.lower()


Origin = Annotated[str, AfterValidator(_origin)]
RelayPattern = Annotated[str, AfterValidator(_relay_pattern)]
ToolPattern = Annotated[str, Field(min_length=1, max_length=200)]
Price = Annotated[Decimal, BeforeValidator(_exact_decimal), Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]


class SettingsSection(BaseModel):
    """Frozen; a name that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _enumerated_are_words(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        allowed = {name: words(each.annotation) for name, each in cls.model_fields.items() if name in values}
        return {**values, **{name: _as_word(values[name], each) for name, each in allowed.items() if each}}


class UpstreamTimeouts(SettingsSection):
    """How long upstream may take, per model if set there."""

    connect: Seconds = Field(10.0, description="Seconds for a connection.")
    first_byte: Seconds = Field(600.0, description="Seconds until the answer begins.")
    idle: Seconds = Field(120.0, description="Seconds between two chunks of an answer.")


def _as_bool(value: Any) -> Any:
    """The environment says truth in letters."""
    return {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower(), value)


RecallMode = Annotated[Literal["auto", True, False], BeforeValidator(_as_bool)]
"""Whether a model has the tool `recall`; `auto`: once something is left out."""
