"""What the tools share: the store, its catalog, and how sessions and states are found."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.adapters.shared_session import SessionPool
from holdfast.errors import NotFoundError, short_repr
from holdfast.mcp_server.access import Access
from holdfast.snapshots.keys import SnapshotLocation, is_snapshot_id
from holdfast.snapshots.records import SnapshotInfo
from holdfast.stores.base import StateStore
from holdfast.transfer.manager import SnapshotManager

HEAD = "head"
LATEST = "latest"
TAG = "tag:"
MAX_SEQ_DIGITS = 12


@dataclass(frozen=True, slots=True)
class StateRef:
    """A state of a session that was found."""

    location: SnapshotLocation
    at: str | int | None
    """A snapshot id, an event number, or None for the head."""
    info: SnapshotInfo | None = None
    """The record of the snapshot, if it is one."""

    @property
    def seq(self) -> int | None:
        """The number of its last event; None for the head."""
        if self.info is not None:
            return self.info.seq
        return self.at if isinstance(self.at, int) else None

    @property
    def snapshot_id(self) -> str | None:
        """The id of the snapshot, if it is one."""
        return None if self.info is None else self.info.snapshot_id


class Services:
    """The store and what works on it. Sessions in the pool are at the last commit in each call."""

    def __init__(self, state_store: StateStore) -> None:
        self.state_store = state_store
        self.manager = SnapshotManager(state_store)
        self.archive = self.manager.archive
        self.catalog = self.manager.catalog
        self.pool = SessionPool(state_store)

    async def locate(
        self, access: Access, agent_id: str, session_id: str | None = None
    ) -> SnapshotLocation:
        """Find a session that exists, by default the agent's latest one.

        Raises:
            AccessError: The caller may not use this agent.
            NotFoundError: There is no such session.

        """
        access.check_agent(agent_id)
        try:
            return await self.manager.locate(agent_id, session_id)
        except NotFoundError:
            if access.agents is None:
                raise
            # The error suggests similar names, which may be those of other agents.
            what = "session" if session_id is None else f"session {short_repr(session_id)}"
            raise NotFoundError(f"agent {short_repr(agent_id)} has no {what}") from None

    async def resolve(self, location: SnapshotLocation, ref: str | int) -> StateRef:
        """Find the state that a reference names. Whether an event exists is checked by its load.

        Raises:
            NotFoundError: The session has no such snapshot.
            ValueError: The reference is invalid.

        """
        text = str(ref)
        if text == HEAD:
            return StateRef(location, None)
        info: SnapshotInfo | None
        if text == LATEST:
            info = await self.archive.load_info(location=location)
        elif text.startswith(TAG):
            info = await self._find_tagged(location, text.removeprefix(TAG))
        elif is_snapshot_id(text):
            info = await self.archive.load_info(location=location, snapshot_id=text)
            if info is None and text.isdecimal() and len(text) <= MAX_SEQ_DIGITS:
                if int(text) < 1:
                    raise ValueError("invalid event number 0; events are counted from 1")
                return StateRef(location, int(text))
        else:
            raise ValueError(
                f"invalid reference {short_repr(ref)}; use a snapshot id, an event number, "
                "'head', 'latest' or 'tag:NAME=VALUE'"
            )
        if info is None:
            raise NotFoundError(
                f"session {location.session_id} of {location.scope_id} has no checkpoint "
                f"{short_repr(ref)}"
            )
        return StateRef(location, info.snapshot_id, info)

    async def _find_tagged(self, location: SnapshotLocation, tag: str) -> SnapshotInfo | None:
        """Return the newest snapshot with a tag, or None."""
        name, equals, value = tag.partition("=")
        if not equals or not name:
            raise ValueError(f"invalid tag {short_repr(tag)}; write tag:NAME=VALUE")

        def has_tag(info: SnapshotInfo | None) -> bool:
            return info is not None and info.tags.get(name) == value

        latest = await self.archive.load_info(location=location)
        if has_tag(latest):
            return latest
        return await self.archive.find_newest_info(location=location, wanted=has_tag)
