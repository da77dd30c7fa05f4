"""Finds the artifacts of a request, and their texts."""
