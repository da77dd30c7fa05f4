"""Makes the context of a request: collect, measure, decide, plan, fit, report."""
