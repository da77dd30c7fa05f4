"""The caller of a tool of the MCP server."""

from gateway.core.frozen_records import record

ASKER = "gateway.mcp.asker"
"""The key of the scope under which a request has its `McpCaller`."""


@record
class McpCaller:
    """The caller of a request. `user`: the user that its token names, if any."""

    tenant: str
    is_one: bool
    """Whether all that is stored for the tenant is one owner's. Callers without a key are one tenant, and the ids of
    conversations are all that keeps them apart; on this machine alone they are one person."""
    user: str | None = None
