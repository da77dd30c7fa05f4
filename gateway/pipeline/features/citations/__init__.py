"""Tells what an answer cites of what its model was sent (guarantee §14.8). What it is asked to name is part of the
block (`context/assembly/block.py`)."""

from gateway.pipeline.features.citations.answer_citations import build

__all__ = ["build"]
