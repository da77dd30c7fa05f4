"""Features that the core does without: each is a folder, acts at the points of `pipeline/hooks.py`, and knows no other
feature. `app.py` lists those that a process has (ADR 35)."""
