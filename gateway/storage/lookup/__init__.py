"""Reads and recognises stored conversations."""
