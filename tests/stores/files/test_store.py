"""The file store, on a real file system."""

from __future__ import annotations

import asyncio
import fcntl
import os

import pytest

from holdfast import ConflictError, Put, Session, StateStoreError, open_state_store
from holdfast.stores.files import tree
from holdfast.stores.files.store import FileStateStore, lock_name
from holdfast.stores.files.tree import scan_names
from holdfast.stores.local import sync_descriptor
from holdfast.testing import StateStoreSuite
from support.async_tests import run_async


class TestFiles(StateStoreSuite):
    many = 250

    @pytest.fixture
    def new_store(self, tmp_path, monkeypatch):
        # So that a listing has several pages without thousands of files.
        monkeypatch.setattr("holdfast.stores.backend.PAGE_SIZE", 100)
        return lambda: FileStateStore(tmp_path / "folder" / "agents")


async def put_some(root, **values):
    async with FileStateStore(root) as store:
        for key, value in values.items():
            await store.put(key, value)


def list_files(root):
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and "~holdfast" not in path.parts
    )


def test_a_value_is_a_readable_file_named_after_its_key(tmp_path):
    key = "sessions/ses_1/scopes/agent/Bot/log/000000000001.json"
    run_async(put_some(tmp_path, **{key: b'{"seq": 1}'}))
    file = tmp_path / "sessions.~/ses_1.~/scopes.~/agent.~/@bot.~/log.~/000000000001.json"
    assert file.read_bytes() == b'{"seq": 1}'


def test_a_file_edited_by_hand_has_a_new_etag(tmp_path):
    async def edit():
        async with FileStateStore(tmp_path) as store:
            etag = await store.put("a.json", b"1")
            (tmp_path / "a.json").write_bytes(b"2")
            with pytest.raises(ConflictError):
                await store.put("a.json", b"3", if_match=etag)
            assert (await store.get("a.json")).value == b"2"

    run_async(edit())


def test_writing_an_equal_value_changes_the_etag(tmp_path):
    async def write():
        async with FileStateStore(tmp_path) as store:
            first = await store.put("a", b"1")
            second = await store.put("a", b"1", if_match=first)
            assert first != second
            with pytest.raises(ConflictError):
                await store.put("a", b"1", if_match=first)

    run_async(write())


def test_long_names_are_shortened_and_their_full_names_stored(tmp_path):
    keys = ["x" * 300, "x" * 300 + "y", f"{'d' * 300}/{'e' * 300}/f", "a/" * 60, "a/" * 60 + "b"]

    async def write():
        async with FileStateStore(tmp_path) as store:
            for key in keys:
                await store.put(key, key.encode())
            assert [key async for key in store.list()] == sorted(keys)
            assert [key async for key in store.list("d" * 290)] == [keys[2]]
            assert [key async for key in store.list("x" * 300, start_after=keys[0])] == [keys[1]]
            assert [key async for key in store.list("a/" * 59)] == keys[3:]

    run_async(write())
    assert any(path.endswith("~name") for path in list_files(tmp_path))
    longest = max(len(part) for path in list_files(tmp_path) for part in path.split("/"))
    assert longest < 200


def test_deleting_a_long_name_leaves_nothing(tmp_path):
    async def churn():
        async with FileStateStore(tmp_path) as store:
            keys = [f"{'d' * 300}/{'e' * 300}{number}/{'f' * 300}" for number in range(5)]
            for _ in range(3):
                await asyncio.gather(*(store.put(key, b"1") for key in keys))
                assert [key async for key in store.list()] == keys
                await asyncio.gather(*(store.delete(key) for key in keys))
                assert [key async for key in store.list()] == []

    run_async(churn())
    assert list_files(tmp_path) == []


def test_a_lost_full_name_hides_the_key_until_it_is_written_again(tmp_path):
    key = "x" * 300

    async def check():
        async with FileStateStore(tmp_path) as store:
            await store.put(key, b"1")
            (beside,) = tmp_path.glob("*~name")
            for damage in (lambda: beside.unlink(), lambda: beside.write_text("half")):
                damage()
                assert [found async for found in store.list()] == []
                assert (await store.get(key)).value == b"1"
                await store.put(key, b"1")
                assert [found async for found in store.list()] == [key]

    run_async(check())


def test_a_deleted_entry_leaves_no_empty_folders(tmp_path):
    async def write():
        async with FileStateStore(tmp_path) as store:
            await store.put("a/b/c", b"1")
            await store.put("a/d", b"1")
            await store.delete("a/b/c")
            assert not (tmp_path / "a.~" / "b.~").exists()
            await store.delete("a/d")
            assert not (tmp_path / "a.~").exists()

    run_async(write())


def test_concurrent_puts_and_deletes_in_one_folder_succeed(tmp_path):
    async def churn(store, name):
        for _ in range(40):
            await store.put(f"deep/er/{name}", b"1")
            assert await store.delete(f"deep/er/{name}")

    async def together():
        async with FileStateStore(tmp_path) as store:
            await asyncio.gather(*(churn(store, name) for name in "abcdefgh"))
            assert [key async for key in store.list()] == []

    run_async(together())


