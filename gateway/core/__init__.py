"""What everything stands on: types, formats of APIs, configuration, errors, ports, metrics and logs, JSON, clocks, ids.

Read first: `types/chat.py` (the canonical request) and `ports.py` (what parts ask of each other). Never imports a floor
above, and does no I/O but for reading the configuration.
"""
