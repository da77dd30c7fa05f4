"""One request from its beginning to its commit, on one screen, and the features that act on it.

Read first: `pipeline.py` (the loop over targets) and `stages.py` (what a request is on its way: prepared, attempted,
settled). Features stand in `features/` and `guards/` and act at the points of `stages.py`; the pipeline imports none of
them. Never speaks HTTP, and never holds a database session while a model is waited for.
"""
