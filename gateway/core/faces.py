"""Faces of rooms: the names a package exports, each loaded on first use."""

import re
import sys
from collections.abc import Callable
from typing import Any

IMPORT_FOR_TYPES = re.compile(r"^    from ([\w.]+) import (?:\(([^)]*)\)|(.+))", re.MULTILINE)
"""An import for type checkers: the indented ones of a package's `__init__.py`."""


def lazy_face(package: str) -> Callable[[str], Any]:
    """Makes a package's `__getattr__`, which imports a name's module on first use, so that a command loads only the
    modules it needs. Which module has a name is read from the package's source: from its imports for type checkers."""
    loader: Any = sys.modules[package].__loader__
    imports = IMPORT_FOR_TYPES.findall(loader.get_source(package))
    home_of = {name: home for home, *names in imports for name in "".join(names).replace(",", " ").split()}

    def offered(name: str) -> Any:
        """Imports and returns the object of that name. Raises AttributeError: the package exports no such name."""
        home = home_of.get(name, package)
        if home == package:  # Python finds the package's own modules
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(__import__(home, fromlist=[name]), name)

    return offered
