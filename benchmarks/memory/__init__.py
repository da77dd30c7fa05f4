"""What memory, caches, profiles and storing are worth: hit rates, time, tokens, each beside its target."""
