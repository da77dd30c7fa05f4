"""Budgets and limits: those that apply to a request, and what is left of them (guarantee §12.3, §12.4; ADR 28)."""
