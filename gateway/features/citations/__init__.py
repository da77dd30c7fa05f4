"""Tells what an answer cites of what its model was sent (guarantee §14.8). What it is asked to name is part of the
block (`assembly/block.py`)."""

from gateway.features.citations.window import build

__all__ = ["build"]
