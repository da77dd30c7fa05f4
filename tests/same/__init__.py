"""Sends the same random requests to the gateways of two checkouts and compares all that comes of them."""
