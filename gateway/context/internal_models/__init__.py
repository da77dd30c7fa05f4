"""Calls of planner and summarizer: made, limited, billed."""
