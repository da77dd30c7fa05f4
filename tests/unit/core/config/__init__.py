"""Mirrors gateway/config."""
