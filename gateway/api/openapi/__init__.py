"""The OpenAPI description of the served API."""
