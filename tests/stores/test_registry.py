"""``open_state_store``: URLs, wrappers and errors."""

from __future__ import annotations

import base64
import os
import socket
import sys
from itertools import combinations
from pathlib import Path

import pytest

import holdfast
from holdfast import StateStore, StateStoreError, open_state_store
from holdfast.extras import MissingExtraError
from holdfast.stores import registry
from holdfast.stores.wrappers.compression import CompressedStateStore
from holdfast.stores.wrappers.encryption import EncryptedStateStore, new_key
from holdfast.stores.wrappers.prefix import PrefixedStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from holdfast.stores.wrappers.retry import RetryingStateStore
from stores.registry_modules import class_names, write_module
from support.async_tests import run_async

NAME = "HOLDFAST_TEST_KEYS"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working folder, and an environment without a store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setenv(NAME, new_key())
    return tmp_path


@pytest.fixture
def no_network(monkeypatch):
    """Make every connection fail."""

    def refuse(*_):
        raise AssertionError("it connects before its first use")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


# ---- every backend -------------------------------------------------------------------------------

BACKENDS = {
    "memory:": "MemoryStateStore",
    "sqlite:///path.db": "SqliteStateStore",
    "sqlite:///folder/path.db?timeout=3": "SqliteStateStore",
    "file:folder": "FileStateStore",
    "postgresql://user:hunter2@host:5432/db?sslmode=require&table=states": "PostgresStateStore",
    "postgres://user:hunter2@host/db": "PostgresStateStore",
    "redis://:hunter2@host:6379/1?timeout=2&patience=3": "RedisStateStore",
    "rediss://user:hunter2@host": "RedisStateStore",
    "s3://bucket/prefix?region=eu-north-1&access_key_id=A&secret_access_key=hunter2": (
        "ObjectStateStore"
    ),
    "gs://bucket/prefix?anonymous=true": "ObjectStateStore",
    "az://container/prefix?account=me&anonymous=true": "ObjectStateStore",
    "nats://hunter2@host:4222/bucket?timeout=2": "NatsStateStore",
    "tls://user:hunter2@host:4222/bucket": "NatsStateStore",
    "dapr://statestore": "DaprStateStore",
}


@pytest.mark.parametrize(("url", "name"), BACKENDS.items(), ids=lambda text: text.partition("?")[0])
def test_every_documented_url_opens_without_connecting(url, name, folder, no_network):
    store = open_state_store(url)
    assert isinstance(store, StateStore)
    assert type(store).__name__ == name
    assert "hunter2" not in repr(store)
    assert list(folder.iterdir()) == []
    run_async(store.close())


def test_every_scheme_is_in_the_list_of_backends():
    assert {url.partition(":")[0] for url in BACKENDS} == set(registry.SCHEMES)


def test_an_absolute_path_has_four_slashes_with_sqlite_and_three_with_files(folder):
    for url in (f"sqlite:///{folder}/a.db", f"file://{folder}/b", "sqlite:///c.db", "file:d"):
        run_async(use(url))
    names = {path.name for path in folder.iterdir()}
    assert names == {"a.db", "b", "c.db", "d"}


async def use(url, key="a", value=b"1"):
    async with open_state_store(url) as store:
        await store.put(key, value)
        return await store.get(key)


async def look(url, key="a"):
    async with open_state_store(url) as store:
        entry = await store.get(key)
        return entry and entry.value


def test_the_default_is_sqlite_in_its_own_folder(folder):
    store = open_state_store()
    assert type(store).__name__ == "SqliteStateStore"
    run_async(store.close())
    run_async(use(None))
    assert (folder / ".holdfast" / "state.db").is_file()
    assert run_async(look("sqlite:///.holdfast/state.db")) == b"1"


def test_an_argument_takes_precedence_over_the_environment(monkeypatch):
    monkeypatch.setenv("HOLDFAST_STORE", "memory:?prefix=a/")
    assert class_names(open_state_store()) == ["PrefixedStateStore", "MemoryStateStore"]
    assert class_names(open_state_store("memory:")) == ["MemoryStateStore"]
    monkeypatch.setenv("HOLDFAST_STORE", "")
    store = open_state_store()
    assert class_names(store) == ["SqliteStateStore"]
    run_async(store.close())


def test_open_state_store_is_public():
    assert holdfast.open_state_store is open_state_store


# ---- wrappers ------------------------------------------------------------------------------------

