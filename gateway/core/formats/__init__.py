"""Wire formats: translates between each API's wire format and the canonical form (ADR 27). Pure: does no I/O."""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.core.formats.sealing import MAX_OPENED_BYTES, seal, unsealed
else:
    __getattr__ = lazy_face(__name__)
