"""`/mcp`: the gateway's memory and recall as an MCP server (guarantee §10.12). The package `mcp` is imported by
`server.py` alone, at the first request."""
