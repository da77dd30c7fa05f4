"""Explains what the gateway did: a conversation turn by turn, a request message by message, a bill sum by sum.

Read first: `reader.py` (what is read from the storage) and `window_bar.py` (what was in a window, and why). All other
modules are pure and return data for the web UI, commands and APIs. Never calls a model and never guesses: where
something is not stored, it reports the reason.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.inspection import (
        as_json,
        document_parts,
        explained_artifacts,
        explained_request,
        message_changes,
        prefix,
        rebuilt_turns,
        request_search,
        settings_in_force,
    )
    from gateway.inspection.explained_conversation import FIRST_SAID, BranchRun, ExplainedConversation, ExplainedTurn
    from gateway.inspection.explained_request import ExplainedCall, ExplainedRequest, StoredRequest
    from gateway.inspection.reader import ExplanationReader, TurnChoice
    from gateway.inspection.window_bar import WINDOW_PARTS, WindowBar
else:
    __getattr__ = lazy_face(__name__)
