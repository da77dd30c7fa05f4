"""`/v1/files`, where this gateway stores files itself instead of relaying them to an upstream."""
