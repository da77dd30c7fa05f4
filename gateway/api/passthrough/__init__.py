"""Paths that are relayed to an upstream."""
