"""Mirrors gateway/history."""
