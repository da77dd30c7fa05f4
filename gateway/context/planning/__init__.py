"""Decides whether a model's plan is worth its price; records the decision about each artifact (guarantee §5)."""
