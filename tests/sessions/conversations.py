"""Sessions for tests: opened under one name, opened again as another process would, and read."""

from __future__ import annotations

from holdfast import Session

AGENT = "bot"
SESSION = "ses"


def opened(state_store, session_id=SESSION, *, agent_id=AGENT, **options):
    """The session that the tests work with, to be awaited or entered."""
    return Session.open(state_store, agent_id=agent_id, session_id=session_id, **options)


async def reopened(session):
    """What another process finds of a session."""
    return await Session.open(
        session.state_store,
        agent_id=session.agent_id,
        session_id=session.session_id,
        scope=session.scope,
        must_exist=True,
    )


async def two(state_store, **options):
    """One session, begun and committed, as two writers have it."""
    one = await opened(state_store, **options)
    await one.commit()
    return one, await opened(state_store, **options)


async def said(session, *texts):
    """A session in which this was said, each in a commit of its own."""
    for text in texts:
        session.add_message("user", text)
        await session.commit()
    return session


def contents(session):
    """What was said, in order."""
    return [message["content"] for message in session.messages]


def types(events):
    """What happened, in order."""
    return [event.type for event in events]


def everything(session):
    """All that a session holds in memory and all that waits, to see that nothing changed."""
    return session.snapshot().digest, [event.id for event in session.events], session.message_count
