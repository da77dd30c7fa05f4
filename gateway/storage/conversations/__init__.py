"""Conversations and their items: records, deletion, export, import."""
