"""The tool `recall`, with which a model reads within one request what its window leaves out (guarantee §10.11). Its
definition, and the rounds as a stage holds them, are in `models/recall.py`."""

from gateway.features.recall.rounds import Recall

__all__ = ["Recall"]
