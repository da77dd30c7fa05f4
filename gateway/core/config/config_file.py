"""Reads `config.yaml`, the files that it includes, and the environment variables to which it refers."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ENVIRONMENT_REFERENCE = "os.environ/"
"""LiteLLM's prefix of a reference to the environment."""
MAX_INCLUDED = 50
MAX_REPEATED_VALUES = 100_000
"""Values that the aliases of a file may repeat."""


class ConfigurationError(Exception):
    """A configuration that cannot be used; the message names the file, the path and the nearest valid name."""


def read_file(path: str, places: dict[str, str] | None = None, warnings: list[str] | None = None) -> dict[str, Any]:
    """Reads the sections of a file and of the files that it includes: lists are appended, other sections replaced, as
    in LiteLLM.
    `places`: receives the place, `FILE:LINE`, of each `section`, `section.key` and member `section[0]`; `warnings`:
    receives what is lost because a mapping has a key twice.
    Raises ConfigurationError: a file is missing or is no YAML mapping."""
    waiting = [Path(path)]
    sections: dict[str, Any] = {}
    places = {} if places is None else places
    for _ in range(MAX_INCLUDED):
        if not waiting:
            return sections
        current = waiting.pop(0)
        found, lines, repeated = _mapping(current)
        if warnings is not None:
            warnings += repeated
        included = found.pop("include", None) or []
        if not isinstance(included, list) or not all(isinstance(name, str) for name in included):
            raise ConfigurationError(f"{current}: include: must be a list of files")
        waiting += [current.parent / name for name in included]
        for name, value in found.items():
            listed = sections.get(name)
            before = listed if isinstance(listed, list) and isinstance(value, list) else []
            sections[name] = [*before, *value] if before else value
            if not before:
                for place in [each for each in places if _begins(each, name)]:
                    del places[place]
            for step, line in lines.get(name, {}).items():
                member = f"[{step + len(before)}]" if isinstance(step, int) else f".{step}" if step else ""
                places[f"{name}{member}"] = f"{current}:{line}"
    raise ConfigurationError(f"{path}: include: more than {MAX_INCLUDED} files, or files that include each other")


def _begins(place: str, name: str) -> bool:
    return place == name or place.startswith((f"{name}.", f"{name}["))


Lines = dict[str, dict[str | int, int]]
"""The lines of a section's members, by section; under "" its own."""


def _mapping(path: Path) -> tuple[dict[str, Any], Lines, list[str]]:
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        if node is not None:
            _check_aliases(node, path)
        lines, repeated = _lines(node), [f"{path}: {each}" for each in _repeated(node, set())]
        data = None if node is None else loader.construct_document(node)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8: {error.reason}") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: not YAML: {fault(error)}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: nested too deeply") from None
    if data is None:
        return {}, {}, []
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path}: must be a mapping of sections")
    # an empty section sets nothing
    return {str(name): value for name, value in data.items() if value is not None}, lines, repeated


def _check_aliases(node: yaml.Node, path: Path) -> None:
    """Raises ConfigurationError: an alias stands inside what it names, or the aliases repeat too many values: a few
    lines, each with several aliases of the line before it, would keep all that reads the settings busy."""
    sizes: dict[int, float] = {}
    size = _size(node, sizes)
    if math.isinf(size):
        raise ConfigurationError(f"{path}: an alias stands inside what it names")
    if size - len(sizes) > MAX_REPEATED_VALUES:
        raise ConfigurationError(f"{path}: its aliases repeat more than {MAX_REPEATED_VALUES:,} values")


def _size(node: yaml.Node, sizes: dict[int, float]) -> float:
    """Counts the values of a node, those that an alias repeats each time; infinite if it holds itself. `sizes`: of the
    nodes that are known already, by `id`."""
    if id(node) not in sizes:
        sizes[id(node)] = math.inf
        values = node.value if isinstance(node, yaml.CollectionNode) else ()
        each_value = itertools.chain(*values) if isinstance(node, yaml.MappingNode) else values
        sizes[id(node)] = 1.0 + sum(_size(each, sizes) for each in each_value)
    return sizes[id(node)]


def _repeated(node: yaml.Node | None, seen: set[int]) -> Iterator[str]:
    """Yields the keys that a mapping has more than once; YAML's reader takes the last."""
    if id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen.add(id(node))
    lines: dict[str, int] = {}
    for each in node.value:
        key, value = each if isinstance(node, yaml.MappingNode) else (None, each)
        if isinstance(key, yaml.ScalarNode):
            line = key.start_mark.line + 1
            if key.value in lines and key.value != "<<":
                yield f"{key.value} is set in line {lines[key.value]} and again in line {line}: the last one counts"
            lines[key.value] = line
        yield from _repeated(value, seen)


def _lines(node: yaml.Node | None) -> Lines:
    found: Lines = {}
    for name, value in node.value if isinstance(node, yaml.MappingNode) else ():
        at: dict[str | int, int] = {"": name.start_mark.line + 1}
        if isinstance(value, yaml.MappingNode):
            at |= {str(key.value): key.start_mark.line + 1 for key, _ in value.value}
        elif isinstance(value, yaml.SequenceNode):
            at |= {number: each.start_mark.line + 1 for number, each in enumerate(value.value)}
        found[str(name.value)] = at
    return found


def fault(error: yaml.YAMLError) -> str:
    """Describes an error and its position, without the line itself, which may hold a key."""
    mark = getattr(error, "problem_mark", None)
    position = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return f"{getattr(error, 'problem', None) or 'cannot be read'}{position}"


def section(raw: dict[str, Any], name: str, origin: str) -> dict[str, Any]:
    """Replaces a section by a copy that may be changed, or adds an empty one, and returns it.
    Raises ConfigurationError: it is no mapping."""
    values = raw.get(name)
    if values is not None and not isinstance(values, dict):
        raise ConfigurationError(f"{origin}: {name}: must be a mapping")
    raw[name] = dict(values or {})
    found: dict[str, Any] = raw[name]
    return found


def resolve(value: Any, environ: Mapping[str, str], where: str, missing: Callable[[str, str], Any]) -> Any:
    """Replaces each `os.environ/NAME` in a value by the variable's value.
    `missing`: called with the path and the name of a variable that is not set, or empty; returns what replaces it, or
    raises."""
    if isinstance(value, dict):
        return {str(k): resolve(v, environ, f"{where}.{k}".lstrip("."), missing) for k, v in value.items()}
    if isinstance(value, list):
        return [resolve(v, environ, f"{where}[{i}]", missing) for i, v in enumerate(value)]
    if isinstance(value, str) and value.startswith(ENVIRONMENT_REFERENCE):
        name = value.removeprefix(ENVIRONMENT_REFERENCE)
        return (name in environ and environ[name]) or missing(where, name)
    return value
