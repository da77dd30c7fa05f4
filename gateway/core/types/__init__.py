"""Data that the steps hand to each other. No I/O, no decisions."""
