"""Decides whether a model's plan is worth its price, and what holds for each artifact (guarantee §5)."""
