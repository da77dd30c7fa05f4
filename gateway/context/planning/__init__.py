"""Whether a plan by a model is worth its price, and what was decided for each artifact (guarantee §5)."""
