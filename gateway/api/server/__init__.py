"""The HTTP server's edge: its protocol, what endpoints receive and send, and what stands around every endpoint."""
