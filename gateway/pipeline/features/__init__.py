"""Optional features of the pipeline. Each is a module, acts at points of `pipeline/stages.py` or `context/build.py`,
and knows no other feature. `pipeline/wiring.py` lists those that a process has (ADR 35)."""
