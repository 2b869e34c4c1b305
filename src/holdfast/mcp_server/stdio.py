"""The server for one local client, on stdin and stdout. Nothing else is written to stdout."""

from __future__ import annotations

from mcp.server.stdio import stdio_server

from holdfast.mcp_server.access import Access
from holdfast.mcp_server.server import create_server
from holdfast.stores.base import StateStore


async def serve_stdio(state_store: StateStore, access: Access | None = None) -> None:
    """Serve until the client closes stdin, then close the store."""
    async with state_store:
        server = create_server(state_store, access)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
