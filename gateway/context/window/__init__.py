"""Fits messages and artifacts into the budget."""
