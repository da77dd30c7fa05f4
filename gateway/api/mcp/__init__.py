"""`/mcp`: the gateway's memory and recall as an MCP server (guarantee §10.12). Only `server.py` imports
the package `mcp`, at the first request."""
