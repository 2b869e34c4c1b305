"""Local stores: several processes, sudden deaths, full disks, missing permissions."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.state_store_suite import collect_keys, increment, read_all
from support.async_tests import async_test

LOCAL = pytest.mark.parametrize("scheme", ["sqlite", "file"])


@pytest.fixture
def url(scheme, tmp_path):
    return f"sqlite:///{tmp_path}/state.db" if scheme == "sqlite" else f"file://{tmp_path}/agents"


def run(*arguments: object) -> dict:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "writers.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return json.loads(done.stdout)


@LOCAL
def test_increments_from_four_processes_are_all_counted(url):
    assert run("count", url, 4, 1, 100) == {"failed": 0, "total": 400}


def test_increments_from_tasks_of_two_processes_are_all_counted(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    assert run("count", url, 2, 8, 10) == {"failed": 0, "total": 160}


@LOCAL
@pytest.mark.parametrize(("tasks", "rounds"), [(1, 6), (8, 4)])
def test_kill_9_at_a_random_time_loses_no_acknowledged_write(url, scheme, tasks, rounds, tmp_path):
    found = run("crash", url, tasks, rounds, 7)
    assert found.pop("acknowledged") >= 3 * tasks * rounds
    assert found == {"torn": 0, "lost": 0, "halves": 0}
    if scheme == "file":
        assert list((tmp_path / "agents" / "~holdfast" / "writing").iterdir()) == []
        left = [path for path in (tmp_path / "agents").rglob("*") if path.is_file()]
        assert [path for path in left if path.parent.name != "locks"] == []


@contextmanager
def limit_file_size(size: int):
    """Let no file grow beyond a size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@LOCAL
@async_test
async def test_a_full_disk_is_an_error_and_keeps_existing_values(url):
    async with holdfast.open_state_store(url) as store:
        etag = await store.put("before", b"1")
        with limit_file_size(300_000):
            for call in (
                lambda: store.put("large", b"x" * 1_000_000),
                lambda: store.put("before", b"x" * 1_000_000, if_match=etag),
                lambda: store.put_many([holdfast.Put("a", b"1"), holdfast.Put("b", b"x" * 10**6)]),
            ):
                with pytest.raises(holdfast.StateStoreError, match="full|larger"):
                    await call()
            assert (await store.get("before")).etag == etag
        expected = {"before": b"1"} if store.atomic_put_many else {"a": b"1", "before": b"1"}
        assert await read_all(store) == expected
        await store.put("large", b"x" * 1_000_000)  # there is space again
        assert len((await store.get("large")).value) == 1_000_000


@LOCAL
def test_a_store_without_write_permission_can_be_read(url, tmp_path):
    async def prepare() -> None:
        async with holdfast.open_state_store(url) as store:
            await store.put("before", b"here")

    asyncio.run(prepare())
    folder = tmp_path
    while folder != Path("/tmp") and folder != folder.parent:  # the reader must reach it
        if folder.stat().st_uid == os.getuid():
            folder.chmod(0o755)
        folder = folder.parent
    paths = [tmp_path, *tmp_path.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        report = run("guard", url)
    finally:
        for path in paths:
            path.chmod(0o755)
    assert report["read"] == "here"
    assert report["listed"] == ["before"]
    for call in ("put", "put over", "delete"):
        assert "owner and mode" in report[call], report


@LOCAL
def test_reading_a_missing_store_creates_no_files(url, tmp_path):
    async def read() -> None:
        async with holdfast.open_state_store(url) as store:
            assert await store.get("a") is None
            assert await store.get_many(["a", "b"]) == {}
            assert await collect_keys(store.list()) == []

    asyncio.run(read())
    assert list(tmp_path.iterdir()) == []


@LOCAL
def test_a_store_opened_before_a_fork_works_in_the_child(url):
    program = f"""
import asyncio, os, holdfast
store = holdfast.open_state_store({url!r})
asyncio.run(store.put("parent", b"1"))
child = os.fork()
if child == 0:
    asyncio.run(store.put("child", b"2"))
    assert asyncio.run(store.get("parent")).value == b"1"
    asyncio.run(store.close())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert asyncio.run(store.get("child")).value == b"2"
asyncio.run(store.put("parent", b"3"))
asyncio.run(store.close())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


@LOCAL
def test_threads_with_their_own_event_loops_share_a_store(url):
    from concurrent.futures import ThreadPoolExecutor

    store = holdfast.open_state_store(url)

    async def count() -> None:
        for _ in range(20):
            await increment(store, "counter")

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(lambda: asyncio.run(count())) for _ in range(4)]:
            done.result()
    assert asyncio.run(store.get("counter")).value == b"80"
    asyncio.run(store.close())
