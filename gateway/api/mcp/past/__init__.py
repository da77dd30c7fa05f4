"""A tenant's own past, searched and read without a model (guarantee §10.12)."""
