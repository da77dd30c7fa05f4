"""Step 7: usage, cost and metadata of an answer (guarantee §6)."""
