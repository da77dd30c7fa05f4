"""Finds the stored conversation that a request continues, and reads the parts that the request needs."""
