"""A conversation of 10,000 messages beside one of 20: what a turn of each costs. `python -m benchmarks.history`."""
