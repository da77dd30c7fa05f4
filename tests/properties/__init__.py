"""Guarantee §4 as properties: random requests through the gateway in one process, held against checks of their own."""