OPTIONS = {
    "retry": ("5", "RetryingStateStore"),
    "encrypt": (NAME, "EncryptedStateStore"),
    "compress": ("zstd", "CompressedStateStore"),
    "prefix": ("team/", "PrefixedStateStore"),
    "read_only": ("true", "ReadOnlyStateStore"),
}
CHOICES = [list(choice) for size in range(6) for choice in combinations(OPTIONS, size)]


@pytest.mark.parametrize("choice", CHOICES, ids="-".join)
def test_wrappers_are_stacked_in_the_same_order_whatever_the_order_of_options(choice):
    for order in (choice, choice[::-1]):
        query = "&".join(f"{name}={OPTIONS[name][0]}" for name in order)
        store = open_state_store(f"memory:?{query}" if query else "memory:")
        expected = [OPTIONS[name][1] for name in OPTIONS if name in choice]
        assert class_names(store) == [*expected[::-1], "MemoryStateStore"]
        if "read_only" not in choice:
            run_async(store.put("a", b"1" * 100))
            assert run_async(store.get("a")).value == b"1" * 100


def test_wrappers_get_the_values_of_their_options(monkeypatch):
    store = open_state_store(f"memory:?retry=7&encrypt={NAME}&compress=zstd&prefix=a%2Fb+c/")
    assert isinstance(store, PrefixedStateStore)
    assert store.prefix == "a/b c/"
    assert isinstance(store.inner, CompressedStateStore)
    assert isinstance(store.inner.inner, EncryptedStateStore)
    assert isinstance(store.inner.inner.inner, RetryingStateStore)
    assert store.inner.inner.inner.attempts == 7


def test_a_disabled_option_adds_no_wrapper():
    assert class_names(open_state_store("memory:?retry=0&read_only=false")) == ["MemoryStateStore"]
    assert isinstance(open_state_store("memory:?read_only=1"), ReadOnlyStateStore)


def test_a_value_written_with_a_prefix_is_readable_without_it():
    base = f"sqlite:///s.db?compress=zstd&encrypt={NAME}"
    run_async(use(f"{base}&prefix=team/", "a", b"1" * 1000))
    assert run_async(look(base, "team/a")) == b"1" * 1000


def test_a_value_cannot_be_moved_from_one_prefix_to_another():
    run_async(use(f"sqlite:///s.db?encrypt={NAME}&prefix=red/", "a", b"red"))
    run_async(use(f"sqlite:///s.db?encrypt={NAME}&prefix=blue/", "a", b"blue"))

    async def move():
        async with open_state_store("sqlite:///s.db") as store:
            entry = await store.get("red/a")
            await store.put("blue/a", entry.value)

    run_async(move())
    with pytest.raises(holdfast.IntegrityError, match="moved"):
        run_async(look(f"sqlite:///s.db?encrypt={NAME}&prefix=blue/"))


def test_encryption_keys_are_rotated_by_changing_the_variable(monkeypatch):
    url = f"sqlite:///s.db?encrypt={NAME}"
    run_async(use(url))
    monkeypatch.setenv(NAME, f"{new_key()},{os.environ[NAME]}")
    assert run_async(look(url)) == b"1"
    monkeypatch.setenv(NAME, new_key())
    with pytest.raises(holdfast.IntegrityError, match="which is missing"):
        run_async(look(url))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("compress=gzip", "option compress must be zstd, got 'gzip'"),
        ("compress=", "compress must be zstd"),
        ("prefix=", "prefix must not be empty"),
        ("retry=many", "retry of the memory URL must be a whole number of at least 0, got 'many'"),
        ("retry=1.5", "whole number"),
        ("retry=-1", "whole number"),
        ("read_only=perhaps", "read_only of the memory URL must be true or false"),
        ("encrypt=", "name of an environment variable"),
        ("encrypt=NOT_SET_ANYWHERE", "NOT_SET_ANYWHERE.*is not set"),
        ("encypt=K", r"unknown option 'encypt' in the memory URL, did you mean encrypt\?"),
        ("Prefix=a", r"'Prefix' .*did you mean prefix"),
        ("timeout=5", "unknown option 'timeout'"),
        ("prefix=a&prefix=b", "'prefix' appears twice"),
        ("compress=zstd&level=3", "unknown option 'level'"),
    ],
)
def test_an_invalid_option_is_rejected(query, words):
    with pytest.raises(StateStoreError, match=words):
        open_state_store(f"memory:?{query}")


