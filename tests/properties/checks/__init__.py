"""Guarantee §4 as checks of JSON alone: what was sent, what was forwarded, and the bill. None of the product's code."""
