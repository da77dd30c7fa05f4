"""Sizes and names of the package, read from its source."""

import ast
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

PACKAGE = Path(__file__).parents[2] / "gateway"
MAX_LINES = 800
"""Lines of the longest module: above it one subject has become two (ADR 1)."""
LONG_FUNCTION, MANY_PARAMETERS = 50, 6


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

    @property
    def too_long(self) -> dict[str, int]:
        return {name: size for name, size in self.sizes.items() if size > MAX_LINES}

    @property
    def median(self) -> float:
        return median(self.sizes.values())


def measure(package: Path = PACKAGE) -> House:
    """Reads every module of a package."""
    files = sorted(path for path in package.rglob("*.py") if path.name != "__init__.py")
    sizes = {str(path.relative_to(package)): len(path.read_text().splitlines()) for path in files}
    long_functions, many_parameters = [], []
    public = documented = 0
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name = f"{path.relative_to(package)}:{node.name}"
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if (node.end_lineno or 0) - node.lineno >= LONG_FUNCTION:
                long_functions.append(name)
            if len([each for each in parameters if each.arg not in ("self", "cls")]) > MANY_PARAMETERS:
                many_parameters.append(name)
            if not node.name.startswith("_"):
                public += 1
                documented += ast.get_docstring(node) is not None
    names = Counter(path.name for path in files)
    twice = {name: count for name, count in names.items() if count > 1}
    root = sum(path.parent == package for path in files)
    return House(sizes, root, long_functions, many_parameters, public, documented, twice)


def circle(package: Path = PACKAGE) -> list[str]:
    """Modules that import each other, the first one again at the end: one circle, wherever its imports stand (in
    functions, for types alone); empty where there is none."""
    names = {_module(path, package): ast.parse(path.read_text()) for path in package.rglob("*.py")}
    imports = {name: _imported(tree, names.keys()) - {name} for name, tree in names.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as found:
        return list(found.args[1])
    return []


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


def _imported(tree: ast.AST, names: Collection[str]) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = {f"{node.module}.{each.name}" for each in node.names}
            found |= {each if each in names else node.module for each in inner} & set(names)
    return found
