"""Searches and reads a tenant's own past conversations without calling a model (guarantee §10.12)."""
