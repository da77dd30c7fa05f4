"""Evidence recall under a token budget: does what a question needs reach the model? `make eval`."""
