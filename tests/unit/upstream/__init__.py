"""Mirrors gateway/upstream."""
