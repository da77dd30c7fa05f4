"""Writes turns and bills."""
