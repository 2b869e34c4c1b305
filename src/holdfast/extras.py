"""Report a missing optional dependency with the command that installs it.

The name of the missing package is seldom the name of the extra that installs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import HoldfastError

FEATURES = {
    "a2a": "the A2A adapter",
    "adk": "the Google ADK adapter",
    "agent-framework": "the Microsoft Agent Framework adapter",
    "claude-agent": "the Claude Agent SDK adapter",
    "cli": "the command line",
    "compression": "zstd compression",
    "crewai": "the CrewAI adapter",
    "dapr": "a Dapr store",
    "encryption": "encryption",
    "langgraph": "LangGraph support",
    "mcp": "the MCP server",
    "nats": "a NATS store",
    "objectstore": "an object store",
    "openai-agents": "the OpenAI Agents adapter",
    "postgresql": "PostgreSQL support",
    "pydantic-ai": "the Pydantic AI adapter",
    "redaction": "redaction",
    "redis": "a Redis store",
    "server": "the server",
    "signing": "signing",
    "strands": "the Strands adapter",
    "testing": "holdfast.testing",
}


class MissingExtraError(HoldfastError, ImportError):
    """An optional dependency is not installed, too old, or broken.

    ``extra`` is the extra that installs it, as in ``pip install 'holdfast[extra]'``.
    """

    def __init__(self, extra: str, problem: str = "", *, name: str | None = None) -> None:
        problem = problem or f"needs the extra {extra!r}"
        hint = f"pip install 'holdfast[{extra}]'"
        super().__init__(f"{FEATURES[extra]} {problem}; {hint}", name=name)
        self.extra = extra


@contextmanager
def require_extra(extra: str) -> Iterator[None]:
    """Turn the failure of an import inside the block into a `MissingExtraError`.

    Raises:
        MissingExtraError: A package outside of Holdfast could not be imported.

    """
    try:
        yield
    except MissingExtraError:
        raise
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package == "holdfast":
            raise
        if isinstance(error, ModuleNotFoundError):
            problem = f"needs the extra {extra!r} ({package} is not installed)"
        else:
            problem = f"cannot be loaded: {error}"
        raise MissingExtraError(extra, problem, name=error.name) from error
