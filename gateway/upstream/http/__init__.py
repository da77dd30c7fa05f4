"""Connections and their pool under httpx."""
