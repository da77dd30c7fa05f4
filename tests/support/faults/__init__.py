"""What upstreams do wrong, in the words of each API, and what clients of each API are told of it (guarantee §7)."""
