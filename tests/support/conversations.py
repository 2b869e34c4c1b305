"""Open sessions for tests, open them again as another process would, and read them."""

from __future__ import annotations

import asyncio

from holdfast import Session
from holdfast.stores.memory import MemoryStateStore

AGENT = "bot"
SESSION = "ses"


def open_session(state_store, session_id=SESSION, *, agent_id=AGENT, **options):
    """Open the session of a test; await or enter the result."""
    return Session.open(state_store, agent_id=agent_id, session_id=session_id, **options)


async def reopen_session(session):
    """Open a session again, as another process would."""
    return await Session.open(
        session.state_store,
        agent_id=session.agent_id,
        session_id=session.session_id,
        scope=session.scope,
        must_exist=True,
    )


async def open_two_writers(state_store, **options):
    """Create a session, and return it as two writers have it."""
    one = await open_session(state_store, **options)
    await one.commit()
    return one, await open_session(state_store, **options)


async def add_messages(session, *texts):
    """Add messages to a session, one commit each, and return it."""
    for text in texts:
        session.add_message("user", text)
        await session.commit()
    return session


def list_contents(session):
    """Return the contents of the messages, in order."""
    return [message.get("content") for message in session.messages]


def list_types(events):
    """Return the types of events, in order."""
    return [event.type for event in events]


def capture_state(session):
    """Return the state of a session with its pending events, to check that nothing changed."""
    return session.snapshot().digest, [event.id for event in session.events], session.message_count


class Effect:
    """A side effect that counts how often it is done."""

    def __init__(self, result="paid", error=None):
        self.times = 0
        self.result = result
        self.error = error

    def __call__(self):
        self.times += 1
        if self.error is not None:
            raise self.error
        return self.result

    async def slowly(self):
        await asyncio.sleep(0.01)
        return self()


async def make_large_session(state_store=None, *, messages=60):
    """Return a session whose log is large enough for a keyframe when it is imported."""
    session = await open_session(state_store or MemoryStateStore())
    for number in range(messages):
        session.add_message("user", f"{number} " + "long " * 400)
        session.set("notes", f"{number} " + "long " * 1200)
        await session.commit()
    return session
