"""Step 1: the conversation of a request, from the store and from what the client sent (guarantee §3)."""
