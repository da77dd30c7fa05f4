"""What every package uses: types, API formats, configuration, errors, ports, metrics and logs, JSON, clocks, ids.

Read first: `types/chat.py` (the canonical request) and `ports.py` (the interfaces between packages). Never imports a
higher layer, and does no I/O except to read the configuration.
"""
