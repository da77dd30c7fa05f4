"""Step 2: what in a request is an artifact, how it is cut into passages, and which passages bear on a question."""
