"""Data that the steps pass to each other. No I/O, no decisions."""
