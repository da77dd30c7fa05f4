"""Summarizes old turns of a conversation behind its answers (guarantee §11.13). How summaries stand in a window is the
core's: `core/types/memory.py`, `context/window/`."""

from gateway.pipeline.features.rolling_summaries.background_summaries import RollingSummaries, TurnSummarizer

__all__ = ["RollingSummaries", "TurnSummarizer"]
