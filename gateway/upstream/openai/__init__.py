"""Upstreams that speak OpenAI."""
