"""`/v1/files`, where it is served here."""
