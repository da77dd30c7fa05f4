"""Mirrors gateway/models."""
