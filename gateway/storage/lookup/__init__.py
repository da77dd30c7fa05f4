"""Finds the stored conversation that a request continues, and reads what the request needs of it."""
