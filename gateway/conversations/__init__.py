"""A conversation as it was: matched, rebuilt out of what is stored, and as it was last forwarded.

Read first: `rebuild.py` (which conversation a request continues, and its history out of the store and the request)
and `message_forms.py` (how messages of it may go up). Never drops a message for want of room: that is the window's.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.conversations import message_forms, rebuild

__all__ = [
    "message_forms",
    "rebuild",
]
