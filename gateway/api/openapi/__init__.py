"""The description of what is served, in OpenAPI's terms."""
