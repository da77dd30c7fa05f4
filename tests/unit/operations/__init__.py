"""Mirrors gateway/operations."""
