"""Mirrors gateway/tokens."""
