"""Pages for administrators: what the API and the commands change, by the same functions."""
