"""A conversation as it was: matched, rebuilt out of what is stored, and as it was last forwarded.

Read first: `matching.py` (which conversation a request continues) and `rebuild.py` (the history out of the store and
the request). Never drops a message for want of room: that is the window's.
"""
