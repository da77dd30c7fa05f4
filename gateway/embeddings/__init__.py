"""Ranks by meaning: which passages to find a place for within a deadline, and what is known of them already."""
