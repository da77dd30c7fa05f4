"""Keys at runtime: made, listed, changed, rotated and revoked by administrators."""
