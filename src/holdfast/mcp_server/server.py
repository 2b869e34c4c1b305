"""The MCP server: its tools and resources, for any transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import mcp_types as types
import msgspec
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

import holdfast
from holdfast.errors import short_repr
from holdfast.mcp_server import arguments, results, uris
from holdfast.mcp_server.access import Access
from holdfast.mcp_server.comparison import diff
from holdfast.mcp_server.errors import explain_error
from holdfast.mcp_server.listing import list_checkpoints
from holdfast.mcp_server.resources import MIME_TYPE, list_sessions, read_resource
from holdfast.mcp_server.search import search
from holdfast.mcp_server.services import Services
from holdfast.mcp_server.writes import fork, restore, save_checkpoint
from holdfast.stores.base import StateStore
from holdfast.values.references import keep_references

A = TypeVar("A", bound=arguments.Arguments)

MAX_ARGUMENTS = 1 << 20
"""Bytes of the arguments of one call, as JSON."""
INSTRUCTIONS = """Holdfast keeps your state: messages, values and checkpoints, durable in a log.
Call save_checkpoint after each step that must not be lost, and before risky ones. Pass the session
it returns to later calls. After a restart, list_checkpoints shows where you were and search finds
what you knew. diff shows what changed, restore goes back (and can be undone), fork tries another
way in a session of its own."""

AccessReader = Callable[[Any], Access]
"""Returns what the caller of a request may do, given the context of the request."""


@dataclass(frozen=True, slots=True)
class Tool(Generic[A]):
    """One tool: what the client is told about it, and the function that does the work."""

    function: Callable[[Services, Access, A], Awaitable[results.Result]]
    arguments: type[A]
    result: type[results.Result]
    title: str
    description: str
    writes: bool = False
    destructive: bool = False
    idempotent: bool = False

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.function.__name__

    def describe(self) -> types.Tool:
        """Return the tool as the client sees it."""
        return types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=self.arguments.model_json_schema(),
            output_schema=self.result.model_json_schema(mode="serialization"),
            annotations=types.ToolAnnotations(
                title=self.title,
                read_only_hint=not self.writes,
                destructive_hint=self.destructive,
                idempotent_hint=self.idempotent or not self.writes,
                open_world_hint=False,
            ),
        )


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        save_checkpoint,
        arguments.SaveArguments,
        results.SavedCheckpoint,
        "Save a checkpoint",
        "Append messages, set or delete values, and save a checkpoint of the session, all in one "
        "durable step. Pass only what is new. Without a session, a new one is created. Two writers "
        "of one session are both kept; pass expected_seq to fail instead.",
        writes=True,
    ),
    Tool(
        list_checkpoints,
        arguments.ListArguments,
        results.CheckpointPage,
        "List checkpoints",
        "List checkpoints of a session or of all sessions of an agent, newest first, optionally "
        "by tags.",
    ),
    Tool(
        diff,
        arguments.DiffArguments,
        results.DiffPage,
        "Compare two states",
        "Compare two states of a session, or states of two sessions: which messages and values "
        "were added, removed or changed.",
    ),
    Tool(
        restore,
        arguments.RestoreArguments,
        results.RestoredState,
        "Restore a checkpoint",
        "Set the session back to a checkpoint or an event. Nothing is deleted from the log: "
        "restore to undo_seq of the result to undo it.",
        writes=True,
        destructive=True,
        idempotent=True,
    ),
    Tool(
        fork,
        arguments.ForkArguments,
        results.ForkedSession,
        "Fork a session",
        "Create a new session with the state of another one, now or at a checkpoint. The original "
        "does not change.",
        writes=True,
    ),
    Tool(
        search,
        arguments.SearchArguments,
        results.SearchPage,
        "Search messages and values",
        "Find a text in the messages and values of a session or of all sessions of an agent, "
        "newest first. A long search stops at a limit and says so; pass next_cursor to continue.",
    ),
)
TOOLS_BY_NAME = {tool.name: tool for tool in TOOLS}
TEMPLATES = {
    "agent": (uris.AGENT_TEMPLATE, "The newest sessions of an agent."),
    "session": (uris.SESSION_TEMPLATE, "A session: status, values, last messages, checkpoints."),
    "snapshot": (uris.SNAPSHOT_TEMPLATE, "A session at one of its checkpoints."),
}


def create_server(
    state_store: StateStore, get_access: Access | AccessReader | None = None
) -> Server[Any]:
    """Return an MCP server on a store, to run on any transport of the SDK.

    Args:
        state_store: Where the sessions are. It is not closed with the server.
        get_access: What callers may do: everything by default, the same for all, or a function of
            the context of a request.

    Raises:
        TypeError: ``state_store`` is not a StateStore.

    """
    if not isinstance(state_store, StateStore):
        raise TypeError(
            f"state_store must be a StateStore, got {short_repr(state_store)}; "
            "open one with open_state_store(url)"
        )
    access = get_access or Access()
    handlers = Handlers(Services(state_store), access)
    instructions = INSTRUCTIONS
    if isinstance(access, Access) and access.agents is not None:
        instructions += f"\nThe agent is {' or '.join(sorted(access.agents))}."
    return Server(
        "holdfast",
        title="Holdfast",
        version=holdfast.__version__,
        description="Keeps the state of AI agents.",
        instructions=instructions,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
    )


class Handlers:
    """The request handlers of a server."""

    def __init__(self, services: Services, get_access: Access | AccessReader) -> None:
        self._services = services
        self._get_access = get_access

    def _access(self, context: Any) -> Access:
        return (
            self._get_access if isinstance(self._get_access, Access) else self._get_access(context)
        )

    # --------------------------------------------------------------------------------- tools

    async def list_tools(self, context: Any, params: Any) -> types.ListToolsResult:  # noqa: ARG002
        """List the tools that the caller may use."""
        access = self._access(context)
        return types.ListToolsResult(
            tools=[tool.describe() for tool in TOOLS if access.can_write or not tool.writes]
        )

    async def call_tool(
        self, context: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Call a tool. What goes wrong is a result that the model reads."""
        tool = TOOLS_BY_NAME.get(params.name)
        if tool is None:
            raise MCPError(
                types.INVALID_PARAMS,
                f"no tool {short_repr(params.name)}; use one of {', '.join(TOOLS_BY_NAME)}",
            )
        try:
            access = self._access(context)
            if tool.writes:
                access.check_write(tool.name)
            given = params.arguments or {}
            check_size(given)
            # Large values are references in results; a search reads those that are text.
            with keep_references():
                result = await tool.function(
                    self._services, access, tool.arguments.model_validate(given)
                )
        except Exception as error:  # noqa: BLE001 - every error is reported to the model
            return types.CallToolResult(content=[make_text(explain_error(error))], is_error=True)
        tree = result.model_dump(mode="json", by_alias=True)
        text = msgspec.json.encode(tree).decode()
        return types.CallToolResult(content=[make_text(text)], structured_content=tree)

    # ----------------------------------------------------------------------------- resources

    async def list_resources(self, context: Any, params: Any) -> types.ListResourcesResult:
        """List the sessions that the caller may read, the last active first."""
        cursor = None if params is None else params.cursor
        try:
            entries, token = await list_sessions(self._services, self._access(context), cursor)
        except Exception as error:  # noqa: BLE001 - reported to the client
            raise to_protocol_error(error) from None
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=str(uris.ResourceUri(entry.agent_id, entry.session_id)),
                    name=f"{entry.agent_id}/{entry.session_id}",
                    title=f"Session {entry.session_id} of {entry.agent_id}",
                    description=f"Last active {entry.active_at:%Y-%m-%d %H:%M} UTC.",
                    mime_type=MIME_TYPE,
                )
                for entry in entries
            ],
            next_cursor=token,
        )

    async def list_templates(
        self,
        context: Any,  # noqa: ARG002 - the same for all
        params: Any,  # noqa: ARG002 - one page
    ) -> types.ListResourceTemplatesResult:
        """List the kinds of resources."""
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    name=name, uri_template=template, description=text, mime_type=MIME_TYPE
                )
                for name, (template, text) in TEMPLATES.items()
            ]
        )

    async def read_resource(
        self, context: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Read a session or a snapshot."""
        uri = str(params.uri)
        try:
            with keep_references():
                text = await read_resource(self._services, self._access(context), uri)
        except Exception as error:  # noqa: BLE001 - reported to the client
            raise to_protocol_error(error) from None
        contents = types.TextResourceContents(uri=uri, text=text, mime_type=MIME_TYPE)
        return types.ReadResourceResult(contents=[contents])


def check_size(given: dict[str, Any]) -> None:
    """Reject arguments that are too large, too deep, or not text that can be stored.

    Raises:
        ValueError: They are.

    """
    try:
        size = len(msgspec.json.encode(given))
    except UnicodeEncodeError:
        raise ValueError("arguments have a lone surrogate; send valid Unicode") from None
    except RecursionError:
        raise ValueError("arguments are nested too deeply; send flatter data") from None
    if size > MAX_ARGUMENTS:
        raise ValueError(
            f"arguments have {size:,} bytes, and the limit is {MAX_ARGUMENTS:,}; save in several "
            "calls, or store a reference to a file instead of its content"
        )


def make_text(text: str) -> types.TextContent:
    """Return a text as the content of a result."""
    return types.TextContent(type="text", text=text)


def to_protocol_error(error: Exception) -> MCPError:
    """Return an error of a request that has no result to carry it."""
    return MCPError(types.INVALID_PARAMS, explain_error(error))
