"""Decides whether a model's plan is worth its price; records what was decided for each artifact (guarantee §5)."""
