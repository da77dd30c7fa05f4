"""What an operator runs: the commands behind `gateway`, what is looked at from outside, and OpenTelemetry.

Offers one module for each command (`check`, `audit`, `costs`, `keys`, `show`, `savings`, `transfer`, `purge`, ...);
`cli.py` imports the one that is asked for. Read first: `check.py` and `show/command.py`. Never answers a request, and
holds no rule of its own: it asks the floors below.
"""
