"""Threads that share a blocking session lose nothing and see consistent states."""

from __future__ import annotations

import sys
import threading

import pytest

from holdfast import BlockingSession
from holdfast.stores.memory import MemoryStateStore
from support.conversations import list_contents, list_types


def twin(state_store, **options):
    return BlockingSession.open(state_store, agent_id="bot", session_id="ses", **options)


@pytest.fixture
def store():
    return MemoryStateStore()


def run_in_threads(count, work):
    """Run work in several threads, and raise the error of any of them."""
    errors = []

    def run(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/state.db"])
def test_threads_share_a_session(url, tmp_path):
    with twin(url.format(tmp_path)) as session:

        def speak(number):
            for turn in range(15):
                session.add_message("user", (number, turn))
                session.set(f"thread {number}", turn)
                session.record("tick", number)
                if turn % 5 == 0:
                    session.save()
                elif turn % 2 == 0:
                    session.commit()
                assert session.get(f"thread {number}") == turn
                session.status = "running" if turn % 2 else "waiting"

        run_in_threads(4, speak)
        session.commit()
        session.reload()
        assert len(session.messages) == session.message_count == 60
        for number in range(4):
            assert [turn for who, turn in list_contents(session) if who == number] == list(
                range(15)
            )
        assert session.state == {f"thread {number}": 14 for number in range(4)}
        assert session.verify().ok


def test_threads_share_the_agents_of_a_session(store):
    crew = twin(store, scope="multi_agent")

    def speak(number):
        part = crew.agent(f"agent {number}")
        for turn in range(20):
            part.add_message("assistant", turn)
            part.set("turn", turn)
            crew.commit()

    run_in_threads(4, speak)
    assert crew.agents == [f"agent {number}" for number in range(4)]
    for name in crew.agents:
        assert list_contents(crew.agent(name)) == list(range(20))
    assert list_types(crew.events).count("agent.joined") == 4
    assert crew.verify().ok


@pytest.fixture
def restless():
    """Let threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def read_while_writing(write, read, times):
    """Read repeatedly in one thread while another writes."""
    over = threading.Event()

    def work(number):
        if number == 0:
            try:
                for _ in range(times):
                    write()
            finally:
                over.set()
        else:
            while not over.is_set():
                read()

    run_in_threads(2, work)


def test_reads_are_consistent_while_another_thread_rolls_back(restless, store):
    session = twin(store)

    def write():
        for turn in range(3):
            session.add_message("user", turn)
            session.set(f"k{turn}", turn)
        for turn in range(3):
            session.pop_message()
            session.delete(f"k{turn}")

    def read():
        assert None not in session.messages
        assert None not in session.state.values()

    read_while_writing(write, read, 300)


def test_events_have_no_gaps_while_another_thread_commits(restless, store):
    session = twin(store)

    def write():
        session.record("tick")
        session.record("tock")
        session.commit()

    def read():
        seqs = [event.seq for event in session.events[-6:]]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert session.events[-1].seq >= seqs[-1]

    read_while_writing(write, read, 1000)


def test_an_agent_joins_once_if_two_threads_request_it(restless, store):
    crew = twin(store, scope="multi_agent")
    together = threading.Barrier(4)

    def join(_):
        for number in range(100):
            together.wait()
            crew.agent(f"agent {number}")

    run_in_threads(4, join)
    assert list_types(crew.events).count("agent.joined") == 100


def test_unfinished_calls_are_consistent_while_another_thread_saves(store):
    session = twin(store)
    ended = threading.Event()

    def look(number):
        if number:
            while not ended.is_set():
                assert len(session.unfinished) <= 1
            return
        for turn in range(150):
            call = {"id": f"call {turn}", "type": "function", "function": {"name": "f"}}
            session.add_message("assistant", "", tool_calls=[call])
            session.add_message("tool", "done", tool_call_id=f"call {turn}")
            session.save()
        ended.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        run_in_threads(2, look)
    finally:
        sys.setswitchinterval(interval)
    assert session.unfinished == []
