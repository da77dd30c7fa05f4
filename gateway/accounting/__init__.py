"""Step 7: usage, cost and metadata of an answer (contract §6)."""
