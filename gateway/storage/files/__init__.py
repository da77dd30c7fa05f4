"""Files of our own in the database: their rows, and contents in pieces."""
