"""What the acceptance and integration tests stand on: a mock upstream, the server, real services."""
