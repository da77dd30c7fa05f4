"""Mirrors gateway/http."""
