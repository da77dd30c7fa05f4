"""Mirrors gateway/artifacts."""
