"""Fits messages and artifacts into the budget."""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.context.window import candidates, counting, extracts
    from gateway.context.window.candidates import PassageCandidate, TranscriptMessage
    from gateway.context.window.counting import PromptCounter
    from gateway.context.window.fitting import in_full
else:
    __getattr__ = lazy_face(__name__)
