"""What a model is sent: gather (all I/O), decide, fit, economise, render. `economising.py` may change the fitted
window: old results become labels where that pays.

Read first: `manager.py` (the five steps) and `window/fit.py` (what gets the budget). `artifacts/` finds what may be
reduced, `planning/` decides whether a model is asked, `window/` packs, `assembly/` words, `tokens/` counts. Never calls
the primary model, and never decides anything while it reads.
"""
