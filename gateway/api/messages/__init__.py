"""`/v1/messages`: Anthropic's API, for every model."""
