"""`/v1/gateway/trail`: lists and exports the actions of administrators (guarantee §12.12)."""
