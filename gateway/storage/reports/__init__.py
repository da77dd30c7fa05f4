"""Queries behind pages, commands and `/v1/organization/*`: they read, and change nothing."""
