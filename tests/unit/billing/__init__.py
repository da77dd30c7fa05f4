"""Mirrors gateway/accounting."""
