"""Append an event to a session, at the position that the caller knows and only once."""

from __future__ import annotations

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.sessions import Session as AdkSession

from holdfast.adapters.adk.events import (
    ConversationPosition,
    encode_event,
    event_id,
    infer_event_status,
    iterate_backwards,
    read_position,
    storable_value,
)
from holdfast.adapters.adk.layout import StateDelta
from holdfast.adapters.shared_session import session_exists
from holdfast.sessions.session import Session


class EventAppend:
    """An event that is appended to a session, at the position that the caller knows."""

    def __init__(self, session: AdkSession, event: Event, delta: StateDelta) -> None:
        self.session = session
        self.event = event
        self.delta = delta
        self.message = encode_event(event)
        self.marker: str | None = None
        """The position after the event."""
        self.is_repeated = False
        """Whether the event was stored by an earlier call."""

    def check(self, session: Session) -> ConversationPosition | None:
        """Return the position for the event, or None if it is already stored.

        Raises:
            StaleSessionError: Another writer has continued the session.
            SessionNotFoundError: The session does not exist.

        """
        if not session_exists(session):
            raise SessionNotFoundError(
                f"session {self.session.id!r} of user {self.session.user_id!r} in app "
                f"{self.session.app_name!r} does not exist; create it with create_session"
            )
        position = read_position(session)
        known = self.session._storage_update_marker
        is_current = (
            known == position.to_marker()
            if known is not None
            else self._last_known_id() == position.last_id
        )
        self.is_repeated = self._is_stored(session, position, is_current=is_current)
        if self.is_repeated:
            self.marker = position.to_marker()
            return None
        if not is_current:
            raise StaleSessionError(
                f"session {self.session.id!r} was changed by another writer: it has "
                f"{position.number} events now, the last is {position.last_id or 'none'}; reload "
                "it with get_session and append the event to the result"
            )
        return position

    def record(self, session: Session) -> None:
        """Append the event, unless it is already stored. Raises as `check` does."""
        position = self.check(session)
        if position is None:
            return
        session.append_message(self.message)
        for key, value in self.delta.session.items():
            session.set(key, value)
        status = infer_event_status(self.event)
        if status is not None:
            session.status = status
        after = ConversationPosition(position.incarnation, position.number + 1, self.event.id)
        self.marker = after.to_marker()

    def _last_known_id(self) -> str:
        """Return the id of the last event of a session object without a position."""
        return str(self.session.events[-1].id) if self.session.events else ""

    def _is_stored(
        self, session: Session, position: ConversationPosition, *, is_current: bool
    ) -> bool:
        """Tell whether an equal event is stored.

        For a session that is not current, only its end is searched: the event is there after a
        call that was interrupted. Otherwise a caller that repeats a call has the event.
        """
        id_ = self.event.id
        if is_current and not any(each.id == id_ for each in self.session.events):
            return False
        messages = iterate_backwards(session.snapshot(), position.number)
        for _, message in messages:
            if event_id(message) == id_ and message == self.message:
                return True
            if not is_current:
                return False
        return False


def storable_delta(delta: StateDelta) -> StateDelta:
    """Return changes to state with values that can be stored.

    Raises:
        UnsupportedValueError: A value cannot be stored.

    """
    return StateDelta(
        *(
            {key: storable_value(value, f"$.state.{key}") for key, value in values.items()}
            for values in (delta.app, delta.user, delta.session)
        )
    )
