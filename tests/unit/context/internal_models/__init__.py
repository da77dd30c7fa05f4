"""Mirrors gateway/internal_models."""