@pytest.mark.parametrize(
    "url", [url for url in BACKENDS if not url.startswith("postgres")], ids=lambda url: url[:8]
)
def test_every_backend_rejects_unknown_options(url, no_network):
    with pytest.raises(StateStoreError, match="unknown option 'shape'") as caught:
        open_state_store(f"{url}{'&' if '?' in url else '?'}shape=round")
    assert "hunter2" not in str(caught.value)


def test_a_key_given_instead_of_a_variable_name_is_not_repeated():
    secret = base64.b64encode(os.urandom(32)).decode()
    for given in (secret, secret.rstrip("="), f"id:{secret}", secret.replace("+", "%2B")):
        with pytest.raises(StateStoreError, match="not the key itself") as caught:
            open_state_store(f"memory:?encrypt={given}")
        assert secret[:20] not in str(caught.value)


# ---- errors --------------------------------------------------------------------------------------


def test_an_unknown_scheme_is_rejected_with_the_known_ones():
    with pytest.raises(StateStoreError) as caught:
        open_state_store("mysql://user:hunter2@host/db")
    for word in ("'mysql'", "sqlite", "postgresql", "redis", "s3", "nats", "dapr", "entry point"):
        assert word in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["state.db", "", "  ", "/var/lib/state.db", "C:state db"])
def test_text_that_is_not_a_url_is_rejected(url):
    with pytest.raises(StateStoreError):
        open_state_store(url)


@pytest.mark.parametrize("url", [7, b"memory:", Path("state.db")])
def test_a_url_must_be_a_str(url):
    with pytest.raises(TypeError, match="URL must be a str"):
        open_state_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "memory:there",
        "memory://there",
        "sqlite://host/x.db",
        "sqlite:",
        "sqlite:///",
        "file:",
        "file://host/dir",
    ],
)
def test_an_incomplete_url_is_rejected_with_an_example(url):
    scheme = url.partition(":")[0]
    with pytest.raises(StateStoreError, match=f"{scheme}:"):
        open_state_store(url)


MISSING = [
    ("postgresql://host/db", "psycopg", "postgresql"),
    ("postgresql://host/db", "psycopg", "postgresql"),
    ("redis://host", "redis", "redis"),
    ("s3://bucket", "obstore", "objectstore"),
    ("nats://host", "nats", "nats"),
    ("dapr://statestore", "dapr", "dapr"),
    (f"memory:?encrypt={NAME}", "cryptography", "encryption"),
    ("memory:?compress=zstd", "zstandard", "compression"),
]
OURS = ("sqlite", "postgresql", "redis", "object", "nats", "dapr")
OURS_TOO = ("wrappers.encryption", "wrappers.compression")


def uninstall(monkeypatch, package):
    """Make a package appear uninstalled, and forget our modules that may need it."""
    for name in list(sys.modules):
        if name.startswith(f"{package}."):
            monkeypatch.setitem(sys.modules, name, None)
        if name.startswith(tuple(f"holdfast.stores.{ours}" for ours in OURS + OURS_TOO)):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize(("url", "package", "extra"), MISSING)
def test_a_missing_package_is_reported_with_the_command_that_installs_it(
    url, package, extra, monkeypatch
):
    uninstall(monkeypatch, package)
    with pytest.raises(MissingExtraError) as caught:
        open_state_store(url)
    assert f"{package} is not installed" in str(caught.value)
    assert f"pip install 'holdfast[{extra}]'" in str(caught.value)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_every_extra_exists_in_the_project():
    import tomllib

    project = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    assert {extra for _, extra in registry.SCHEMES.values()} - {""} <= set(extras)
    assert {extra for _, _, extra in MISSING} <= set(extras)


def test_a_missing_standard_module_is_reported_without_a_command(monkeypatch):
    uninstall(monkeypatch, "sqlite3")
    with pytest.raises(StateStoreError, match="needs the module sqlite3.*use another Python"):
        open_state_store("sqlite:///x.db")


def test_a_broken_package_is_reported_with_its_error(tmp_path, monkeypatch):
    write_module(tmp_path, monkeypatch, "broken_store", "raise ImportError('no libpq found')")
    monkeypatch.setitem(registry.SCHEMES, "broken", ("broken_store", "postgresql"))
    with pytest.raises(MissingExtraError, match="cannot be loaded: no libpq found; pip install"):
        open_state_store("broken://x")


def test_an_import_error_of_our_own_is_not_mistaken_for_a_missing_package(monkeypatch):
    monkeypatch.setitem(registry.SCHEMES, "gone", ("holdfast.stores.no_such_module", "redis"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        open_state_store("gone://x")
