"""The tool `recall`, with which a model reads within one request what its window leaves out (guarantee §10.11). Its
definition, and the rounds as a stage holds them, are in `core/types/recall.py`."""

from gateway.pipeline.features.recall.rounds import RecallFeature

__all__ = ["RecallFeature"]
