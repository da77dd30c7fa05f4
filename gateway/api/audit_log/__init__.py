"""`/v1/gateway/trail`: what administrators did, listed and exported (guarantee §12.12)."""
