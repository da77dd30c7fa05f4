"""The memory of things: noted, searched, listed and deleted (guarantee §11.14 to §11.17, ADR 24)."""
