"""Mirrors gateway/assembly."""
