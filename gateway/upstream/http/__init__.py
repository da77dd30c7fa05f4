"""Calls over the gateway's own connections: an adapter for each API that providers speak, and what is relayed."""
