"""Documents of all kinds: which there are, and what they say."""
