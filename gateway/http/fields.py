"""Field types of request bodies; a body that breaks them is a 400 that names the field (guarantee §7)."""

import re
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from gateway.errors import InvalidRequest

T = TypeVar("T")
REQUIRED = "missing_required_parameter"
MAX_SESSION_CHARS = 256
OBJECTS = ("model_type", "dict_type", "model_attributes_type")
"""pydantic's types of an error where an object was expected: its words name classes of ours."""
SUBJECT = re.compile(r"^(?:[A-Z]\w* should|Value error,) ")
"""What stands before the rule in pydantic's messages: "String should have at most…", "Value error, be one of…"."""


class Fields(BaseModel):
    """An object of a request. Types are not converted, and fields that are not declared are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, hide_input_in_errors=True)


def invalid(param: str, rule: str) -> InvalidRequest:
    """A 400 that names the field and its rule."""
    return InvalidRequest(f"{param} {rule}.", param=param, code="invalid_value")


def missing(param: str) -> InvalidRequest:
    """A 400 that names the field that is not there."""
    return InvalidRequest(f"{param} is required.", param=param, code=REQUIRED)


def read(adapter: TypeAdapter[T], value: Any, where: str = "", *, required: str = REQUIRED) -> T:
    """The value as the adapter's type.

    Args:
        where: path of the value in the request.
        required: code of the error for a field that is absent or null and must not be.

    Raises:
        InvalidRequest: names the first field that breaks its rule, at or below `where`.
    """
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"])
    param = (where + path).lstrip(".")
    if problem["type"] == "extra_forbidden":
        raise invalid(param, "is not known")
    if problem["type"] in OBJECTS:
        raise invalid(param, "must be an object")
    if problem["type"] == "missing" or (problem["input"] is None and path and problem["type"] != "value_error"):
        raise InvalidRequest(f"{param} is required.", param=param, code=required)
    raise invalid(param, SUBJECT.sub("must ", problem["msg"], count=1))


def is_session_name(value: Any) -> bool:
    """Whether a session can have that name."""
    return isinstance(value, str) and 0 < len(value) <= MAX_SESSION_CHARS and value.isprintable()


def keeps_metadata_rules(value: Any) -> bool:
    """Whether it is metadata as OpenAI takes it: up to 16 strings of up to 512 characters, keys of up to 64."""
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
Metadata = Annotated[dict[str, str], BeforeValidator(_metadata)]
