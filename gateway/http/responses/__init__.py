"""`/v1/responses`."""
