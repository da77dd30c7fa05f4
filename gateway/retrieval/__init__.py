"""Which passages of a conversation's texts bear on a question: the heuristic's ranks (guarantee §5).

Read first: `rank.py` (the order of passages) and `chunks/split.py` (what a passage is). Pure but for `index_cache.py`,
`embeddings/` and `stored/`. Never knows a budget, and never asks a language model.
"""
