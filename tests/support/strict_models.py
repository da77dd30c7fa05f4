"""Checks a body against a model of the official SDK: each field is there and of its type, and there is no other."""

from collections.abc import Mapping
from decimal import Decimal
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from openai import BaseModel
from pydantic import TypeAdapter


def check_strictly(kind: Any, value: Any, where: str = "$") -> None:
    """
    Raises:
        AssertionError: names the place where the body is not what the model says.
    """
    origin = get_origin(kind)
    if origin is Annotated:
        check_strictly(get_args(kind)[0], value, where)
    elif origin in (Union, UnionType):
        _check_union(get_args(kind), value, where)
    elif origin is list:
        assert isinstance(value, list), f"{where} is no list"
        for number, member in enumerate(value):
            check_strictly(get_args(kind)[0], member, f"{where}[{number}]")
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        assert isinstance(value, Mapping), f"{where} is no object"
        names = {field.alias or name: field for name, field in kind.model_fields.items()}
        assert set(value) == set(names), f"{where}: {sorted(set(value) ^ set(names))}"
        for name, field in names.items():
            check_strictly(field.annotation, value[name], f"{where}.{name}")
    else:
        is_exact = kind is float and isinstance(value, int | Decimal) and not isinstance(value, bool)
        TypeAdapter(kind).validate_python(float(value) if is_exact else value, strict=True)


def _check_union(kinds: tuple[Any, ...], value: Any, where: str) -> None:
    """The member whose `object` is the value's; else the one that is not None."""
    if value is None:
        assert NoneType in kinds, f"{where} may not be null"
        return
    members = [kind for kind in kinds if kind is not NoneType]
    if isinstance(value, Mapping) and "object" in value:
        members = [each for each in members if value["object"] in get_args(each.model_fields["object"].annotation)]
    assert len(members) == 1, f"{where}: which of {members}?"
    check_strictly(members[0], value, where)
