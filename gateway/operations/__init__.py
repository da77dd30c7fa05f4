"""What an operator runs: the server, the commands behind `gateway`, and OpenTelemetry.

Offers the server and one module for each command; `cli.py` imports the one that is asked for. Read first:
`command_arguments.py` (what they take), `screen.py` (what they are called with), `check.py`. Never answers a request
itself, and holds no rule of its own: it asks the floors below.
"""
