"""What an operator runs: the commands behind `gateway`, what is looked at from outside, and OpenTelemetry.

Offers one module for each command; `cli.py` imports the one that is asked for. Read first: `command_arguments.py` (what
they take), `screen.py` (what they are called with), `check.py`. Never answers a request, and holds no rule of its own:
it asks the floors below.
"""
