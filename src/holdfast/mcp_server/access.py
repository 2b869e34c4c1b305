"""What a caller may do: read or also write, all agents or some."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import HoldfastError, short_repr
from holdfast.snapshots.keys import validate_id


class AccessError(HoldfastError):
    """The caller may not do this."""


@dataclass(frozen=True, slots=True)
class Access:
    """What the caller of a tool may do.

    ``agents`` limits it to these agents. ``refusal`` says why it may not write, and what to do.

    Raises:
        ValueError: The id of an agent is invalid.

    """

    can_write: bool = True
    agents: frozenset[str] | None = None
    refusal: str = "the server is read-only; start it without --read-only"
    name: str = "this server"

    def __post_init__(self) -> None:
        for agent_id in self.agents or ():
            validate_id(agent_id, "agent")

    def check_agent(self, agent_id: str) -> None:
        """Reject an agent that the caller may not use, whether it exists or not.

        Raises:
            AccessError: The agent is not covered.

        """
        if self.agents is not None and agent_id not in self.agents:
            names = " or ".join(sorted(self.agents)[:5]) or "another token"
            raise AccessError(
                f"{self.name} does not cover agent {short_repr(agent_id)}; use {names}"
            )

    def check_write(self, tool: str) -> None:
        """Reject a tool that writes, if the caller may only read.

        Raises:
            AccessError: The caller may only read.

        """
        if not self.can_write:
            raise AccessError(f"{tool} is not allowed: {self.refusal}")
