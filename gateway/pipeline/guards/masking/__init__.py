"""Secrets and personal data: found by rules, replaced on their way to a model, put back in its answer (§12.10)."""
