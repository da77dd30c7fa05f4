"""The HTTP server: its protocol, what endpoints receive and send, and the middleware around every endpoint."""
