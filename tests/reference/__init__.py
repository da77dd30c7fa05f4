"""The parts of pages that are made from the code: settings, commands, errors, LiteLLM's settings.

A page has them between `<!-- made by make docs: NAME ARGUMENT -->` and `<!-- end -->`; `NAME` is a function of
`tables`. `python -m tests.reference` writes them, and `tests/unit/test_docs.py` says which page is not what it makes.
"""
