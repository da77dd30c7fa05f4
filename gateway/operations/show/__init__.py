"""`gateway show`: explains a conversation, one of its turns, or a request, out of what is stored (guarantee §13.9)."""
