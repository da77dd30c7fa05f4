"""The description of the served API, in OpenAPI."""
