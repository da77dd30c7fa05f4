"""Features that the core does without: each is a module, acts at the points of `pipeline/stages.py`, and knows no other
feature. `pipeline/wiring.py` lists those that a process has (ADR 35)."""
