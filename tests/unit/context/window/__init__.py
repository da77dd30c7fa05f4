"""Mirrors gateway/window."""
