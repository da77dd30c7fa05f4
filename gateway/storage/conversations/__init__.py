"""Conversations as their clients manage them: items, deletion, export and import."""
