"""Sizes and names of the package, read from its source."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

PACKAGE = Path(__file__).parents[2] / "gateway"
MAX_LINES = 800
"""Lines of the longest module: above it one subject has become two (ADR 1)."""
OWN_LINES = 200
"""A module of so many lines stands for itself, whoever reads it."""
ROLES = frozenset(["adapter", "command", "endpoint", "factory", "options", "request_parser", "router", "serializer"])
"""Names of files that each package with that role has; any other tells the subject of one file."""
LONG_FUNCTION, MANY_PARAMETERS = 50, 6


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    lines: int
    parameters: int
    documented: bool
    line: int
    heading: str
    """The first line of its docstring; empty of a property, which names a thing."""


@dataclass(frozen=True, slots=True)
class _Module:
    """What is measured of one; its tree, of which a package has hundreds of megabytes, is not kept."""

    lines: int
    classes: tuple[str, ...]
    functions: tuple[_Function, ...]
    imports: frozenset[tuple[str, str]]
    """Modules, with the names that it imports of each."""


@dataclass(frozen=True, slots=True)
class House:
    """Figures of all modules but `__init__.py`."""

    sizes: dict[str, int]
    root: int
    long_functions: list[str]
    many_parameters: list[str]
    public: int
    documented: int
    names_twice: dict[str, int]
    packages: int
    classes_twice: dict[str, int]
    one_reader: list[str]

    @property
    def too_long(self) -> dict[str, int]:
        return {name: size for name, size in self.sizes.items() if size > MAX_LINES}

    @property
    def median(self) -> float:
        return median(self.sizes.values())


def measure(package: Path = PACKAGE) -> House:
    """Reads every module of a package."""
    files = sorted(path for path in package.rglob("*.py") if path.name != "__init__.py")
    modules = {str(path.relative_to(package)): _read(path) for path in files}
    functions = [(f"{name}:{each.name}", each) for name, module in modules.items() for each in module.functions]
    public = [each for _, each in functions if not each.name.startswith("_")]
    classes = Counter(name for module in modules.values() for name in module.classes)
    names = Counter(path.name for path in files if path.stem not in ROLES)
    root = sum(path.parent == package for path in files)
    packages = len({path.relative_to(package).parts[0] for path in files if path.parent != package})
    return House(
        sizes={name: module.lines for name, module in modules.items()},
        root=root,
        long_functions=[name for name, each in functions if each.lines >= LONG_FUNCTION],
        many_parameters=[name for name, each in functions if each.parameters > MANY_PARAMETERS],
        public=len(public),
        documented=sum(each.documented for each in public),
        names_twice=_twice(names),
        packages=packages,
        classes_twice=_twice(classes),
        one_reader=one_reader(package),
    )


def one_reader(package: Path = PACKAGE) -> list[str]:
    """Modules that are read by one module alone, a neighbour in their own package, with which they would fit into one:
    each is a part of its reader, unless it stands for itself."""
    paths = {_module(path, package): path for path in package.rglob("*.py")}
    lines = {name: _read(path).lines for name, path in paths.items()}
    readers: dict[str, set[str]] = {name: set() for name in paths}
    for name, path in paths.items():
        for each in _imported(path, paths.keys()) - {name}:
            readers[each].add(name)
    return sorted(
        name
        for name, (reader, *others) in ((name, tuple(found)) for name, found in readers.items() if found)
        if not others
        and "__init__.py" not in (paths[name].name, paths[reader].name)
        and paths[name].parent == paths[reader].parent
        and lines[name] < OWN_LINES
        and lines[name] + lines[reader] <= MAX_LINES
    )


def _twice(names: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in names.items() if count > 1}


def circle(package: Path = PACKAGE) -> list[str]:
    """Modules that import each other, the first one again at the end: one circle, wherever its imports stand (in
    functions, for types alone); empty where there is none."""
    paths = {_module(path, package): path for path in package.rglob("*.py")}
    imports = {name: _imported(path, paths.keys()) - {name} for name, path in paths.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as found:
        return list(found.args[1])
    return []


def faces(package: Path = PACKAGE) -> dict[str, list[str]]:
    """Names that packages offer: what their `__init__.py` imports for type checkers."""
    found = {}
    for path in package.glob("**/__init__.py"):
        blocks = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If)]
        imports = [each for block in blocks for each in block.body if isinstance(each, ast.ImportFrom)]
        if imports:
            found[_module(path, package)] = [name.name for each in imports for name in each.names]
    return found


def past_faces(package: Path = PACKAGE) -> list[str]:
    """What is imported of a room that has a face, by another room, but not through it: the module that imports, and
    what. A folder in a room may have a face of its own."""
    offered = faces(package)
    found = []
    for path in sorted(package.rglob("*.py")):
        name = _module(path, package)
        for module, each in _read(path).imports:
            room = ".".join(module.split(".")[:2])
            is_inside = name == room or name.startswith(room + ".")
            if room in offered and not is_inside and each not in offered.get(module, ()):
                found.append(f"{name}: {module}.{each}")
    return found


def set_from_outside(source: str) -> list[str]:
    """What a module sets on objects that are not its own `self`, as `part.attribute`."""
    targets = [
        target
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    found = [each for each in targets if isinstance(each, ast.Attribute)]
    return [ast.unparse(each) for each in found if not (isinstance(each.value, ast.Name) and each.value.id == "self")]


def _module(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, names: AbstractSet[str]) -> set[str]:
    found = set()
    for module, each in _read(path).imports:
        found |= {f"{module}.{each}" if f"{module}.{each}" in names else module} & names
    return found


@functools.cache
def _read(path: Path) -> _Module:
    text = path.read_text()
    classes: list[str] = []
    functions: list[_Function] = []
    imports: set[tuple[str, str]] = set()
    rooms: dict[str, str] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            classes.append(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(_function(node))
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imports |= {(node.module, each.name) for each in node.names}
            if "." not in node.module:  # `from gateway import billing`: what is asked of it as an attribute
                rooms |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in rooms:
            imports.add((rooms[node.value.id], node.attr))
    return _Module(len(text.splitlines()), tuple(classes), tuple(functions), frozenset(imports))


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> _Function:
    parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    text = ast.get_docstring(node)
    names_a_thing = any("property" in ast.unparse(each) for each in node.decorator_list)
    return _Function(
        node.name,
        (node.end_lineno or 0) - node.lineno,
        len([each for each in parameters if each.arg not in ("self", "cls")]),
        text is not None,
        node.lineno,
        text.splitlines()[0] if text and not names_a_thing else "",
    )


VERB = re.compile(r"[A-Z][a-z]+s\b")
NOUNS = frozenset(("Artifacts", "Bytes", "Conversations", "Sockets", "Status", "This", "Tokens", "Whose"))
"""First words of docstrings that end as verbs of the third person do, and are none."""


def without_a_verb(package: Path = PACKAGE) -> list[str]:
    """Lists the public functions whose docstring does not begin with a verb of the third person. Those of classes and
    properties are not looked at: they name a thing."""
    return [
        f"{path.relative_to(package)}:{each.line} {each.name}: {each.heading[:60]}"
        for path in sorted(package.rglob("*.py"))
        for each in _read(path).functions
        if each.heading and not each.name.startswith("_")
        if (verb := VERB.match(each.heading)) is None or verb[0] in NOUNS
    ]
