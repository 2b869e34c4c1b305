"""Blocking sessions do what sessions do, without async."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
import time

import pytest

from holdfast import (
    BlockingSession,
    ConflictError,
    NotFoundError,
    Session,
    StateStoreError,
    open_state_store,
)
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.conversations import list_contents, list_types, open_session
from support.subprocesses import run_python


def twin(state_store=None, session_id="ses", **options):
    return BlockingSession.open(state_store, agent_id="bot", session_id=session_id, **options)


@pytest.fixture
def store():
    return MemoryStateStore()


# ----------------------------------------------------------------------------- the same behaviour


def run_scenario(session, call):
    """Return what a session does, of either class; ``call`` runs what has to be awaited."""
    seen = [session.agent_id, session.session_id, session.scope, session.agents, session.is_dirty]
    session.add_message("user", "hello", name="ann")
    session.append_message({"tool_calls": [{"id": "c1", "function": {"name": "search"}}]})
    session.set("plan", {"step": 1})
    session.record("tool.called", {"tool": "search"})
    session.status = "running"
    seen += [session.messages, session.state, session.status, session.message_count]
    seen += [[(each.call_id, each.tool) for each in session.unfinished], list_types(session.events)]
    call(session.commit())
    seen += [session.is_dirty, session.log.head.seq, len(session.events)]
    mark = session.snapshot()
    session.delete("plan")
    session.rollback(mark)
    seen += [session.get("plan"), list_types(session.events)[-1]]
    saved = call(session.save(tags={"env": "test"}))
    seen += [saved.tags, saved.digest, saved.event_log_count, saved.unfinished]
    seen += [call(session.last_finished())]
    session.append_message({"role": "tool", "tool_call_id": "c1"})
    finished = call(session.save())
    seen += [call(session.last_finished()).snapshot_id == finished.snapshot_id]
    call(session.restore(saved.snapshot_id))
    seen += [session.snapshot().digest == saved.digest]
    fork = call(session.fork("other", at=finished))
    seen += [fork.session_id, fork.message_count, type(fork) is type(session)]
    document = call(session.export(tags={"reason": "test"}))
    seen += [document.event_log_count, list_types(document.events), document.tags]
    seen += [call(session.verify()).ok, call(session.once("pay", lambda: 42))]
    session.add_message("user", "dropped")
    call(session.reload())
    seen += [list_contents(session), session.location.prefix, session.pop_message()]
    session.clear_messages()
    seen += [session.messages, repr(session).replace("Blocking", "")]
    return seen


def test_a_blocking_session_does_what_a_session_does():
    async def awaited(work):
        return await work

    with asyncio.Runner() as runner:
        session = runner.run(awaited(open_session(MemoryStateStore())))
        expected = run_scenario(session, lambda work: runner.run(awaited(work)))
    assert run_scenario(twin(MemoryStateStore()), lambda given: given) == expected


def describe_parameters(function):
    """Return the parameters of a method; those of the twins differ in Blocking classes only."""
    return [
        each.replace(annotation=str(each.annotation).replace("Blocking", ""))
        for each in inspect.signature(function).parameters.values()
    ]


def test_a_blocking_session_has_all_methods_of_a_session():
    own_to_async = {"archive"}
    session = twin(MemoryStateStore())
    other = session._session
    names = {name for name in dir(other) if not name.startswith("_")} - own_to_async
    assert names <= {name for name in dir(session) if not name.startswith("_")}
    for name in names - {"open", "fork", "update"}:
        ours, theirs = (inspect.getattr_static(each, name, None) for each in (session, other))
        if inspect.isfunction(ours):
            assert describe_parameters(ours) == describe_parameters(theirs)


def test_a_session_can_be_resumed_by_both_classes(store):
    with twin(store) as session:
        session.add_message("user", "blocking")

    async def go_on():
        async with open_session(store) as session:
            session.add_message("user", "async")
            return list_contents(session)

    assert run_async(go_on()) == ["blocking", "async"]
    assert list_contents(twin(store)) == ["blocking", "async"]


# --------------------------------------------------------------------------- with blocks and URLs


def test_a_with_block_commits_except_after_an_exception(store):
    with twin(store) as session:
        session.add_message("user", "kept")
    with pytest.raises(RuntimeError, match="the agent failed"), twin(store) as session:
        session.add_message("user", "lost")
        raise RuntimeError("the agent failed")
    assert list_contents(twin(store)) == ["kept"]
    assert store._closed is False


def test_a_store_that_the_session_opened_is_closed_with_it(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    with twin(url) as session:
        session.add_message("user", "kept")
    with pytest.raises(StateStoreError, match="is closed"):
        session.reload()
    session = twin(url)
    assert list_contents(session) == ["kept"]
    session.add_message("user", "not committed")
    session.close()
    session.close()
    with pytest.raises(StateStoreError, match="is closed"):
        session.commit()
    with pytest.raises(ValueError, match="stop"), twin(url) as session:
        raise ValueError("stop")
    with pytest.raises(StateStoreError, match="is closed"):
        session.reload()


def test_a_store_that_the_caller_opened_stays_open(store):
    with twin(store) as session:
        session.add_message("user", "a")
    session.close()
    assert session.state_store is store
    session.add_message("user", "b")
    session.commit()
    assert list_contents(twin(store)) == ["a", "b"]


def test_a_fork_shares_the_store_and_does_not_close_it(tmp_path):
    with twin(f"sqlite:///{tmp_path}/state.db") as session:
        session.add_message("user", "a")
        with session.fork() as fork:
            fork.add_message("user", "b")
        session.add_message("user", "c")
    assert list_contents(session) == ["a", "c"]
    assert list_contents(fork) == ["a", "b"]


def test_the_store_is_closed_if_the_last_commit_fails(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    twin(url).close()
    with twin(url) as session:
        session.commit()
    with pytest.raises(ConflictError), twin(url) as session:
        with twin(url) as other:
            other.add_message("user", "first")
        session.add_message("user", "second")
    with pytest.raises(StateStoreError, match="is closed"):
        session.reload()


def test_the_store_is_closed_if_the_session_cannot_be_opened(tmp_path, monkeypatch):
    opened_stores = []

    def opening(url):
        opened_stores.append(open_state_store(url))
        return opened_stores[-1]

    monkeypatch.setattr("holdfast.sessions.blocking.open_state_store", opening)
    url = f"sqlite:///{tmp_path}/state.db"
    with pytest.raises(NotFoundError):
        twin(url, must_exist=True)
    with pytest.raises(ValueError, match="invalid scope"):
        twin(url, scope="team")
    assert [each._closed for each in opened_stores] == [True, True]


def test_a_store_of_the_caller_stays_open_if_the_session_cannot_be_opened(store):
    with pytest.raises(NotFoundError):
        twin(store, must_exist=True)
    assert store._closed is False


def test_the_default_store_is_that_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:///{tmp_path}/named.db")
    with twin() as session:
        session.add_message("user", "a")
    assert (tmp_path / "named.db").exists()
    with twin() as session:
        assert list_contents(session) == ["a"]


def test_a_session_opened_without_an_id_is_new(store):
    one = BlockingSession.open(store, agent_id="bot")
    other = BlockingSession.open(store, agent_id="bot")
    assert one.session_id != other.session_id


# -------------------------------------------------------------- event loops, interrupts and forks


def test_a_blocking_session_works_inside_another_event_loop(tmp_path):
    async def work():
        with twin(f"sqlite:///{tmp_path}/state.db") as session:
            session.add_message("user", "inside")
            session.save()
            return list_contents(session)

    assert asyncio.run(work()) == ["inside"]


def test_a_blocking_call_inside_the_loop_of_the_portal_is_an_error(store):
    from holdfast.stores.portal import get_portal

    session = twin(store)

    async def work():
        session.add_message("user", "recorded")
        session.commit()

    with pytest.raises(RuntimeError, match="use the async Session there"):
        get_portal().call(work())
    session.commit()
    assert list_contents(twin(store)) == ["recorded"]


class Stalled(MemoryStateStore):
    """Blocks writes until they are released, and notes their outcome."""

    def __init__(self):
        super().__init__()
        self.stalls = False
        self.begun = threading.Event()
        self.ended = threading.Event()

    async def _put_many(self, puts, conditions=()):
        if self.stalls:
            self.begun.set()
            try:
                await asyncio.sleep(600)
            finally:
                self.ended.set()
        return await super()._put_many(puts, conditions)


def test_an_interrupt_ends_a_blocking_call_and_loses_nothing():
    store = Stalled()
    session = twin(store)
    session.commit()
    session.add_message("user", "waits")
    store.stalls = True

    def interrupt():
        store.begun.wait(10)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            session.commit()
    finally:
        signal.signal(signal.SIGINT, before)
    assert store.ended.wait(10)
    store.stalls = False
    assert session.is_dirty
    session.add_message("user", "goes on")
    session.commit()
    assert list_contents(twin(store)) == ["waits", "goes on"]
    assert session.verify().ok


AFTER_A_FORK = """
import os, sys
from holdfast import BlockingSession

with BlockingSession.open(sys.argv[1], agent_id="bot", session_id="ses") as session:
    session.add_message("user", "before")
    session.save()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            session.add_message("user", "child")
            session.save()
            session.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    session.add_message("user", "parent")
    session.commit(on_conflict="rebase")
    print(*(message["content"] for message in session.messages), session.verify().ok)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_continues_with_a_blocking_session(tmp_path):
    # In a subprocess, because forking a process with threads raises a warning.
    finished = run_python(AFTER_A_FORK, f"sqlite:///{tmp_path}/state.db")
    assert finished.stdout == "before child parent True\n", finished.stderr


def test_the_repr_shows_ids_status_and_counts(store):
    session = twin(store)
    assert repr(session) == "<BlockingSession ses of bot: pending, 0 messages, 0 events, 1 pending>"
    assert isinstance(session._session, Session)
