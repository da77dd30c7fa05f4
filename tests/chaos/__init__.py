"""Faults on purpose: kills at any moment. `make chaos` runs the long loops, `make test` the short ones."""
