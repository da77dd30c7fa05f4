"""Paths that are passed on to an upstream."""
