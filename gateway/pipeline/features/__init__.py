"""Optional features of the pipeline. Each is a module, acts at points of `pipeline/stages.py` or `context/build.py`,
and knows no other feature. `pipeline/wiring.py` lists the features of a process (ADR 35)."""
