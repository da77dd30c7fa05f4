"""`gateway files`: what is kept of clients' files, for operators (guarantee §14.5)."""
