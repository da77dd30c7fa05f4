"""Pages for administrators. They make the same changes as the API and the commands, by the same functions."""
