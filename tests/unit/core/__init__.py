"""Mirrors gateway/base."""
