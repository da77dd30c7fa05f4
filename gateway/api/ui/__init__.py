"""The page `/ui` (guarantee §13.2)."""
