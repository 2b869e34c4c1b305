"""Schemes that other packages add with entry points."""

from __future__ import annotations

import sys

import pytest

from holdfast import StateStoreError, open_state_store
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.urls import StoreURL
from stores.registry_modules import class_names, write_module
from support.async_tests import run_async

MODULE = """
from holdfast.stores.memory import MemoryStateStore

class EtcdStateStore(MemoryStateStore):
    def __init__(self, url):
        super().__init__()
        self.display_url = url

def open_etcd(url):
    url.take_number("lease", 5)
    url.reject_unknown_options(("lease",))
    return EtcdStateStore(str(url))

def open_nothing(url):
    return None

not_a_function = 7
"""


@pytest.fixture
def other_package(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    info = folder / "other_stores-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-stores\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[holdfast.state_stores]\n"
        "etcd = other_stores:open_etcd\n"
        "nothing = other_stores:open_nothing\n"
        "seven = other_stores:not_a_function\n"
        "absent = other_stores:no_such_name\n"
        "lost = no_such_module_anywhere:open\n"
        "memory = other_stores:open_etcd\n"
    )
    write_module(folder, monkeypatch, "other_stores", MODULE)


def test_another_package_adds_a_scheme(other_package):
    store = open_state_store("etcd://user:hunter2@host/x?lease=3&prefix=a/&compress=zstd")
    assert class_names(store) == ["PrefixedStateStore", "CompressedStateStore", "EtcdStateStore"]
    assert "etcd://user:***@host/x?lease=3" in repr(store)
    run_async(store.put("a", b"1"))
    with pytest.raises(StateStoreError, match="this store has lease"):
        open_state_store("etcd://host?leese=3")


def test_schemes_of_other_packages_do_not_replace_built_in_ones(other_package):
    with pytest.raises(StateStoreError, match="dapr, etcd, file"):
        open_state_store("unknown://x")
    assert type(open_state_store("memory:")) is MemoryStateStore


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        ("absent", r"'absent' \(other_stores:no_such_name\) cannot be loaded.*fix or uninstall"),
        ("lost", r"'lost' \(no_such_module_anywhere:open\) cannot be loaded"),
        ("seven", r"'seven' \(other_stores:not_a_function\) is not a function"),
        ("nothing", "nothing URLs returned None instead of a StateStore"),
    ],
)
def test_a_broken_entry_point_is_named(other_package, scheme, words):
    with pytest.raises(StateStoreError, match=words):
        open_state_store(f"{scheme}://x")


def test_an_opener_is_given_the_parsed_url(other_package, monkeypatch):
    given = []
    monkeypatch.setattr(
        sys.modules.get("other_stores") or __import__("other_stores"),
        "open_etcd",
        lambda url: given.append(url) or MemoryStateStore(),
    )
    open_state_store("etcd://host:7/x?retry=2&lease=3")
    assert isinstance(given[0], StoreURL)
    assert (given[0].host, given[0].port, given[0].options) == ("host", 7, {"lease": "3"})
