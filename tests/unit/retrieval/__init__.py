"""Mirrors gateway/relevance."""
