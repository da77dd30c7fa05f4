"""The HTTP server's edge: its protocol, what endpoints receive and send, and the middleware around every endpoint."""
