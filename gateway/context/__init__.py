"""What a model is sent: gather (all I/O), decide, fit, render.

Read first: `manager.py` (the four steps) and `window/packing.py` (what gets the budget). `artifacts/` finds what may be
reduced, `planning/` decides whether a model is asked, `window/` packs, `assembly/` words, `tokens/` counts. Never calls
the primary model, and never decides anything while it reads.
"""
