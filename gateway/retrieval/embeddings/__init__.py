"""Ranks passages by an embedding model, beside their words, within a deadline."""
