"""Step 2: what in a request is an artifact, and its text."""
