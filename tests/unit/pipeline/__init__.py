"""Mirrors gateway/turn."""
