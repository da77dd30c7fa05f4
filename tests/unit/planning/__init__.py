"""Mirrors gateway/planning."""
