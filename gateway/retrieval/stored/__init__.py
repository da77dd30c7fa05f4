"""Indexes large documents in the storage: made in a separate process, read a few rows at a time."""
