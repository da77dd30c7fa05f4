"""Upstreams that speak Responses."""
