"""An MCP server, so that any agent can save, compare, search and restore its own state.

Every call names the agent, the session and the snapshot that it is about, and starts at the last
commit: the server keeps no state between calls.

`create_server` makes the server, `holdfast.mcp_server.stdio` runs it for one local client, and
`holdfast.mcp_server.http` makes an ASGI app with the tokens of the REST API.
"""

from holdfast.adapters.requirement import require_version

require_version("mcp", "2.1", "mcp", before="3")

from holdfast.mcp_server.access import Access  # noqa: E402 - after the check of the version
from holdfast.mcp_server.server import create_server  # noqa: E402 - after the check of the version

__all__ = ["Access", "create_server"]
