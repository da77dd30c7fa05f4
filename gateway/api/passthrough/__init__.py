"""Relays further paths to an upstream."""
