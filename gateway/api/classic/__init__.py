"""The classic API below `/api/v1/`: other names for what `/v1/` serves."""
