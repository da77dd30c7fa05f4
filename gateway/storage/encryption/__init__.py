"""Encryption of stored content at rest (guarantee §12.11, ADR 30)."""
