"""`gateway keys`: makes, lists, changes, rotates and revokes keys beside running servers."""
