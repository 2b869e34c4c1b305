"""Open sessions for tests, open them again as another process would, and read them."""

from __future__ import annotations

import asyncio

from holdfast import Session
from holdfast.stores.memory import MemoryStateStore

AGENT = "bot"
SESSION = "ses"


def opened(state_store, session_id=SESSION, *, agent_id=AGENT, **options):
    """Open the session of a test; await or enter the result."""
    return Session.open(state_store, agent_id=agent_id, session_id=session_id, **options)


async def reopened(session):
    """Open a session again, as another process would."""
    return await Session.open(
        session.state_store,
        agent_id=session.agent_id,
        session_id=session.session_id,
        scope=session.scope,
        must_exist=True,
    )


async def two(state_store, **options):
    """Create a session, and return it as two writers have it."""
    one = await opened(state_store, **options)
    await one.commit()
    return one, await opened(state_store, **options)


async def said(session, *texts):
    """Add messages to a session, one commit each, and return it."""
    for text in texts:
        session.add_message("user", text)
        await session.commit()
    return session


def contents(session):
    """Return the contents of the messages, in order."""
    return [message["content"] for message in session.messages]


def types(events):
    """Return the types of events, in order."""
    return [event.type for event in events]


def everything(session):
    """Return the state of a session with its pending events, to check that nothing changed."""
    return session.snapshot().digest, [event.id for event in session.events], session.message_count


class Counted(MemoryStateStore):
    """Counts calls, and the keys and bytes that are written."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.keys = []
        self.bytes = 0

    def forget(self):
        """Reset the counts."""
        self.calls.clear()
        self.keys.clear()
        self.bytes = 0

    async def get(self, key):
        self.calls.append("get")
        return await super().get(key)

    async def get_many(self, keys):
        self.calls.append("get_many")
        return await super().get_many(keys)

    def list(self, prefix="", **bounds):
        self.calls.append("list")
        return super().list(prefix, **bounds)

    async def put(self, key, value, **conditions):
        self.calls.append("put")
        return await super().put(key, value, **conditions)

    async def put_many(self, puts, **conditions):
        self.calls.append("put_many")
        return await super().put_many(puts, **conditions)

    async def delete(self, key, **conditions):
        self.calls.append("delete")
        return await super().delete(key, **conditions)

    async def _put_many(self, puts, conditions=()):
        self.keys += [put.key for put in puts]
        self.bytes += sum(len(put.value) for put in puts)
        return await super()._put_many(puts, conditions)

    def held(self, part):
        """Return the keys that contain a text."""
        return [key for key in self._keys if part in key]


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


async def large_session(state_store=None, *, messages=60):
    """Return a session whose log is large enough for a keyframe when it is imported."""
    session = await opened(state_store or MemoryStateStore())
    for number in range(messages):
        session.add_message("user", f"{number} " + "long " * 400)
        session.set("notes", f"{number} " + "long " * 1200)
        await session.commit()
    return session
