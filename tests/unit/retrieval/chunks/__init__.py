"""Mirrors gateway/relevance/chunks."""
