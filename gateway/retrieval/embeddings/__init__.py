"""Ranks passages by an embedding model in addition to their words, within a deadline."""
