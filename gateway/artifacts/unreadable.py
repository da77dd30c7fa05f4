"""A document that cannot be read."""


class UnreadableDocument(Exception):
    """The file claims to be a document but cannot be read; the message says why."""
