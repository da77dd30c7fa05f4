"""Commits turns and bills, and reads bills and completions."""
