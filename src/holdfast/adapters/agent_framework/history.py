"""`HoldfastHistoryProvider`: the conversation of an agent is a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_framework import HistoryProvider, Message

# It has no public name.
from agent_framework._sessions import filter_new_messages

from holdfast.adapters.agent_framework.object_types import validate_message
from holdfast.adapters.base import StoreAdapter
from holdfast.adapters.shared_session import SessionPool
from holdfast.errors import IntegrityError, short_repr
from holdfast.sessions.run_status import COMPLETED, RUNNING, WAITING
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import AGENT, SnapshotLocation, validate_id
from holdfast.stores.base import StateStore

DEFAULT_SESSION = "default"
"""The session id of a run without a session, as in the framework's ``FileHistoryProvider``."""


class HoldfastHistoryProvider(StoreAdapter, HistoryProvider):
    """Conversations in a ``StateStore``, for ``Agent(context_providers=[…])``.

    The id of the framework's ``AgentSession`` is that of the Holdfast session. Agents in other
    tasks and processes may use the same session; no messages are lost.
    """

    def __init__(
        self,
        state_store: StateStore,
        *,
        agent_id: str = "agent",
        source_id: str = "holdfast",
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
        skip_excluded: bool = False,
    ) -> None:
        StoreAdapter.__init__(self, state_store)
        HistoryProvider.__init__(
            self,
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self.agent_id = validate_id(agent_id, "agent_id")
        self.skip_excluded = skip_excluded
        self._pool = SessionPool(state_store)

    def location(self, session_id: str | None) -> SnapshotLocation:
        """Return the location of a session."""
        return SnapshotLocation(session_id or DEFAULT_SESSION, AGENT, self.agent_id)

    async def get_messages(
        self,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002 - the messages are not in it
        **kwargs: Any,  # noqa: ARG002
    ) -> list[Message]:
        """Return the messages of a session, in order.

        With ``skip_excluded``, leave out those that the framework's compaction has excluded.

        Raises:
            IntegrityError: Stored data is damaged, or is not a message.
            StateStoreError: The store failed.

        """
        messages = await self._pool.read(self.location(session_id), read_messages)
        if self.skip_excluded:
            messages = [
                each for each in messages if not each.additional_properties.get("_excluded")
            ]
        return messages

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Append messages to a session, all of them or none; n messages are n entries.

        Messages that repeat the end of the stored conversation are not stored again, by the same
        rule as in the framework's own providers.

        Raises:
            UnsupportedValueError: A message holds a value that is not JSON.
            StateStoreError: The store failed.

        """
        for number, message in enumerate(messages):
            validate_message(message, f"$.messages[{number}]")
        given = list(messages)

        def add(session: Session) -> None:
            for message in filter_new_messages(read_messages(session), given):
                session.append_message(message.to_dict())
            session.status = choose_status(given[-1])

        if given:
            await self._pool.update(self.location(session_id), add)


def read_messages(session: Session) -> list[Message]:
    """Return the messages of a session as objects of the framework."""
    return [build_message(each, number) for number, each in enumerate(session.messages)]


def build_message(stored: object, number: int) -> Message:
    """Return a message; one with a role and content, as other tools store it, is understood, too.

    Raises:
        IntegrityError: It is not a message.

    """
    try:
        if isinstance(stored, dict):
            if "contents" not in stored and isinstance(stored.get("content"), str):
                return Message(stored["role"], [stored["content"]])
            return Message.from_dict(stored)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise damaged_message(stored, number) from error
    raise damaged_message(stored, number)


def damaged_message(stored: object, number: int) -> IntegrityError:
    """Return the error for an entry that is not a message."""
    return IntegrityError(
        f"entry {number} of the conversation is not a message: {short_repr(stored)}; restore the "
        "session to an earlier snapshot, or remove it"
    )


def choose_status(last: Message) -> str:
    """Return the status of a session after a message was added last."""
    kinds = {each.type for each in last.contents}
    if kinds & {"function_approval_request", "oauth_consent_request"}:
        return WAITING
    is_answer = last.role == "assistant" and "function_call" not in kinds
    return COMPLETED if is_answer else RUNNING
