"""What is left of budgets and limits (adapters of `ports.BudgetStore` and `ports.RateStore`)."""
