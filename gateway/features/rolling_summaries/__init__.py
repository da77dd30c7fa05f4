"""Summarizes old turns of a conversation behind its answers (guarantee §11.13). How summaries stand in a window is the
core's: `models/memory.py`, `window/`."""

from gateway.features.rolling_summaries.background import RollingSummaries
from gateway.features.rolling_summaries.summarizer import TurnSummarizer

__all__ = ["RollingSummaries", "TurnSummarizer"]
