"""A conversation as it was: matched, rebuilt out of what is stored, and as it was last forwarded.

Read first: `rebuild.py` (which conversation a request continues, and its history out of the store and the request)
and `frozen_frames.py` (how it was last forwarded). Never drops a message for want of room: that is the window's.
"""
