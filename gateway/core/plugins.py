"""Loads other packages' entry points, and supports the module names that those packages import from."""

import sys
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from types import ModuleType
from typing import Any

from gateway.core.instrumentation.logs import get_logger

log = get_logger("gateway.core.plugins")
FORMER = {
    "gateway.guards": "gateway.pipeline.guards",
    "gateway.guards.api": "gateway.pipeline.guards",
    "gateway.models": "gateway.core.types",
    "gateway.models.agents": "gateway.core.types.agents",
}
"""Modules that packages import by their names in 0.1, and where they are now."""


def plugins_of(group: str) -> EntryPoints:
    """Finds the entry points of installed packages in a group. They are read once per process, since that takes as long
    as dozens of requests."""
    return _found(group, tuple(sys.path))


@lru_cache
def _found(group: str, _: tuple[str, ...]) -> EntryPoints:
    return entry_points(group=group)


def load_plugin(entry: EntryPoint) -> Any:
    """Loads an entry point. Former module names lead to the present modules; the first use is logged."""
    for former, present in FORMER.items():
        sys.modules.setdefault(former, _former_module(former, present))
    return entry.load()


def _former_module(former: str, present: str) -> ModuleType:
    module = ModuleType(former, f"Stands for `{present}`.")
    told = False

    def lead(name: str) -> Any:
        nonlocal told
        if name.startswith("__"):
            raise AttributeError(name)
        if not told:
            told = True
            log.warning("former_module_imported", module=former, present=present)
        return getattr(import_module(present), name)

    module.__dict__["__getattr__"] = lead
    return module
