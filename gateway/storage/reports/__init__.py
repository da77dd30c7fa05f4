"""Queries for pages and commands that look at what is stored; none of them changes anything."""
