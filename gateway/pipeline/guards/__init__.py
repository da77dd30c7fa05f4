"""Third-party guards and masking, around each model call (guarantee §12.9, §12.10).

Authors of guards import `Guard`, `GuardedCall`, `Said`, `Verdict` and `PASS` from here.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.pipeline.guards.api import PASS, Guard, GuardedCall, Said, Verdict
    from gateway.pipeline.guards.checkpoint import what_guards
    from gateway.pipeline.guards.factory import guards_are_on, open_guards, refuses_files
else:
    __getattr__ = lazy_face(__name__)

__all__ = [
    "PASS",
    "Guard",
    "GuardedCall",
    "Said",
    "Verdict",
    "guards_are_on",
    "open_guards",
    "refuses_files",
    "what_guards",
]