def test_links_are_neither_followed_nor_listed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "root"

    async def attack():
        async with FileStateStore(root) as store:
            await store.put("good", b"1")
            (root / "link.~").symlink_to(outside)
            (root / "file").symlink_to(outside / "secret")
            assert [key async for key in store.list()] == ["good"]
            for call in (
                lambda: store.get("link/secret"),
                lambda: store.get("file"),
                lambda: store.put("link/new", b"1"),
                lambda: store.delete("link/secret"),
            ):
                with pytest.raises(StateStoreError, match="link|folder"):
                    await call()
            await store.put("file", b"mine")  # replaces the link

    run_async(attack())
    assert (outside / "secret").read_bytes() == b"secret"
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (root / "file").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["~holdfast", "~holdfast/writing", "~holdfast/locks"])
def test_a_symbolic_link_instead_of_an_internal_folder_is_rejected(tmp_path, name):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "01-0123456789abcdef").write_bytes(b"precious")
    link = tmp_path / "root" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    with pytest.raises(StateStoreError, match="link|folder"):
        run_async(put_some(tmp_path / "root", a=b"1"))
    assert [path.name for path in outside.iterdir()] == ["01-0123456789abcdef"]


def test_a_pipe_instead_of_a_file_is_an_error(tmp_path):
    async def read():
        async with FileStateStore(tmp_path) as store:
            os.mkfifo(tmp_path / "pipe")
            with pytest.raises(StateStoreError, match="not a regular file"):
                await store.get("pipe")

    run_async(read())


def test_a_lock_held_by_another_process_blocks_only_its_keys(tmp_path):
    async def use():
        async with FileStateStore(tmp_path, timeout=0.3) as store:
            await store.put("other", b"1")
            lock = lock_name("held")
            with (tmp_path / "~holdfast" / "locks" / lock).open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                cancelled = [asyncio.create_task(store.put("held", b"late")) for _ in range(12)]
                await asyncio.sleep(0.05)
                for task in cancelled:
                    task.cancel()
                await asyncio.gather(*cancelled, return_exceptions=True)
                assert (await store.get("other")).value == b"1"
                with pytest.raises(StateStoreError, match="another process holds") as caught:
                    await store.put("held", b"1")
                assert caught.value.transient
            await store.put("held", b"2")
            await asyncio.sleep(0.1)
            assert (await store.get("held")).value == b"2"  # the cancelled writes are not applied

    run_async(use())


def test_a_file_instead_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "a.~").write_text("in the way")
    with pytest.raises(StateStoreError, match="found a file where a folder was expected"):
        run_async(put_some(tmp_path, **{"a/b": b"1"}))
    (tmp_path / "root").write_text("in the way")
    with pytest.raises(StateStoreError, match="found a file where a folder was expected"):
        run_async(put_some(tmp_path / "root", a=b"1"))


def test_temporary_files_of_dead_writers_are_removed(tmp_path):
    run_async(put_some(tmp_path, a=b"1"))
    writing = tmp_path / "~holdfast" / "writing"
    (writing / "05-0123456789abcdef").write_bytes(b"half")
    (writing / "06-0123456789abcdef").write_bytes(b"half")
    with (tmp_path / "~holdfast" / "locks" / "06").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run_async(put_some(tmp_path, a=b"2"))
        assert [path.name for path in writing.iterdir()] == ["06-0123456789abcdef"]
    run_async(put_some(tmp_path, a=b"3"))
    assert list(writing.iterdir()) == []


def test_files_of_other_programs_are_skipped(tmp_path):
    run_async(put_some(tmp_path, a=b"1"))
    (tmp_path / "My Notes.txt").write_text("not a key")
    (tmp_path / "~odd").mkdir()
    (tmp_path / "~odd" / "x").touch()

    async def keys():
        async with FileStateStore(tmp_path) as store:
            return [key async for key in store.list()]

    assert run_async(keys()) == ["a"]


def count_scanned(monkeypatch):
    """Record the names that are read from folders."""
    scanned = []

    def scan(folder):
        names = scan_names(folder)
        scanned.extend(names)
        return names

    monkeypatch.setattr("holdfast.stores.files.tree.scan_names", scan)
    return scanned


def test_a_listing_reads_only_the_folders_of_its_prefix(tmp_path, monkeypatch):
    async def work():
        async with FileStateStore(tmp_path) as store:
            for number in range(20):
                await store.put(f"sessions/{number:02}/log/1", b"")
            scanned = count_scanned(monkeypatch)
            found = [key async for key in store.list("sessions/07/log/")]
            assert found == ["sessions/07/log/1"]
            assert scanned == ["1"]
            assert [key async for key in store.list("sessions/99/log/")] == []
            assert [key async for key in store.list("sessions/07/log/1/")] == []
            assert scanned == ["1"]
            after = store.list("sessions/", start_after="sessions/18/log/1")
            assert [key async for key in after] == ["sessions/19/log/1"]

    run_async(work())


