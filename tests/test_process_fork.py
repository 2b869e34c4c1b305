"""Forking while other threads work: nothing hangs in the child."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
LOCAL = pytest.mark.parametrize("scheme", ["sqlite", "file"])

# An alarm ends a child that hangs.
BEGINNING = """
import asyncio, os, signal, sys, threading, time
import holdfast

def in_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child

def check(child):
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the child ended with {status}"

def keep_doing(work):
    stop = threading.Event()
    def run():
        while not stop.is_set():
            work()
            time.sleep(0.002)
    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.1)
    return lambda: (stop.set(), thread.join())
"""


@pytest.fixture
def url(scheme, tmp_path):
    return f"sqlite:///{tmp_path}/state.db" if scheme == "sqlite" else f"file://{tmp_path}/agents"


def run(program, *arguments):
    """Return the output of a program that runs in a subprocess."""
    finished = subprocess.run(
        [sys.executable, "-c", BEGINNING + program, *arguments],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@LOCAL
def test_a_child_forked_during_a_write_can_write(url):
    program = """
store = holdfast.open_state_store(sys.argv[1])
done = keep_doing(lambda: asyncio.run(store.put_many([holdfast.Put("parent", b"x" * 100_000)])))
for number in range(10):
    check(in_child(lambda: asyncio.run(store.put(f"child/{number}", b"1"))))
done()
async def children():
    return [key async for key in store.list("child/")]
print(len(asyncio.run(children())))
asyncio.run(store.close())
"""
    assert run(program, url) == "10\n"


@LOCAL
def test_a_child_forked_during_the_writes_of_many_tasks_can_write(url):
    program = """
store = holdfast.open_state_store(sys.argv[1])
async def put_all(name):
    await asyncio.gather(*(store.put(f"{name}/{task}", b"x" * 5000) for task in range(30)))
async def fork_while_writing():
    for number in range(6):
        writes = asyncio.ensure_future(put_all(f"parent/{number}"))
        await asyncio.sleep(0.002 * number)
        def in_new_thread():
            thread = threading.Thread(target=lambda: asyncio.run(put_all(f"child/{number}")))
            thread.start()
            thread.join()
        check(in_child(in_new_thread))
        await writes
asyncio.run(fork_while_writing())
async def count(name):
    return len([key async for key in store.list(name)])
print(asyncio.run(count("parent/")), asyncio.run(count("child/")))
asyncio.run(store.close())
"""
    assert run(program, url) == "180 180\n"


@LOCAL
def test_a_child_forked_during_a_commit_can_continue_the_session(url):
    program = """
session = holdfast.BlockingSession.open(sys.argv[1], agent_id="bot", session_id="ses")
def say(text):
    session.add_message("user", text)
    session.commit(on_conflict="rebase")
say("before")
for number in range(6):
    go_on = threading.Event()
    saying = threading.Thread(target=lambda: [say("parent") for _ in range(5)])
    saying.start()
    time.sleep(0.001 * number)
    child = in_child(lambda: (time.sleep(0.3), say("child")))
    saying.join()
    check(child)
session.reload()
said = [message["content"] for message in session.messages]
print(said.count("parent"), said.count("child"), session.verify().ok)
session.close()
"""
    assert run(program, url) == "30 6 True\n"


def test_a_session_that_stays_busy_cannot_be_used_in_the_child(tmp_path):
    program = """
from holdfast import process_fork
process_fork.MAX_WAIT = 0.3
session = holdfast.BlockingSession.open(sys.argv[1], agent_id="bot", session_id="ses")
session.add_message("user", "before")
session.commit()
held, let_go = threading.Event(), threading.Event()
def hold():
    with session._guard:
        held.set()
        let_go.wait()
holding = threading.Thread(target=hold)
holding.start()
held.wait()
def use():
    try:
        session.commit()
    except holdfast.StateStoreError as error:
        assert "open it again" in str(error), error
    else:
        raise AssertionError("it was not refused")
    with holdfast.BlockingSession.open(sys.argv[1], agent_id="bot", session_id="ses") as other:
        other.add_message("user", "child")
check(in_child(use))
let_go.set()
holding.join()
session.add_message("user", "parent")
session.commit(on_conflict="rebase")
print(*(message["content"] for message in session.messages))
session.close()
"""
    assert run(program, f"sqlite:///{tmp_path}/state.db") == "before child parent\n"


def test_a_child_forked_during_a_side_effect_does_not_wait_for_it(tmp_path):
    program = """
session = holdfast.BlockingSession.open(sys.argv[1], agent_id="bot", session_id="ses")
session.commit()
begun, let_go = threading.Event(), threading.Event()
def effect():
    begun.set()
    let_go.wait()
    return "parent"
def do():
    try:
        session.once("key", effect)
    except holdfast.ConflictError:
        session.reload()  # the child was first
doing = threading.Thread(target=do)
doing.start()
begun.wait()
check(in_child(lambda: session.once("key", lambda: "child")))
let_go.set()
doing.join()
print(session.once("key", lambda: "not called"))
session.close()
"""
    assert run(program, f"sqlite:///{tmp_path}/state.db") == "child\n"


def test_a_child_does_not_inherit_file_locks(tmp_path):
    program = """
from holdfast.stores.files.locks import FILE_LOCKS
folder = os.open(sys.argv[1], os.O_RDONLY)
def sleep():
    time.sleep(600)

# The parent releases its lock while a child lives.
lock = FILE_LOCKS.take("one", folder)
child = os.fork()
if child == 0:
    sleep()
assert FILE_LOCKS.take("one", folder) is None
FILE_LOCKS.release(lock)
lock = FILE_LOCKS.take("one", folder)
assert lock is not None
FILE_LOCKS.release(lock)

# A parent that holds a lock is killed while its child lives.
read, write = os.pipe()
parent = os.fork()
if parent == 0:
    assert FILE_LOCKS.take("two", folder) is not None
    grandchild = os.fork()
    if grandchild == 0:
        os.write(write, b"%d" % os.getpid())
        sleep()
    sleep()
grandchild = int(os.read(read, 20))
assert FILE_LOCKS.take("two", folder) is None
os.kill(parent, signal.SIGKILL)
os.waitpid(parent, 0)
assert FILE_LOCKS.take("two", folder) is not None
os.kill(child, signal.SIGKILL)
os.kill(grandchild, signal.SIGKILL)
print("free")
"""
    assert run(program, str(tmp_path)) == "free\n"


def test_a_blocking_session_works_in_the_child(tmp_path):
    program = """
from holdfast.stores.portal import Portal
portal = Portal()
async def process():
    return os.getpid()
assert portal.call(process()) == os.getpid()
def use():
    assert portal.call(process()) == os.getpid()
    portal.close()
check(in_child(use))
assert portal.call(process()) == os.getpid()
portal.close()
print("done")
"""
    assert run(program) == "done\n"
