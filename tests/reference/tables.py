"""Tables of pages, each made from what the code declares. Each returns Markdown without a line break at its end."""

import argparse
import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from gateway.api.mcp import endpoint as endpoint  # these two have errors of their own
from gateway.api.ui.pages import login as login
from gateway.core.config import model_list, setting_sections
from gateway.core.config.litellm_table import SETTING_RULES
from gateway.core.config.loading import CLASSIC_NAMES, environment_names
from gateway.core.config.settings import Settings
from gateway.core.errors import CODES, GatewayError
from gateway.operations import command_arguments

MIGRATIONS = Path(__file__).parents[2] / "migrations/versions"
EVERYWHERE = {"-h", "--config"}
SIZES = ((30, "GiB"), (20, "MiB"), (10, "KiB"))
ENDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
KINDS = {
    "boolean": "`true`, `false`",
    "array": "list",
    "object": "mapping",
    "string": "text",
    "number": "number",
    "integer": "whole number",
}


def settings(section: str) -> str:
    """The settings of a section: names in the file and the environment, defaults, what they may be, meanings."""
    names: dict[str, list[str]] = {}
    for name, (part, key) in environment_names().items():
        names.setdefault(f"{part}.{key}", []).append(f"`{name}`")
    rows = (
        (f"`{section}.{name}`", ", ".join(names[f"{section}.{name}"]), default, values, meaning)
        for name, default, values, meaning in _fields(Settings.model_fields[section].annotation)
    )
    return _table(("setting", "environment", "default", "values", "meaning"), rows)


def fields(name: str) -> str:
    """The fields of a class that stands within a section or in `model_list`."""
    model = getattr(setting_sections, name, None) or getattr(model_list, name)
    rows = ((f"`{field}`", default, values, meaning) for field, default, values, meaning in _fields(model))
    return _table(("field", "default", "values", "meaning"), rows)


def classic_names() -> str:
    """Names that services like the classic API read from the environment."""
    rows = (
        (f"`{each.name}`", f"`{'.'.join(each.setting)}`" if each.setting else "nothing", each.text)
        for each in CLASSIC_NAMES
    )
    return _table(("environment", "sets", "how"), rows)


def litellm(*words: str) -> str:
    """LiteLLM's settings of one group, and what stands for them here."""
    rows = (
        (", ".join(f"`{name}`" for name in rule.names.split()), rule.advice)
        for rule in SETTING_RULES
        if rule.group == " ".join(words)
    )
    return _table(("setting", "here"), rows)


def errors() -> str:
    """Every code of an error: its HTTP status, when it comes and what to do."""
    told: dict[str, tuple[str, str, str]] = {
        code: ("404" if code == "attachment_not_found" else "400", *texts) for code, texts in CODES.items()
    }
    for kind in _errors(GatewayError):
        if kind.code and "code" in vars(kind):
            told[kind.code] = (str(kind.status), _when(kind), kind.advice)
    rows = ((f"`{code}`", status, when, advice) for code, (status, when, advice) in sorted(told.items()))
    return _table(("code", "status", "when", "do"), rows)


def _errors(kind: type[GatewayError]) -> Iterator[type[GatewayError]]:
    for below in kind.__subclasses__():
        yield below
        yield from _errors(below)


def _when(kind: type[GatewayError]) -> str:
    """The docstring without its paragraphs behind the first, and without the rules that it names."""
    text = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return re.sub(r" \((?:guarantee )?§[^)]*\)", "", text)


def migrations() -> str:
    """The schemas that a storage goes through, the latest first."""
    rows = []
    for page in sorted(MIGRATIONS.glob("0*.py"), reverse=True):
        module = ast.parse(page.read_text())
        brings, _, beside = (ast.get_docstring(module) or "").partition("\n\n")
        built = any("INDEXES" in ast.unparse(each).split(" = ")[0] for each in module.body)
        rows.append((page.name[:4], " ".join(brings.split()), "yes" if built else "", " ".join(beside.split())))
    return _table(("schema", "brings", "large indexes", "versions before"), rows)


def commands() -> str:
    """Every command in one line."""
    rows = ((f"`{usage}`", text) for usage, text, _ in _commands(command_arguments.parser(), "gateway"))
    return _table(("command", "does"), rows)


def options() -> str:
    """The arguments of every command, under a heading each."""
    found = []
    for usage, _, parser in _commands(command_arguments.parser(), "gateway"):
        rows = [_argument(parser, each) for each in parser._actions if not {*each.option_strings} & EVERYWHERE]
        if rows:
            found += [f"### `{usage}`", _table(("argument", "meaning"), rows)]
    return "\n\n".join(["", *found, ""])


def _commands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                below = action.choices[choice.dest]
                deeper = list(_commands(below, f"{name} {choice.dest}"))
                yield from deeper or [(f"{name} {choice.dest}", choice.help or "", below)]


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    value = "" if action.nargs == 0 else f" {action.metavar or '|'.join(action.choices or ())}"
    names = ", ".join(f"`{name}{value}`" for name in action.option_strings) or f"`{value.strip()}`"
    names += " (required)" if action.required and action.option_strings else ""
    return _plain(names), _plain(parser._get_formatter()._expand_help(action))


def _plain(text: str) -> str:
    """A text that is no Markdown, for a cell of a table."""
    return text.replace("|", "\\|").replace("~", "\\~")


def _fields(model: Any) -> Iterator[tuple[str, str, str, str]]:
    for name, field in model.model_fields.items():
        if not field.exclude:
            assert field.description, f"{model.__name__}.{name} says nothing of itself"
            yield name, _default(name, field), _values(field), field.description


def _default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value is None or value in ((), {}) or isinstance(value, BaseModel):
        return "–"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    sizes = (f" ({value >> bits} {unit})" for bits, unit in SIZES if "bytes" in name and not value % (1 << bits))
    return f"`{value}`{next(sizes, '')}"


def _values(field: FieldInfo) -> str:
    """What a setting may be: words, a range, or else its kind."""
    annotated: Any = field.annotation
    for each in field.metadata:
        annotated = Annotated[annotated, each]
    schema = TypeAdapter(annotated).json_schema()
    while "anyOf" in schema:
        schema = next(each for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{each if isinstance(each, str) else str(each).lower()}`" for each in schema["enum"])
    if {"minimum", "maximum"} <= {*schema}:
        return f"{schema['minimum']} to {schema['maximum']}"
    ends = [f"{words} {schema[name]}" for name, words in ENDS.items() if name in schema]
    return ", ".join(ends) or KINDS[schema.get("type", "object")]


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])
