"""Which model goes where, with whose key, at which price."""
