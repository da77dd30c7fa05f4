"""The web UI at `/ui` (guarantee §13.2)."""
