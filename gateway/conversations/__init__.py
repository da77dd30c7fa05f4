"""Finds the conversation of a request, and rebuilds its history in the form in which it was last sent upstream.

Read first: `rebuild.py` (which conversation a request continues, and its history from the store and the request) and
`message_forms.py` (the forms in which its messages are sent upstream). Never drops a message to save tokens.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.conversations import message_forms, rebuild
