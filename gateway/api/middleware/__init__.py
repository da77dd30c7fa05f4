"""What stands around every endpoint: the origin check and CORS."""
