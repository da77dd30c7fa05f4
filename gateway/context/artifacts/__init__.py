"""Finds the artifacts of a request and reads their texts."""
