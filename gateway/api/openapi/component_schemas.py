"""Makes schemas of the types that endpoints declare for their requests and answers (pydantic's JSON Schema)."""

import re
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gateway.api.request.chat_shapes import ADDED_TO_BILLS
from gateway.api.shapes import Json, shape
from gateway.billing import metadata
from gateway.core.types import bill
from gateway.inspection import settings_in_force

REF = "#/components/schemas/{model}"
SUFFIX = re.compile(r"(?<=\w)(?:Object|Field)$")
NAMES = {
    "ContextUtilizationMetadata": "ContextUtilization",
    "ContextPlanningUsage": "PlanningUsage",
    "ContextPlanningCost": "PlanningCost",
    "CostMetadata": "Cost",
    "UsageMetadata": "Tokens",
    "ArtifactUsageRecord": "ArtifactUsage",
    "ModelsField": "ContextModels",
    "ThingField": "ThingToRemember",
    "RememberedEntities": "ThingsToRemember",
    "ArtifactPlan": "Plan",
    "ProcessingStrategy": "Strategy",
    "ReplayField": "ReplayRequest",
    "SpendBudget": "KeyBudget",
    "RateLimits": "KeyLimits",
    "ContextDefaults": "KeyContext",
}
"""Names of components that differ from those of their types without `SUFFIX`."""
BOUNDS = {"ge": "minimum", "le": "maximum"}
"""The names that pydantic gives the bounds of decimals."""
BILLS = ("ResponseMetadata", "ContextUtilization", "ArtifactUsage", "PlanningUsage", "PlanningCost", "Cost", "Tokens")
KNOWN_LATER = {
    "ResponseMetadata": ("usage", "cost", "context_utilization"),
    "ContextUtilization": ("artifacts_processed",),
}
"""Fields that the first chunk of a stream lacks. Where they are present they are not null."""


class _OurSchemas(GenerateJsonSchema):
    """Makes decimals JSON numbers, and leaves open shapes open."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return {"type": "number"}

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        found = super().typed_dict_schema(schema)
        return {**found, "additionalProperties": True} if getattr(schema.get("cls"), "is_open", False) else found


class ComponentSchemas:
    """The schemas of all types that are registered with it."""

    def __init__(self) -> None:
        self._kinds: list[Any] = []
        self._schemas: list[Json] = []

    def of(self, kind: Any) -> Json:
        """Registers a type; returns its schema, which stays empty until `made` fills it."""
        self._kinds.append(kind)
        self._schemas.append({})
        return self._schemas[-1]

    def made(self) -> Json:
        """Fills all schemas; returns those that they refer to, by name."""
        added = [
            (name, field, self.of(kind)) for name, fields in ADDED_TO_BILLS.items() for field, kind in fields.items()
        ]
        everything = shape("Everything", "", {str(number): kind for number, kind in enumerate(self._kinds)})
        found = TypeAdapter(everything).json_schema(ref_template=REF, schema_generator=_OurSchemas)
        components = found["$defs"]
        names = {name: _name(name, schema) for name, schema in components.items()}
        for schema, made in zip(self._schemas, found["properties"].values(), strict=True):
            schema.update(_renamed(made, names))
        told = {names[name]: _renamed(schema, names) for name, schema in components.items()}
        _amend(told)
        for name, field, schema in added:
            told[name]["properties"][field] = schema
        return told


def _name(name: str, schema: Json) -> str:
    """Returns the name of the component for a type, by pydantic's name of it."""
    if "Deleted_" in name:
        what = schema["properties"]["object"]["const"].removesuffix(".deleted")
        return "Deleted" + ("MemoryThing" if what == "memory.thing" else what.rpartition(".")[2].capitalize())
    if name.startswith("ListObject_"):
        return f"{_name(name.removeprefix('ListObject_').removesuffix('_'), schema)}s"
    return NAMES.get(name) or SUFFIX.sub("", name)


def _amend(told: dict[str, Json]) -> None:
    """Adds what types cannot express: which fields of a bill are always present, and that a key's field may be null."""
    for name in bill.NOT_ON_THE_BILL:
        del told["ArtifactUsage"]["properties"][name]
    for name in BILLS:
        fields, later = told[name]["properties"], KNOWN_LATER.get(name, ())
        told[name]["required"] = [
            n for n in fields if n not in (*metadata.FIELDS_ONLY_WHERE_THEY_SAY_SOMETHING, *later)
        ]
        fields |= {each: fields[each]["anyOf"][0] for each in later if "anyOf" in fields[each]}
    told["ClassicMessage"]["additionalProperties"] = True
    said = told["KeyFields"]  # the tenant is that of the key that asks, where none is named
    del said["required"]
    nullable = {name: {"anyOf": [each, {"type": "null"}]} for name, each in said["properties"].items()}
    said["properties"] = {n: each if "anyOf" in each else nullable[n] for n, each in said["properties"].items()}


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """A schema with its references renamed, without pydantic's titles, and with JSON Schema's names of bounds."""
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: each for name, each in value.items() if name != "title" or not isinstance(each, str)}
    found = {BOUNDS.get(name, name): _renamed(each, names) for name, each in kept.items()}
    if "$ref" in found:
        found["$ref"] = REF.format(model=names[found["$ref"].rpartition("/")[2]])
    if isinstance(text := found.get("description"), str):
        found["description"] = settings_in_force.LINK.sub(r"\1", text)
    return found
