"""Around each call of a model: guards of third parties, and masking (guarantee §12.9, §12.10)."""
