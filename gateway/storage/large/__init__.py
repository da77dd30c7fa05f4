"""Large documents in the storage: their text in regions, the index of their words, who makes it (guarantee §14.7)."""
