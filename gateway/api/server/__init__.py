"""The HTTP server's edge: its protocol, bodies as they arrive, admission, signs of life, the fast router."""
