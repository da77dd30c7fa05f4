"""Mirrors gateway/fitting."""
