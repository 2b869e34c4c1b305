"""`HoldfastFlowPersistence`: a run of a flow is a session, and each save an event of it."""

from __future__ import annotations

from typing import Any, Self
from weakref import WeakValueDictionary

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence.base import FlowPersistence
from pydantic import BaseModel, Field, PrivateAttr

from holdfast.adapters.base import validate_state_store
from holdfast.adapters.crewai.flow_state import (
    METHOD_EVENT,
    PAUSED_EVENT,
    PENDING,
    PENDING_FIELDS,
    RESUMED_EVENT,
    ROOT,
    FieldEntries,
    encode_at,
    get_pending,
    read_fields,
    read_pending_fields,
    rename_flow,
    to_fields,
)
from holdfast.adapters.shared_session import SessionPool
from holdfast.errors import IntegrityError
from holdfast.ids import new_id
from holdfast.sessions.run_status import RUNNING, WAITING
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import AGENT, SnapshotLocation, validate_id
from holdfast.state.diff import Changes
from holdfast.stores.base import StateStore
from holdfast.stores.portal import sync
from holdfast.stores.registry import open_state_store

NAME = "HoldfastFlowPersistence"

_open_stores: WeakValueDictionary[str, StateStore] = WeakValueDictionary()
"""The stores of this process by the names that flow definitions have for them."""


class HoldfastFlowPersistence(FlowPersistence):
    """States of flows in a ``StateStore``, for ``@persist(…)`` and ``Flow(persistence=…)``.

    The id of a flow's state is that of the Holdfast session. A definition of a flow that CrewAI
    serializes has no URL or password of the store in it, only a name that this process knows: in
    another process the store is that of ``HOLDFAST_STORE``.
    """

    persistence_type: str = Field(default=NAME)
    agent_id: str = Field(default="flow")
    store_name: str = Field(default_factory=new_id)
    _state_store: StateStore = PrivateAttr()
    _pool: SessionPool = PrivateAttr()

    def __init__(self, state_store: StateStore | None = None, /, **fields: Any) -> None:
        if state_store is not None:
            validate_state_store(state_store)
        super().__init__(**fields)
        validate_id(self.agent_id, "agent_id")
        if state_store is None:
            state_store = _open_stores.get(self.store_name) or open_state_store()
        self._state_store = _open_stores[self.store_name] = state_store
        self._pool = SessionPool(state_store)

    @classmethod
    def from_url(cls, url: str | None = None, **fields: Any) -> Self:
        """Open the store of a URL, by default that of ``HOLDFAST_STORE``; `close` closes it.

        Raises:
            StateStoreError: The URL is not valid.
            MissingExtraError: The store needs an extra that is not installed.

        """
        return cls(open_state_store(url), **fields)

    @property
    def state_store(self) -> StateStore:
        """The store that holds the sessions."""
        return self._state_store

    def location(self, flow_uuid: str) -> SnapshotLocation:
        """Return the location of a flow's session."""
        return SnapshotLocation(flow_uuid, AGENT, self.agent_id)

    def close(self) -> None:
        """Close the store."""
        sync(self._state_store.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __copy__(self) -> Self:
        return self  # copies of a flow share its store

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    # --------------------------------------------------------------------------- CrewAI's interface

    def init_db(self) -> None:
        """Do nothing: a store is ready when it is open."""

    def save_state(
        self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel
    ) -> None:
        """Store the state after a method, as an event; only fields that changed are written.

        Raises:
            UnsupportedValueError: A value cannot be stored; the error has its path.
            StateStoreError: The store failed.

        """
        entries = FieldEntries(flow_uuid, to_fields(state_data), method_name)

        def save(session: Session) -> None:
            working = session.committer.working
            changes = entries.find_changes(working.store)
            working.record_owned(METHOD_EVENT, {"method": method_name}, changes)
            session.status = WAITING if get_pending(session.snapshot()) is not None else RUNNING

        self._pool.update_blocking(self.location(flow_uuid), save)

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the last state of a flow, or None if none was saved.

        Raises:
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """

        def load(session: Session) -> dict[str, Any] | None:
            state = session.snapshot()
            fields = read_fields(state)
            if fields is not None:
                rename_flow(state, fields, "id", flow_uuid)
            return fields

        return self._pool.read_blocking(self.location(flow_uuid), load)

    def save_pending_feedback(
        self,
        flow_uuid: str,
        context: PendingFeedbackContext,
        state_data: dict[str, Any] | BaseModel,
    ) -> None:
        """Store the state of a flow that waits for a person, and what the person is asked.

        Raises:
            UnsupportedValueError: A value cannot be stored; the error has its path.
            StateStoreError: The store failed.

        """
        fields = to_fields(state_data)
        entries = FieldEntries(flow_uuid, fields, context.method_name)
        pending = {"context": context.to_dict(), "fields": list(fields)}
        header = encode_at(pending, "$.pending")
        about = {"method": context.method_name, "message": context.message}

        def save(session: Session) -> None:
            clear_pending(session)  # that of an earlier pause
            working = session.committer.working
            changes = entries.find_changes(working.store)
            changes["set"].append((ROOT, PENDING, header))
            working.record_owned(PAUSED_EVENT, about, changes)
            session.status = WAITING

        self._pool.update_blocking(self.location(flow_uuid), save)

    def load_pending_feedback(
        self, flow_uuid: str
    ) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state of a flow when it paused, and what a person is asked, or None.

        Raises:
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """

        def load(session: Session) -> tuple[dict[str, Any], dict[str, Any]] | None:
            state = session.snapshot()
            pending = get_pending(state)
            if pending is None:
                return None
            fields, context = read_pending_fields(state, pending), dict(pending["context"])
            rename_flow(state, fields, "id", flow_uuid)
            rename_flow(state, context, "flow_id", flow_uuid)
            return fields, context

        found = self._pool.read_blocking(self.location(flow_uuid), load)
        if found is None:
            return None
        try:
            return found[0], PendingFeedbackContext.from_dict(found[1])
        except (KeyError, TypeError, ValueError) as error:
            raise IntegrityError(
                f"pending feedback of flow {flow_uuid} is damaged: {error!r}; restore the session "
                "to an earlier snapshot"
            ) from error

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Mark a flow as resumed, if it waits for a person.

        Raises:
            StateStoreError: The store failed.

        """

        def clear(session: Session) -> None:
            if clear_pending(session):
                session.status = RUNNING

        self._pool.update_blocking(self.location(flow_uuid), clear)


def clear_pending(session: Session) -> bool:
    """Remove what a person is asked from a session; return whether there was something."""
    state = session.snapshot()
    pending = get_pending(state)
    if pending is None:
        return False
    kept = [(PENDING_FIELDS, key) for _, key, _ in state.items(PENDING_FIELDS)]
    about = {"method": str(pending["context"].get("method_name"))}
    changes: Changes = {"set": [], "delete": [*kept, (ROOT, PENDING)]}
    session.committer.working.record_owned(RESUMED_EVENT, about, changes)
    return True
