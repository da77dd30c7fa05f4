"""Step 8: conversations and bills, in SQLite or PostgreSQL. The only home of SQLAlchemy, its drivers and redis."""
