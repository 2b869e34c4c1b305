"""Writes that fail half-way, and the paths that only compiled code takes.

Tested interpreted, where functions can be replaced by ones that raise.
"""

from __future__ import annotations

import msgspec
import pytest

import holdfast
from holdfast import Store, UnsupportedValueError
from holdfast.state import live, store
from holdfast.state.store import Transaction
from holdfast.values import binary_encoding
from support.sample_values import SAMPLES, is_identical

pytestmark = pytest.mark.skipif(holdfast.compiled, reason="compiled code cannot be replaced")


class InjectedError(BaseException):
    pass


def make_store() -> Store:
    filled_store = Store(max_history=None)
    filled_store.set_many(("n", f"k{at}", at) for at in range(100))
    filled_store.set("alone", "k", "x")
    return filled_store


def is_consistent(filled_store: Store) -> bool:
    snapshot = filled_store.snapshot()
    entries = list(snapshot.items())
    return (
        len(filled_store) == len(snapshot) == len(entries)
        and snapshot.size_bytes
        == sum(len(binary_encoding.encode(value)) for _, _, value in entries)
        and filled_store.namespaces() == sorted({namespace for namespace, _, _ in entries})
    )


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", ["hash_key", "lookup", "owned_leaf", "remove_key", "is_empty"])
@pytest.mark.parametrize("write", ["new key", "new namespace", "delete", "delete the last"])
def test_an_interrupted_write_leaves_correct_counts(monkeypatch, write, name, moment):
    filled_store = make_store()
    real = getattr(live, name)
    failed = []

    def fail(*args, **more):
        failed.append(name)
        if moment == "after":
            real(*args, **more)
        raise InjectedError

    with monkeypatch.context() as patch:
        patch.setattr(live, name, fail)
        try:
            if write == "new key":
                filled_store.set("n", "new", 1)
            elif write == "new namespace":
                filled_store.set("other", "k", 1)
            elif write == "delete":
                filled_store.delete("n", "k1")
            else:
                filled_store.delete("alone", "k")
        except InjectedError:
            assert failed == [name]
        else:
            # A set does not call the last two, and a delete does not call owned_leaf.
            assert name in ("remove_key", "is_empty", "owned_leaf")
            assert not failed
    assert is_consistent(filled_store)


def test_counts_are_recomputed_after_an_interruption(monkeypatch):
    filled_store = make_store()

    def fail(*args):
        raise InjectedError

    with monkeypatch.context() as patch:
        patch.setattr(live.LiveState, "_account", fail)
        with pytest.raises(InjectedError):
            filled_store.set("n", "new", 1)
    assert len(filled_store) == 102
    assert is_consistent(filled_store)


@pytest.mark.parametrize("at", [1, 5, 30])
def test_an_interrupted_batch_is_rolled_back(monkeypatch, at):
    filled_store = make_store()
    before = filled_store.snapshot()
    real, calls = live.LiveState._account, []

    def fail(self, *args):
        calls.append(1)
        if len(calls) == at:
            raise InjectedError
        real(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(live.LiveState, "_account", fail)
        with pytest.raises(InjectedError):
            filled_store.set_many(("n", f"k{key * 3}", "new") for key in range(60))
    after = filled_store.snapshot()
    assert after.digest == before.digest
    assert is_consistent(filled_store)


def test_the_lock_free_path_equals_the_locked_path(monkeypatch):
    monkeypatch.setattr(store, "_ATOMIC", True)
    filled_store = Store()
    model = {}
    for turn in range(3):
        for at in range(200):
            for key, value in ((f"k{at}", [turn, at]), (f"ü{at}", turn), ("same", 1)):
                filled_store.set("n", key, value)
                model[key] = value
                assert filled_store.get("n", key) == value
        filled_store.snapshot()
    assert {key: filled_store.get("n", key) for key in filled_store.keys("n")} == model
    assert filled_store.get("n", "missing", 7) == 7
    assert is_consistent(filled_store)


def test_both_implementations_of_transactions_are_equivalent():
    filled_store = make_store()
    before = filled_store.snapshot()
    with pytest.raises(KeyError), Transaction(filled_store) as inside:
        inside.set("n", "k1", "changed")
        inside.snapshot()
        raise KeyError
    assert filled_store.snapshot().digest == before.digest
    transaction = Transaction(filled_store)
    with transaction:
        filled_store.set("n", "outer", 1)
        with pytest.raises(RuntimeError, match="transaction is already open"), transaction:
            pass
        with pytest.raises(KeyError), Transaction(filled_store):
            filled_store.set("n", "inner", 1)
            raise KeyError
        taken = filled_store.snapshot()
    assert filled_store.get("n", "outer") == 1
    assert not filled_store.contains("n", "inner")
    assert filled_store.history[-1] is taken
    assert is_consistent(filled_store)


def test_an_error_of_the_packer_is_an_unsupported_value(monkeypatch):
    def refuse(value):
        raise msgspec.EncodeError("Can't encode Extension objects with data longer than 2**32")

    monkeypatch.setattr(binary_encoding, "pack", refuse)
    with pytest.raises(UnsupportedValueError, match=r"longer than 2\*\*32"):
        binary_encoding.encode([1])


@pytest.mark.parametrize("value", SAMPLES.values(), ids=SAMPLES)
def test_values_round_trip_through_the_lock_free_path(monkeypatch, value):
    monkeypatch.setattr(store, "_ATOMIC", True)
    filled_store = Store()
    filled_store.set("n", "k", 0)
    filled_store.set("n", "k", value)
    assert is_identical(filled_store.get("n", "k"), value)
