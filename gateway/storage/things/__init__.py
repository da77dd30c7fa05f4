"""The memory of things: noted, searched, listed and deleted (guarantee §11, ADR 24)."""
