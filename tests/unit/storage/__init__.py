"""Storage without a database."""
