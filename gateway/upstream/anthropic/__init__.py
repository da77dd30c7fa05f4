"""Upstreams that speak Anthropic's Messages."""
