"""One request from its beginning to its commit."""
