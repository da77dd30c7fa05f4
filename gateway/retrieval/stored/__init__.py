"""An index of large documents that is kept in the storage: made apart, read a few rows at a time."""
