"""What in a request is an artifact, and its text."""
