"""Field types of request bodies; a body that breaks them is a 400 that names the field (guarantee §7)."""

import re
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)

from gateway.core import errors
from gateway.core.frozen_records import record

T = TypeVar("T")
MAX_SESSION_CHARS = 256
MESSAGE_FIELD_PATH = re.compile(r"messages\[\d+\](?:\.\w+|\[\d+\])*")
Naming = Callable[[str], str]
"""Maps the path of a field of the inner form to the API's own name."""
RULES = {
    "greater_than": "be greater than {gt}",
    "greater_than_equal": "be at least {ge}",
    "less_than": "be less than {lt}",
    "less_than_equal": "be at most {le}",
    "string_too_short": "have at least {min_length} character(s)",
    "string_too_long": "have at most {max_length} characters",
    "string_pattern_mismatch": "match {pattern}",
    "bytes_too_short": "have at least {min_length} byte(s)",
    "bytes_too_long": "have at most {max_length} bytes",
    "too_short": "have at least {min_length} member(s)",
    "too_long": "have at most {max_length} members",
    "finite_number": "be a finite number",
    "int_from_float": "be a whole number",
    "int_parsing_size": "be a smaller number",
    "dataclass_type": "be an object",
    "model_type": "be an object",
    "model_attributes_type": "be an object",
    "dict_type": "be an object",
    "bool_type": "be true or false",
}
"""Rules by pydantic's types of errors: its own texts name Python's types and the gateway's classes."""
RULES_BY_ENDING = (
    (("bool_parsing",), "be true or false"),
    (("string_type", "string_unicode", "string_sub_type", "bytes_type"), "be a string"),
    (("int_type", "int_parsing"), "be a whole number"),
    (("float_type", "float_parsing", "decimal_type", "decimal_parsing", "number"), "be a number"),
    (("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), "be a time as ISO 8601 writes it"),
    (("list_type", "tuple_type", "set_type", "iterable_type"), "be a list"),
)


class RequestFields(BaseModel):
    """An object of a request. Types are not converted, and fields that are not declared are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, hide_input_in_errors=True)


@record
class BrokenRule:
    """A rule that the value at `place` breaks; `rule` follows the name of the field: `must be a number`."""

    place: tuple[int | str, ...]
    rule: str


IS_REQUIRED = "is required"


def read(adapter: TypeAdapter[T], value: Any, where: str = "", *, required: str = errors.REQUIRED) -> T:
    """Validates the value as the adapter's type.
    `where`: path of the value in the request; `required`: code of the error for a field that is absent or null and must
    not be.
    Raises InvalidRequest: `param` names the first field that breaks its rule, at or below `where`."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        broken = _broken(adapter, error.errors(include_url=False)[0])
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in broken.place)
    param = (where + path).lstrip(".")
    if broken.rule == IS_REQUIRED:
        raise errors.InvalidRequest(f"{param} {IS_REQUIRED}.", param=param, code=required)
    raise errors.invalid(param, broken.rule)


def broken_rules(adapter: TypeAdapter[Any], value: Any) -> list[BrokenRule]:
    """Lists every rule that a value breaks, to be corrected together; the first is the one that `read` names."""
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        return [_broken(adapter, each) for each in error.errors(include_url=False)]
    return []


def _broken(adapter: TypeAdapter[Any], problem: Any) -> BrokenRule:
    place = problem["loc"]
    if problem["type"] == "extra_forbidden":
        known = _known_fields(adapter, list(place[:-1]))
        return BrokenRule(place, f"is not known; known are {', '.join(known)}" if known else "is not known")
    if problem["type"] == "missing" or (problem["input"] is None and place and problem["type"] != "value_error"):
        return BrokenRule(place, IS_REQUIRED)
    return BrokenRule(place, f"must {rule_of(problem)}")


def rule_of(problem: Any) -> str:
    """Renders one of pydantic's errors as a rule for the value, to follow the word `must`."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "value_error":
        return str(context["error"]).removeprefix("must ")
    if kind in ("literal_error", "enum"):
        return f"be {'' if ' or ' in context['expected'] else 'exactly '}{context['expected']}"
    if kind in RULES:
        return RULES[kind].format(**context)
    for ending, rule in RULES_BY_ENDING:
        if kind.endswith(ending):
            return rule
    return "be of another type"


def _known_fields(adapter: TypeAdapter[Any], place: list[int | str]) -> list[str]:
    """Returns the fields of the object at that place of what the adapter reads."""
    kinds: list[Any] = [adapter._type]
    for step in place:
        members = [kind for kind in _flat(kinds) if hasattr(kind, "model_fields")]
        if isinstance(step, str):
            kinds = [member.model_fields[step].annotation for member in members if step in member.model_fields]
        else:
            kinds = [argument for kind in _flat(kinds) for argument in get_args(kind)]
    return [name for kind in _flat(kinds) for name in getattr(kind, "model_fields", ())]


def _flat(kinds: list[Any]) -> list[Any]:
    """Yields the types themselves, out of unions and annotations."""
    found = []
    for kind in kinds:
        inner = get_args(kind) if get_origin(kind) in (Annotated, Union, UnionType) else ()
        found += _flat(list(inner)) if inner else [kind]
    return found


def renamed(error: errors.GatewayError, external_field_name: Naming) -> None:
    """Rewrites an error of the inner form, in place, to use the client's name of the field. An upstream's own error
    stays as it is; an error that something was not found names no field in its text. A field whose name is an English
    word is renamed at the beginning of a text only: further on it is that word."""
    if isinstance(error, errors.UpstreamOverflow):
        error.param = external_field_name("messages")
    if not isinstance(error, errors.InvalidRequest) or error.param is None or error.is_as_sent:
        return
    before, error.param = error.param, external_field_name(error.param)
    if isinstance(error, errors.NotFound):
        return
    error.message = MESSAGE_FIELD_PATH.sub(lambda found: external_field_name(found[0]), error.message)
    if not MESSAGE_FIELD_PATH.match(before):
        begins = r"\A" if before.isalpha() else r"(?<![\w.])"
        error.message = re.sub(
            rf"{begins}{re.escape(before)}(?!\w)", lambda _: external_field_name(before), error.message
        )
    error.args = (error.message,)


def is_session_name(value: Any) -> bool:
    """Returns whether a session can have that name."""
    return isinstance(value, str) and 0 < len(value) <= MAX_SESSION_CHARS and value.isprintable()


def keeps_metadata_rules(value: Any) -> bool:
    """Returns whether it is metadata by OpenAI's rules: up to 16 strings of up to 512 characters, keys of up to 64."""
    if not isinstance(value, dict) or len(value) > 16:
        return False
    return all(isinstance(v, str) and len(k) <= 64 and len(v) <= 512 for k, v in value.items())


def _session(value: str) -> str:
    if not is_session_name(value):
        raise ValueError(f"be 1 to {MAX_SESSION_CHARS} printable characters")
    return value


def _metadata(value: Any) -> Any:
    if not keeps_metadata_rules(value):
        raise ValueError("be an object of up to 16 strings of up to 512 characters, keys of up to 64")
    return value


SessionName = Annotated[str, AfterValidator(_session)]
METADATA = {
    "type": "object",
    "description": "Up to 16 strings of up to 512 characters; keys of up to 64.",
    "additionalProperties": {"type": "string", "maxLength": 512},
    "maxProperties": 16,
}
Metadata = Annotated[dict[str, str], BeforeValidator(_metadata), WithJsonSchema(METADATA)]
