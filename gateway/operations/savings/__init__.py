"""`gateway savings --replay`: recorded sessions, played through the context manager, and what they would have cost."""
