"""Schema, engines, transactions."""
