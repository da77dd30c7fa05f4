"""What a request cost, what it may cost, and what it saved (guarantee §6).

Read first: `cost.py` (the one place where a price becomes a cost) and `metadata.py` (the bill as it is told). `quota/`
holds budgets and limits, `passes.py` says which old results leave and when that pays. Never rounds money through a
float.
"""