def test_opening_a_session_reads_no_folder_of_another(tmp_path, monkeypatch):
    async def work():
        async with FileStateStore(tmp_path) as store:
            for number in range(12):
                session = await Session.open(store, agent_id="bot", session_id=f"ses_{number}")
                session.add_message("user", "hello")
                await session.save()
            scanned = count_scanned(monkeypatch)
            session = await Session.open(store, agent_id="bot", session_id="ses_5")
            session.add_message("user", "hello")
            await session.save()
            assert not [name for name in scanned if name.startswith("ses_")]

    run_async(work())


def test_names_of_a_large_folder_are_read_again_after_a_change(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.stores.files.tree.MIN_CACHED_NAMES", 3)

    async def work():
        async with FileStateStore(tmp_path) as store:
            for number in range(4):
                await store.put(f"a/{number}", b"")
            folder = tmp_path / "a.~"
            # As if the folder did not change for a while.
            monkeypatch.setattr("holdfast.stores.files.tree.SETTLED_NS", 0)
            scanned = count_scanned(monkeypatch)
            for _ in range(3):
                assert len([key async for key in store.list("a/")]) == 4
            assert len(scanned) == 4
            await asyncio.sleep(0.02)  # longer than a tick of the file system's clock
            (folder / "9").write_bytes(b"")
            assert len([key async for key in store.list("a/")]) == 5
            await store.delete("a/0")
            assert len([key async for key in store.list("a/")]) == 4

    run_async(work())


def test_names_of_a_folder_that_just_changed_are_not_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.stores.files.tree.MIN_CACHED_NAMES", 1)

    async def work():
        async with FileStateStore(tmp_path) as store:
            for number in range(20):
                await store.put(f"a/{number:02}", b"")
                assert len([key async for key in store.list("a/")]) == number + 1

    run_async(work())


@pytest.mark.parametrize("link", [False, True])
def test_a_listing_below_a_file_or_a_link_is_empty(tmp_path, link):
    async def work():
        async with FileStateStore(tmp_path / "store") as store:
            await store.put("a", b"")
            (tmp_path / "outside").mkdir()
            (tmp_path / "outside" / "secret").write_bytes(b"")
            if link:
                (tmp_path / "store" / "b.~").symlink_to(tmp_path / "outside")
            else:
                (tmp_path / "store" / "b.~").write_bytes(b"")
            assert [key async for key in store.list("b/")] == []

    run_async(work())


@pytest.mark.parametrize("url", ["file:", "file://", "file://host/dir"])
def test_a_url_without_a_folder_is_rejected(url):
    with pytest.raises(StateStoreError, match="does not name a folder"):
        open_state_store(url)


def test_the_path_of_a_url_is_relative_or_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def write():
        async with open_state_store("file:in%20here") as store:
            await store.put("a", b"1")
        async with open_state_store(f"file://{tmp_path}/in here") as store:
            assert (await store.get("a")).value == b"1"
            assert repr(store) == f"<FileStateStore file://{tmp_path}/in here>"

    run_async(write())


def test_a_folder_is_synced_once_for_the_files_of_a_batch(tmp_path, monkeypatch):
    synced = []

    def count_and_sync(descriptor):
        synced.append(descriptor)
        sync_descriptor(descriptor)

    async def use():
        async with FileStateStore(tmp_path) as store:
            await store.put("one/first", b"1")
            await store.put("two/first", b"1")
            monkeypatch.setattr(tree, "sync_descriptor", count_and_sync)
            await store.put_many([Put(f"one/{number}", b"1") for number in range(10)])
            assert len(synced) == 1
            await store.put_many([Put(f"{folder}/last", b"1") for folder in ("one", "two")])
            assert len(synced) == 3
            assert len([key async for key in store.list()]) == 14

    run_async(use())


def test_a_batch_is_written_up_to_the_first_conflict(tmp_path):
    async def use():
        async with FileStateStore(tmp_path) as store:
            await store.put("b", b"0")
            puts = [Put(f"many/{number:03}", b"1") for number in range(100)]
            puts.insert(70, Put("b", b"1", if_absent=True))
            with pytest.raises(ConflictError):
                await store.put_many(puts)
            found = [key async for key in store.list("many/")]
            assert found == [f"many/{number:03}" for number in range(70)]
        assert list((tmp_path / "~holdfast" / "writing").iterdir()) == []

    run_async(use())


def test_batches_with_the_same_keys_in_different_orders_do_not_wait_in_a_circle(tmp_path):
    puts = [Put(f"{number}", b"1") for number in range(20)]

    async def use():
        async with FileStateStore(tmp_path, timeout=20) as store:
            batches = [puts, puts[::-1]] * 4
            await asyncio.gather(*(store.put_many(batch) for batch in batches))

    run_async(use())
