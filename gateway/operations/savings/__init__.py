"""`gateway savings --replay`: plays recorded sessions through the context manager and reports their cost."""
