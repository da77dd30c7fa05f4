"""Faces of rooms: the names a package exports, each loaded on first use."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_face(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes a package's `__getattr__`, which imports a name's module on first use, so that a command loads only the
    modules it needs. `homes`: by module, relative to the package, its exported names. A module also exports itself
    under the last part of its name; a module directly in the package needs no entry, as Python finds it."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def offered(name: str) -> Any:
        """Imports and returns the object of that name. Raises AttributeError: the package exports no such name."""
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = import_module(f"{package}.{home}")
        return found if home.rpartition(".")[2] == name else getattr(found, name)

    return offered
