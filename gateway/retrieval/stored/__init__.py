"""Indexes large documents in the storage. A separate process builds an index; a search reads a few rows at a time."""
