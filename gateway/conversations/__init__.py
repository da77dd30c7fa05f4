"""A conversation as it was: recognised, rebuilt, and as it was last forwarded."""
