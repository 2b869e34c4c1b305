"""What the compiled code cannot be made to do in a test: a write that fails half-way.

Interpreted, functions can be replaced by ones that raise, and the compiled code's ways be taken.
"""

from __future__ import annotations

import msgspec
import pytest

import holdfast
from holdfast import Store, UnsupportedValueError
from holdfast.state import live, store
from holdfast.state.store import Transaction
from holdfast.values import binary_encoding
from support.sample_values import SAMPLES, identical

pytestmark = pytest.mark.skipif(holdfast.compiled, reason="compiled code cannot be replaced")


class StruckError(BaseException):
    pass


def filled() -> Store:
    made = Store(max_history=None)
    made.set_many(("n", f"k{at}", at) for at in range(100))
    made.set("alone", "k", "x")
    return made


def sound(made: Store) -> bool:
    snapshot = made.snapshot()
    entries = list(snapshot.items())
    return (
        len(made) == len(snapshot) == len(entries)
        and snapshot.size_bytes
        == sum(len(binary_encoding.encode(value)) for _, _, value in entries)
        and made.namespaces() == sorted({namespace for namespace, _, _ in entries})
    )


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", ["hash_key", "lookup", "owned_leaf", "remove_key", "is_empty"])
@pytest.mark.parametrize("write", ["new key", "new namespace", "delete", "delete the last"])
def test_a_single_write_that_is_cut_short_leaves_the_counts_right(monkeypatch, write, name, moment):
    made = filled()
    real = getattr(live, name)
    struck = []

    def strike(*args, **more):
        struck.append(name)
        if moment == "after":
            real(*args, **more)
        raise StruckError

    with monkeypatch.context() as patch:
        patch.setattr(live, name, strike)
        try:
            if write == "new key":
                made.set("n", "new", 1)
            elif write == "new namespace":
                made.set("other", "k", 1)
            elif write == "delete":
                made.delete("n", "k1")
            else:
                made.delete("alone", "k")
        except StruckError:
            assert struck == [name]
        else:
            # A set does not come by the last two, nor a delete by what makes room.
            assert name in ("remove_key", "is_empty", "owned_leaf")
            assert not struck
    assert sound(made)


def test_an_account_that_was_not_taken_is_taken_later(monkeypatch):
    made = filled()

    def struck(*args):
        raise StruckError

    with monkeypatch.context() as patch:
        patch.setattr(live.LiveState, "_account", struck)
        with pytest.raises(StruckError):
            made.set("n", "new", 1)
    assert len(made) == 102
    assert sound(made)


@pytest.mark.parametrize("at", [1, 5, 30])
def test_a_batch_that_is_cut_short_is_undone(monkeypatch, at):
    made = filled()
    before = made.snapshot()
    real, calls = live.LiveState._account, []

    def struck(self, *args):
        calls.append(1)
        if len(calls) == at:
            raise StruckError
        real(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(live.LiveState, "_account", struck)
        with pytest.raises(StruckError):
            made.set_many(("n", f"k{key * 3}", "new") for key in range(60))
    after = made.snapshot()
    assert after.digest == before.digest
    assert sound(made)


def test_the_one_step_way_does_what_the_locked_way_does(monkeypatch):
    monkeypatch.setattr(store, "_ATOMIC", True)
    made = Store()
    model = {}
    for turn in range(3):
        for at in range(200):
            for key, value in ((f"k{at}", [turn, at]), (f"ü{at}", turn), ("same", 1)):
                made.set("n", key, value)
                model[key] = value
                assert made.get("n", key) == value
        made.snapshot()
    assert {key: made.get("n", key) for key in made.keys("n")} == model
    assert made.get("n", "missing", 7) == 7
    assert sound(made)


def test_the_compiled_shape_of_a_transaction_does_what_the_other_does():
    made = filled()
    before = made.snapshot()
    with pytest.raises(KeyError), Transaction(made) as inside:
        inside.set("n", "k1", "changed")
        inside.snapshot()
        raise KeyError
    assert made.snapshot().digest == before.digest
    transaction = Transaction(made)
    with transaction:
        made.set("n", "outer", 1)
        with pytest.raises(RuntimeError, match="transaction is already open"), transaction:
            pass
        with pytest.raises(KeyError), Transaction(made):
            made.set("n", "inner", 1)
            raise KeyError
        taken = made.snapshot()
    assert made.get("n", "outer") == 1
    assert not made.contains("n", "inner")
    assert made.history[-1] is taken
    assert sound(made)


def test_what_the_packer_refuses_is_an_unsupported_value(monkeypatch):
    def refuse(value):
        raise msgspec.EncodeError("Can't encode Extension objects with data longer than 2**32")

    monkeypatch.setattr(binary_encoding, "pack", refuse)
    with pytest.raises(UnsupportedValueError, match=r"longer than 2\*\*32"):
        binary_encoding.encode([1])


@pytest.mark.parametrize("value", SAMPLES.values(), ids=SAMPLES)
def test_values_survive_the_one_step_way(monkeypatch, value):
    monkeypatch.setattr(store, "_ATOMIC", True)
    made = Store()
    made.set("n", "k", 0)
    made.set("n", "k", value)
    assert identical(made.get("n", "k"), value)
