"""Responses, as OpenAI has them."""
