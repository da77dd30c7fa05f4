"""The cache in memory and in Redis."""
