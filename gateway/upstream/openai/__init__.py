"""Upstreams that speak OpenAI's protocol."""
