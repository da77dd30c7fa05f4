"""The trail of what administrators did (guarantee §12.12, ADR 30): events are added, read and checked."""
