"""`HoldfastSessionService`: the sessions of Google ADK as Holdfast sessions.

Every call starts from the last commit, by any writer, and is durable when it returns. A session
object carries the position of its last event. An event is appended only at that position, so an
agent never continues a conversation that another writer has continued.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions import BaseSessionService
from google.adk.sessions import Session as AdkSession
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

from holdfast.adapters.adk import layout
from holdfast.adapters.adk.event_append import EventAppend, storable_delta
from holdfast.adapters.adk.events import (
    decode_event,
    event_timestamp,
    iterate_backwards,
    read_position,
)
from holdfast.adapters.adk.layout import StateDelta
from holdfast.adapters.adk.listing import ListedSession, list_app_sessions
from holdfast.adapters.adk.shared_state import BEFORE_EVENTS, Origin, SharedState
from holdfast.adapters.base import StoreAdapter
from holdfast.adapters.shared_session import SessionPool, session_exists
from holdfast.errors import ConflictError, HoldfastError, StateStoreError
from holdfast.ids import new_id
from holdfast.sessions.restore import SnapshotRef
from holdfast.sessions.session import Session
from holdfast.snapshots.delete import delete_locations
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_state import MESSAGES, STATE
from holdfast.state.diff import Changes
from holdfast.stores.base import StateStore
from holdfast.stores.local import gather

logger = logging.getLogger("holdfast.adapters.adk")


class HoldfastSessionService(StoreAdapter, BaseSessionService):
    """ADK's sessions in a ``StateStore``, for ``Runner(…, session_service=…)``.

    Tasks, threads and processes may use the same sessions, each with its own service. Two writers
    that continue the same session do not mix: one of them gets ADK's ``StaleSessionError``.

    Args:
        state_store: The store that holds the sessions.
        state_in_lists: Whether `list_sessions` returns the state of each session. It has to load
            every listed session then.

    """

    def __init__(self, state_store: StateStore, *, state_in_lists: bool = False) -> None:
        super().__init__(state_store)
        self.state_in_lists = state_in_lists
        self._pool = SessionPool(state_store)
        self._shared = SharedState(self._pool)

    async def close(self) -> None:
        """Close the store."""
        await self.aclose()

    # ------------------------------------------------------------------------------- sessions

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> AdkSession:
        """Create a session, by default with a generated id.

        Raises:
            AlreadyExistsError: The user has a session with this id.
            UnsupportedValueError: A value of the state cannot be stored; nothing was written.
            StateStoreError: The store failed.

        """
        session_id = (session_id or "").strip() or platform_uuid.new_uuid()
        location = self.location(app_name, user_id, session_id)
        delta = storable_delta(layout.split_state(state or {}))
        creation = layout.Creation(platform_time.get_time(), new_id())

        def check(session: Session) -> None:
            if session_exists(session):
                raise AlreadyExistsError(
                    f"session {session_id!r} of user {user_id!r} in app {app_name!r} exists; "
                    "choose another id, or continue it with get_session"
                )

        def create(session: Session) -> None:
            check(session)
            changes: Changes = {
                "set": [
                    (layout.ADK, layout.CREATION, creation.to_value()),
                    *((STATE, key, value) for key, value in delta.session.items()),
                ],
                "delete": [],
            }
            ids = {"app_name": app_name, "user_id": user_id, "session_id": session_id}
            session.record(layout.CREATED_EVENT, ids, changes=changes)

        if delta.app or delta.user:
            await self._pool.read(location, check)
        origin = Origin(location.session_id, BEFORE_EVENTS, creation.mark)
        await self._commit_with_shared(app_name, user_id, delta, origin, location, create)
        found = await self.get_session(app_name=app_name, user_id=user_id, session_id=session_id)
        if found is None:
            raise SessionNotFoundError(f"session {session_id!r} was deleted while it was created")
        return found

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> AdkSession | None:
        """Return a session with all or some of its events, or None if it does not exist.

        With ``num_recent_events`` or ``after_timestamp``, other events are not decoded.

        Raises:
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        session_id = session_id.strip()
        location = self._find_location(app_name, user_id, session_id)
        if location is None:
            return None
        found = await self._pool.read(location, lambda session: read_session(session, config))
        if found is None:
            return None
        found.id, found.app_name, found.user_id = session_id, app_name, user_id
        found.state = await self._merge_state(app_name, user_id, found.state)
        return found

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of an app, or of one user, the last active last.

        They have no events, and no state unless the service was made with ``state_in_lists``. The
        conversations are not loaded.

        Raises:
            StateStoreError: The store failed.

        """
        listed = await list_app_sessions(self.state_store, app_name, user_id)
        sessions = []
        for each in listed:
            found: AdkSession | None = make_session(app_name, each)
            if self.state_in_lists:
                found = await self.get_session(
                    app_name=app_name,
                    user_id=each.user_id,
                    session_id=each.session_id,
                    config=GetSessionConfig(num_recent_events=0),
                )
            if found is not None:
                sessions.append(found)
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its log and snapshots, if it exists.

        The state that it shares with others, and its artifacts, are kept.

        Raises:
            ConflictError: Other processes delete the session at the same time; retry.
            StateStoreError: The store failed.

        """
        location = self._find_location(app_name, user_id, session_id.strip())
        if location is not None:
            for shared in (layout.user_location(app_name, user_id), layout.app_location(app_name)):
                await self._shared.recover(shared)  # what refers to events of the session
            await delete_locations(self.state_store, location.session_id, [location])

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that the sessions of a user share, without the prefix ``user:``.

        Raises:
            StateStoreError: The store failed.

        """
        return await self._shared.read(layout.user_location(app_name, user_id))

    # --------------------------------------------------------------------------------- events

    async def append_event(self, session: AdkSession, event: Event) -> Event:
        """Append an event to a session, and apply its changes to the state.

        A partial event is not stored, and neither is state with the prefix ``temp:``. An event that
        is already stored is not appended again, so a call whose outcome is unknown can be repeated.

        Raises:
            StaleSessionError: Another writer has continued the session; nothing was written.
                Reload it with `get_session`.
            SessionNotFoundError: The session does not exist.
            UnsupportedValueError: A value cannot be stored; nothing was written.
            StateStoreError: The store failed.

        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        delta = storable_delta(layout.split_state(event.actions.state_delta))
        append = EventAppend(session, event, delta)
        location = self.location(session.app_name, session.user_id, session.id)
        if delta.app or delta.user:
            position = await self._pool.read(location, append.check)
            if position is not None:
                origin = Origin(location.session_id, position.number, event.id)
                await self._commit_with_shared(
                    session.app_name, session.user_id, delta, origin, location, append.record
                )
        else:
            await self._append_without_refresh(location, append)
        session._storage_update_marker = append.marker
        session.last_update_time = event.timestamp
        if append.is_repeated and any(each.id == event.id for each in session.events):
            return event
        return self._commit_event_to_session(session, event)

    async def _append_without_refresh(
        self, location: SnapshotLocation, append: EventAppend
    ) -> None:
        """Append an event without a read, unless the session in memory may be out of date."""
        try:
            await self._pool.update(location, append.record, must_refresh=False)
        except (StaleSessionError, SessionNotFoundError):
            await self._pool.update(location, append.record)

    async def _commit_with_shared(
        self,
        app_name: str,
        user_id: str,
        delta: StateDelta,
        origin: Origin,
        location: SnapshotLocation,
        record: Callable[[Session], None],
    ) -> None:
        """Commit to a session, together with its changes to the state of its user and app."""
        shared = [
            (where, values)
            for where, values in (
                (layout.user_location(app_name, user_id), delta.user),
                (layout.app_location(app_name), delta.app),
            )
            if values
        ]
        prepared: list[tuple[SnapshotLocation, str]] = []
        try:
            for where, values in shared:
                prepared.append((where, await self._shared.prepare(where, origin, values)))
            await self._pool.update(location, record)
        except StateStoreError:
            raise  # the outcome may be unknown; the next writer of the shared state looks it up
        except Exception as error:
            for where, key in prepared:
                try:
                    await self._shared.drop(where, key)
                except HoldfastError as problem:
                    error.add_note(f"changes to the state {where.session_id} stay: {problem}")
            raise
        for where, key in prepared:
            try:
                await self._shared.apply(where, key)
            except (StateStoreError, ConflictError) as error:
                # The changes are committed and visible; the next writer applies them.
                logger.warning("changes to the state %s stay pending: %s", where.session_id, error)

    async def _merge_state(
        self, app_name: str, user_id: str, state: dict[str, Any]
    ) -> dict[str, Any]:
        locations = (layout.app_location(app_name), layout.user_location(app_name, user_id))
        app, user = await gather(map(self._shared.read, locations))
        return layout.join_state(StateDelta(app, user, state))

    # --------------------------------------------------------------------- Holdfast's sessions

    def location(self, app_name: str, user_id: str, session_id: str) -> SnapshotLocation:
        """Return the location of a session: agent ``app``, session ``app:user:session``.

        Raises:
            TypeError: An id is not a str.
            ValueError: The ids have more than 256 characters in all.

        """
        return layout.session_location(app_name, user_id, session_id)

    def _find_location(
        self, app_name: str, user_id: str, session_id: str
    ) -> SnapshotLocation | None:
        """Return the location of a session, or None if ids cannot be those of one."""
        try:
            return self.location(app_name, user_id, session_id) if session_id else None
        except ValueError:
            return None

    def state_location(self, app_name: str, user_id: str | None = None) -> SnapshotLocation:
        """Return the location of the state of a user, or of an app.

        Raises:
            TypeError: An id is not a str.
            ValueError: The ids have more than 256 characters in all.

        """
        if user_id is None:
            return layout.app_location(app_name)
        return layout.user_location(app_name, user_id)

    async def open(self, *, app_name: str, user_id: str, session_id: str) -> Session:
        """Open a session as a Holdfast session, to save, restore, export or verify it.

        Raises:
            NotFoundError: The session does not exist.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        location = self.location(app_name, user_id, session_id)
        return await Session.open(
            self.state_store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            must_exist=True,
        )

    async def fork_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        new_session_id: str | None = None,
        at: SnapshotRef | None = None,
    ) -> AdkSession:
        """Create a session of the same user with this conversation, now or at a snapshot.

        Raises:
            NotFoundError: The session, snapshot or event does not exist, or was pruned.
            ConflictError: A session with the id of the fork exists.
            StateStoreError: The store failed.

        """
        new_session_id = (new_session_id or "").strip() or platform_uuid.new_uuid()
        session = await self.open(app_name=app_name, user_id=user_id, session_id=session_id)
        await session.fork(self.location(app_name, user_id, new_session_id).session_id, at=at)
        found = await self.get_session(
            app_name=app_name, user_id=user_id, session_id=new_session_id
        )
        if found is None:
            raise SessionNotFoundError(f"session {new_session_id!r} was deleted after the fork")
        return found

    def __repr__(self) -> str:
        return f"<HoldfastSessionService on {self.state_store!r}>"


# ---------------------------------------------------------------------------------------- reading


def read_session(session: Session, config: GetSessionConfig | None) -> AdkSession | None:
    """Return a session without the state that it shares, or None if it does not exist."""
    if not session_exists(session):
        return None
    state = session.snapshot()
    position = read_position(session)
    most = None if config is None else config.num_recent_events
    after = None if config is None else config.after_timestamp
    if most is None and after is None:
        messages = [(key, value) for _, key, value in state.items(MESSAGES)]
    else:
        messages = []
        for key, message in iterate_backwards(state, position.number):
            time = event_timestamp(message)
            if len(messages) == most or (after is not None and (time is None or time < after)):
                break
            messages.append((key, message))
        messages.reverse()
    last = next(iterate_backwards(state, position.number), ("", None))[1]
    time = event_timestamp(last)
    found = AdkSession(
        id=session.session_id,
        app_name=session.agent_id,
        user_id="",
        state={key: value for _, key, value in state.items(STATE)},
        events=[decode_event(key, message) for key, message in messages],
        last_update_time=layout.read_creation(state).time if time is None else time,
    )
    found._storage_update_marker = position.to_marker()
    return found


def make_session(app_name: str, listed: ListedSession) -> AdkSession:
    """Return a session of a list, without events and state."""
    return AdkSession(
        id=listed.session_id,
        app_name=app_name,
        user_id=listed.user_id,
        last_update_time=listed.last_update_time,
    )
