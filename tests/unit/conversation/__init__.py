"""Mirrors gateway/conversation."""
