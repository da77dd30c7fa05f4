"""Third-party guards and masking, around each model call (guarantee §12.9, §12.10)."""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.pipeline.guards.checkpoint import what_guards
    from gateway.pipeline.guards.factory import guards_are_on, open_guards, refuses_files
else:
    __getattr__ = lazy_face(
        __name__,
        {
            "checkpoint": "what_guards",
            "factory": "guards_are_on open_guards refuses_files",
        },
    )

__all__ = [
    "guards_are_on",
    "open_guards",
    "refuses_files",
    "what_guards",
]
