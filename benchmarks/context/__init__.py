"""What building a context costs: of contents never seen, and of the same ones for a second question."""
