"""Values held against the schemas of `/openapi.json`."""

from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.support.answers import Json


def closed(value: Any) -> Any:
    if isinstance(value, list):
        return [closed(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: closed(each) for name, each in value.items()}
    if found.get("type") == "object" and isinstance(found.get("properties"), dict):
        found.setdefault("additionalProperties", False)
    return found


def check(described: Json, name: str, value: Any) -> None:
    """The value is what the schema of that name says."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
    found = Draft202012Validator(schema).iter_errors(value)
    problems = [f"{'.'.join(map(str, each.absolute_path))}: {each.message}" for each in found]
    assert not problems, f"{name}: {problems[:3]}"
