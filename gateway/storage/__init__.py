"""Conversations, bills and all else that stays, in SQLite or PostgreSQL; caches in memory or Valkey.

Read first: `store.py` (a turn and its bill in one transaction) and `database/schema.py` (the tables). The only home of
SQLAlchemy, its drivers and redis. Never waits for a model inside a transaction.
"""
