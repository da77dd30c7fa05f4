"""Faces of rooms: what a package offers, each name loaded when it is first asked for."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_face(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes a package's `__getattr__`, which imports a name's module when the name is first used: a command that asks
    for one loads no other. `homes`: by module, as the package sees it, the names that it has. A module offers itself
    under the last part of its own name; one that stands in the package itself needs no entry, as Python finds it."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def offered(name: str) -> Any:
        """Raises AttributeError: nothing is offered under that name."""
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = import_module(f"{package}.{home}")
        return found if home.rpartition(".")[2] == name else getattr(found, name)

    return offered
