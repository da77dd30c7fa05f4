"""Counts tokens offline, and learns from what upstreams report."""
