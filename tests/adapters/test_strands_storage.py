"""Our storage behaves like those of Strands: every test runs with all of them."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("strands.storage.search")

from strands.session import SnapshotSessionManager
from strands.storage import InMemoryStorage, LocalFileStorage, Storage
from strands.storage.storage import _EPHEMERAL, _NAMESPACED, _NamespacedStorage
from strands.types.exceptions import StorageError
from strands.vended_memory_stores.file_memory_store import FileMemoryStore

from adapters.scripted_strands import make_waiter
from adapters.test_strands import IDS, LATEST, encode_snapshot
from holdfast import open_state_store
from holdfast.adapters.strands import HoldfastStorage
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.faults import FaultyStateStore
from support.observed_store import ObservedStore

THEIRS = ["in memory", "local files"]
OURS = ["holdfast memory:", "holdfast sqlite", "holdfast file"]
ODD_KEYS = ["a b", "ä/☃", "100%/a%2Fb", "a?b#c&d", "UPPER/lower", "a.b/.hidden", "x" * 200, "~/*"]


@pytest.fixture
def new_storage(request, tmp_path):
    """Return a function that opens a storage of one kind."""
    stores = []

    def make(**options):
        if request.param == "in memory":
            return InMemoryStorage(**options)
        if request.param == "local files":
            return LocalFileStorage(str(tmp_path / "files"), **options)
        url = {
            "holdfast memory:": "memory:",
            "holdfast sqlite": f"sqlite:///{tmp_path}/state.db",
            "holdfast file": f"file://{tmp_path}/state",
        }[request.param]
        stores.append(open_state_store(url))
        return HoldfastStorage(stores[-1], **options)

    yield make
    for store in stores:
        run_async(store.close())


@pytest.fixture
def storage(new_storage):
    """A storage of one kind."""
    return new_storage()


class RecordingStrategy:
    """A search strategy that finds what it indexed."""

    def __init__(self):
        self.indexed = []

    async def index(self, storage, key, data, **_):
        if b"unreadable" in data:
            raise RuntimeError("no such words")
        self.indexed.append((storage, key, bytes(data)))

    async def search(self, storage, query, **_):
        return [key for at, key, data in self.indexed if at is storage and query.encode() in data]


@pytest.mark.parametrize("new_storage", [*THEIRS, *OURS], indirect=True)
class TestStorage:
    """Reading, writing, listing, namespaces and search."""

    @async_test
    async def test_it_is_a_storage(self, storage):
        assert isinstance(storage, Storage)

    @async_test
    async def test_reads_return_the_written_bytes(self, storage):
        for data in (b"", b"\x00\xff", b'{"a": 1}', bytearray(b"array"), b"x" * 100_000):
            await storage.write("a/b.json", data)
            found = await storage.read("a/b.json")
            assert (found, type(found)) == (bytes(data), bytes)

    @async_test
    async def test_a_missing_key_is_none_and_deleting_it_does_nothing(self, storage):
        assert await storage.read("a/missing") is None
        await storage.delete("a/missing")
        await storage.write("a/b", b"1")
        assert await storage.read("a/b/c") is None
        await storage.delete("a/b/c")
        await storage.delete("a/b")
        await storage.delete("a/b")
        assert await storage.read("a/b") is None
        assert await storage.list() == []

    @async_test
    async def test_slashes_are_collapsed_and_stripped(self, storage):
        await storage.write("//a///b/", b"1")
        assert await storage.list("") == ["a/b"]
        for key in ("a/b", "/a/b", "a//b//"):
            assert await storage.read(key) == b"1"
        await storage.delete("a//b/")
        assert await storage.list("") == []

    @pytest.mark.parametrize("key", ["", "/", "///", "a\\b", "..", "../a", "a/../b", "a/.."])
    @async_test
    async def test_an_invalid_key_is_rejected_by_every_call(self, storage, key):
        for work in (storage.write(key, b"1"), storage.read(key), storage.delete(key)):
            with pytest.raises(StorageError):
                await work
        if key.strip("/"):
            with pytest.raises(StorageError):
                await storage.list(key)
            with pytest.raises(StorageError):
                storage.namespace(key)

    @pytest.mark.parametrize("key", ODD_KEYS)
    @async_test
    async def test_a_key_may_have_any_characters(self, storage, key):
        await storage.write(key, b"1")
        await storage.namespace("ns").write(key, b"2")
        assert await storage.list() == sorted([key, f"ns/{key}"])
        assert await storage.read(key) == b"1"
        assert await storage.namespace("ns").list() == [key]
        await storage.delete(key)
        assert await storage.list() == [f"ns/{key}"]

    @async_test
    async def test_a_listing_is_sorted_and_has_full_keys(self, storage):
        for key in ("b/2", "a/1", "b/10", "b-1", "b/1/x", "session/other"):
            await storage.write(key, b"1")
        assert await storage.list() == ["a/1", "b-1", "b/1/x", "b/10", "b/2", "session/other"]
        assert await storage.list("b") == ["b-1", "b/1/x", "b/10", "b/2"]
        assert await storage.list("b/1") == ["b/1/x", "b/10"]
        assert await storage.list("b/1/") == ["b/1/x"]
        assert await storage.list("//b//1/") == ["b/1/x"]
        assert await storage.list("/") == await storage.list("")
        assert await storage.list("b/2/") == []
        assert await storage.list("nothing") == []

    @async_test
    async def test_snapshots_are_listed_and_read_like_other_entries(self, storage):
        await storage.write(LATEST, encode_snapshot("one"))
        await storage.write("memory/m/x.md", b"note")
        assert await storage.list() == ["memory/m/x.md", LATEST]
        assert await storage.namespace("session").list("ses/") == [LATEST.removeprefix("session/")]
        assert await storage.namespace("session/ses").read(LATEST[12:]) == encode_snapshot("one")

    # ------------------------------------------------------------------------------ namespaces

    @async_test
    async def test_a_namespace_sees_its_own_keys_without_the_prefix(self, storage):
        team = storage.namespace("team")
        await team.write("a/x", b"1")
        await storage.write("teams/a/x", b"2")
        await storage.write("x", b"3")
        assert await team.list() == await team.list("a/") == ["a/x"]
        assert await team.read("a/x") == await storage.read("team/a/x") == b"1"
        assert await team.read("x") is None
        assert await storage.list("team/") == ["team/a/x"]
        await storage.write("team/b", b"4")
        assert await team.list() == ["a/x", "b"]
        await team.delete("a/x")
        assert await storage.list() == ["team/b", "teams/a/x", "x"]

    @async_test
    async def test_namespaces_nest_and_are_normalized(self, storage):
        inner = storage.namespace("//a//").namespace("b/c/")
        await inner.write("x", b"1")
        assert await storage.list() == ["a/b/c/x"]
        assert await storage.namespace("a/b/c").read("x") == b"1"
        assert await storage.namespace("").list() == await storage.namespace("/").list()
        assert await storage.namespace("").list() == ["a/b/c/x"]
        with pytest.raises(StorageError):
            await inner.read("../c/x")

    def test_a_namespace_is_a_storage_of_the_same_class_with_the_mark_of_strands(self, storage):
        scoped = storage.namespace("a")
        assert type(scoped) is type(storage)
        assert scoped._namespaced is _NAMESPACED
        assert getattr(storage, "_namespaced", None) is None
        ephemeral = getattr(storage, "_ephemeral", None)
        assert getattr(scoped, "_ephemeral", None) is ephemeral
        assert ephemeral in (None, _EPHEMERAL)

    @async_test
    async def test_a_strands_wrapper_sees_the_same_keys_as_a_namespace(self, storage):
        await storage.namespace("a").write("b/x", b"soup")
        wrapped = _NamespacedStorage(storage, "a")
        assert await wrapped.list("b") == await storage.namespace("a").list("b") == ["b/x"]
        assert await wrapped.read("b/x") == b"soup"
        assert [found.key for found in await wrapped.search("soup")] == ["b/x"]

    @async_test
    async def test_agents_in_two_namespaces_are_independent(self, storage):
        red, blue = storage.namespace("red"), storage.namespace("blue")
        await make_waiter(red, "one").invoke_async("1")
        assert make_waiter(blue).messages == []
        assert len(make_waiter(red).messages) == 2
        assert await red.list("") == [LATEST.removeprefix("session/")]
        await SnapshotSessionManager("ses", storage=red).delete_session()
        assert await storage.list() == []

    # ---------------------------------------------------------------------------------- search

    @async_test
    async def test_a_search_ranks_by_shared_words(self, storage):
        await storage.write("notes/menu.md", b"soup of the day and bread")
        await storage.write("notes/wine.md", b"red wine with the soup, wine without")
        await storage.write("notes/other.md", b"nothing of it")
        found = await storage.search("What is the red wine or soup?")
        assert [(each.key, each.score) for each in found] == [
            ("notes/wine.md", 3),
            ("notes/menu.md", 1),
        ]
        assert found[1].data == b"soup of the day and bread"
        assert await storage.search("the of is") == await storage.search("") == []
        assert await storage.search("md") == []
        assert [each.key for each in await storage.search("MENU")] == ["notes/menu.md"]

    @async_test
    async def test_a_search_finds_more_entries_than_one_batch(self, storage):
        for number in range(150):
            await storage.write(f"n/{number:03}", f"note {number}".encode())
        found = await storage.search("note 77")
        assert len(found) == 150
        assert (found[0].key, found[0].score, found[0].data) == ("n/077", 2, b"note 77")
        assert sorted(each.key for each in found) == await storage.list("n/")

    @async_test
    async def test_a_search_finds_words_of_sessions_and_of_keys(self, storage):
        await storage.write(LATEST, encode_snapshot("goulash"))
        await storage.write("notes/goulash", b"\xff\xfe")
        found = await storage.search("goulash")
        assert sorted(each.key for each in found) == ["notes/goulash", LATEST]

    @async_test
    async def test_a_search_in_a_namespace_finds_only_its_entries(self, storage):
        one, other = storage.namespace("memory/soup"), storage.namespace("memory/wine")
        await one.write("a.md", b"tomato")
        await other.write("b.md", b"tomato and basil")
        assert [found.key for found in await one.search("tomato")] == ["a.md"]
        assert await one.search("soup memory") == []
        assert await one.search("basil") == []

    @async_test
    async def test_memory_stores_of_one_storage_are_independent(self, storage):
        one, other = (FileMemoryStore(name=name, storage=storage) for name in ("one", "other"))
        await one.add("# Food\nlikes soup")
        await one.add("# Food\nlikes bread")
        await other.add("# Drinks\nlikes wine")
        (found,) = await one.search("likes")
        assert found.content == "# Food\nlikes soup\nlikes bread"
        assert found.metadata["path"] == "food.md"
        assert await one.search("wine other") == []
        assert await storage.list() == ["memory/one/food.md", "memory/other/drinks.md"]

    @async_test
    async def test_a_search_strategy_indexes_and_finds_what_is_written(self, new_storage):
        strategy = RecordingStrategy()
        storage = new_storage(search_strategy=strategy)
        scoped = storage.namespace("a")
        await storage.write("//x/1", b"soup")
        await scoped.write("y", b"soup")
        assert strategy.indexed == [(storage, "x/1", b"soup"), (scoped, "y", b"soup")]
        assert await storage.search("soup") == ["x/1"]
        assert await scoped.search("soup") == ["y"]
        with pytest.raises(StorageError, match="index"):
            await storage.write("z", b"unreadable")
        assert await storage.read("z") == b"unreadable"

    # ----------------------------------------------------------------------------- concurrency

    @async_test
    async def test_concurrent_writers_all_succeed(self, storage):
        scopes = [storage, storage.namespace("a"), storage.namespace("b")]
        await asyncio.gather(
            *(scope.write(f"k/{n}", f"{n}".encode()) for scope in scopes for n in range(10))
        )
        assert len(await storage.list()) == 30
        found = await asyncio.gather(*(scopes[1].read(f"k/{n}") for n in range(10)))
        assert found == [f"{n}".encode() for n in range(10)]
        await asyncio.gather(*(storage.write("same", f"{n}".encode()) for n in range(10)))
        assert await storage.read("same") in [f"{n}".encode() for n in range(10)]
        await asyncio.gather(*(scopes[2].delete(f"k/{n}") for n in range(10)))
        assert await scopes[2].list() == []

    def test_a_storage_may_be_used_from_several_event_loops(self, storage):
        for number in range(3):
            asyncio.run(storage.write(f"n/{number}", b"soup"))
        assert len(asyncio.run(storage.search("soup"))) == 3


# ---------------------------------------------------------------------------------------- ours


@async_test
async def test_a_search_in_a_namespace_reads_only_its_entries():
    store = ObservedStore()
    storage = HoldfastStorage(store)
    for number in range(20):
        await storage.write(LATEST.replace("/ses/", f"/ses{number}/"), encode_snapshot("soup"))
        await storage.write(f"memory/other/{number}", b"soup")
    memory = FileMemoryStore(name="m", storage=storage)
    await memory.add("# Food\nsoup")
    store.forget()
    assert len(await memory.search("soup")) == 1
    assert (store.read, store.listings, store.listed) == (["strands/memory/m/food.md"], 1, 1)


@async_test
async def test_an_entry_that_cannot_be_read_does_not_fail_a_search():
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    await storage.write(LATEST, encode_snapshot("soup"))
    await storage.write(LATEST.replace("/ses/", "/sound/"), encode_snapshot("soup"))
    await storage.write("notes/a", b"soup")
    (segment,) = [key async for key in store.list() if "/ses/" in key and "/log/" in key]
    whole = await store.get(segment)
    scoped = storage.namespace("notes")
    await store.put(segment, b"{}")
    assert [found.key for found in await scoped.search("soup")] == ["a"]
    await store.put(segment, whole.value)
    assert len(await storage.search("soup")) == 3


@async_test
async def test_a_search_raises_a_storage_error_if_the_store_fails():
    store = FaultyStateStore(MemoryStateStore())
    storage = HoldfastStorage(store).namespace("notes")
    await storage.write("a", b"soup")
    await store.close()
    with pytest.raises(StorageError, match="search for 'soup'|list"):
        await storage.search("soup")


@pytest.mark.parametrize("data", ["text", 5, None, [1]])
@async_test
async def test_data_must_be_bytes(data):
    storage = HoldfastStorage(MemoryStateStore())
    with pytest.raises(StorageError, match="must be bytes, got"):
        await storage.write("a", data)
    assert await storage.list() == []


@async_test
async def test_the_session_namespace_holds_sessions():
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    key = LATEST.removeprefix("session/")
    await storage.namespace("session").write(key, encode_snapshot("one"))
    assert await HoldfastStorage(store).read(LATEST) == encode_snapshot("one")
    history = f"{key.removesuffix('snapshot_latest.json')}immutable_history/snapshot_{IDS[0]}.json"
    await storage.namespace("session").write(history, encode_snapshot("one"))
    assert await storage.namespace("session").list("ses/") == [history, key]
    document = await storage.document("ses", "waiter")
    assert len(document.state.messages) == 1


@async_test
async def test_a_storage_opens_the_store_of_a_url(tmp_path):
    async with HoldfastStorage.from_url(f"sqlite:///{tmp_path}/agents.db") as storage:
        await storage.write("notes/a", b"1")
    async with HoldfastStorage.from_url(f"sqlite:///{tmp_path}/agents.db") as storage:
        assert await storage.read("notes/a") == b"1"
