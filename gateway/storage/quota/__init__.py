"""Tracks what is left of budgets and limits (adapters of `ports.BudgetStore` and `ports.RateStore`)."""
