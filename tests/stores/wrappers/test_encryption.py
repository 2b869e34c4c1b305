"""Encryption: values are hidden, and changes to them detected."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConflictError, IntegrityError, Put, StateStoreError
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers import encryption
from holdfast.stores.wrappers.compression import CompressedStateStore
from holdfast.stores.wrappers.encryption import (
    EncryptedStateStore,
    EncryptionKeys,
    reencrypt,
)
from holdfast.stores.wrappers.prefix import PrefixedStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from holdfast.testing import StateStoreSuite
from stores.wrappers.thread_recorder import ThreadRecorder
from support.async_tests import async_test, run_async

OLD = b"old secret".ljust(32, b"!")
NEW = b"new secret".ljust(32, b"?")
KEYS = EncryptionKeys({"old": OLD})
ROTATED = EncryptionKeys({"new": NEW, "old": OLD})


@pytest.fixture
def inner():
    return MemoryStateStore()


@pytest.fixture
def store(inner):
    return EncryptedStateStore(inner, KEYS)


def read_stored(inner, key):
    return run_async(inner.get(key)).value


class TestOverMemory(StateStoreSuite):
    @pytest.fixture
    def new_store(self):
        return lambda: EncryptedStateStore(MemoryStateStore(), KEYS)


# ---- stored form ---------------------------------------------------------------------------------


def test_the_stored_bytes_contain_neither_the_value_nor_a_secret(inner, store):
    run_async(store.put("a", b"the plain text"))
    stored = read_stored(inner, "a")
    assert b"plain" not in stored
    assert OLD not in stored
    assert len(stored) == 4 + 1 + 1 + len("old") + 12 + len(b"the plain text") + 16


def test_the_format_is_as_documented(inner, store):
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    run_async(store.put("clé", b"value"))
    stored = read_stored(inner, "clé")
    assert stored[:9] == b"\xfaHFE\x01\x03old"
    plain = AESGCM(OLD).decrypt(stored[9:21], stored[21:], stored[:9] + "clé".encode())
    assert plain == b"value"


def test_a_value_of_an_earlier_version_is_readable(inner, store):
    stored = "fa48464501036f6c64a929741505924718485e98ed6a1389873316d8c6c3d1ac26947465ce8e22528eef"
    run_async(inner.put("clé", bytes.fromhex(stored)))
    assert run_async(store.get("clé")).value == b"value"


def test_the_same_value_is_encrypted_differently_each_time(inner, store):
    stored = set()
    for _ in range(50):
        run_async(store.put("a", b"same"))
        stored.add(read_stored(inner, "a")[9:21])
    assert len(stored) == 50


def test_etags_are_those_of_the_inner_store(inner, store):
    etag = run_async(store.put("a", b"1"))
    assert run_async(inner.get("a")).etag == etag
    assert run_async(store.get("a")).etag == etag


# ---- tampering -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"", b"some value"])
@async_test
async def test_a_change_of_any_byte_is_detected(inner, store, value):
    await store.put("a", value)
    whole = (await inner.get("a")).value
    for at in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(whole)
            changed[at] ^= flip
            await inner.put("a", bytes(changed))
            with pytest.raises(IntegrityError, match="'a'"):
                await store.get("a")
            with pytest.raises(IntegrityError, match="'a'"):
                await store.get_many(["a"])


@async_test
async def test_a_truncated_or_extended_value_is_detected(inner, store):
    await store.put("a", b"some value")
    whole = (await inner.get("a")).value
    for wrong in (*(whole[:size] for size in range(len(whole))), whole + b"\0", whole + whole):
        await inner.put("a", wrong)
        with pytest.raises(IntegrityError, match="'a'"):
            await store.get("a")


@given(st.binary(max_size=80))
def test_only_encrypted_values_are_returned(junk):
    inner = MemoryStateStore()
    store = EncryptedStateStore(inner, KEYS)
    for stored in (junk, encryption.MAGIC + junk, encryption.encode_header("old") + junk):
        run_async(inner.put("a", stored))
        with pytest.raises(IntegrityError):
            run_async(store.get("a"))


@pytest.mark.parametrize("plain", [b"", b"{}", b'{"a": 1}', b"\xfaHF", bytes(100)])
def test_plain_text_is_rejected_as_not_encrypted(inner, store, plain):
    run_async(inner.put("a", plain))
    with pytest.raises(IntegrityError, match="'a' is not encrypted.*write it again"):
        run_async(store.get("a"))


def test_a_value_moved_to_another_key_is_detected(inner, store):
    run_async(store.put("rights/guest", b"admin: no"))
    run_async(store.put("rights/root", b"admin: yes"))
    run_async(inner.put("rights/guest", read_stored(inner, "rights/root")))
    with pytest.raises(IntegrityError, match=r"'rights/guest'.*moved from another key"):
        run_async(store.get("rights/guest"))
    assert run_async(store.get("rights/root")).value == b"admin: yes"


def test_the_boundary_between_key_id_and_key_is_authenticated(inner):
    # The same bytes, split elsewhere: the length of the id is authenticated too.
    keys = EncryptionKeys({"k": OLD, "kk": OLD})
    store = EncryptedStateStore(inner, keys)
    run_async(store.put("kx", b"1"))
    stored = read_stored(inner, "kx")
    run_async(inner.put("x", stored[:5] + b"\x02kk" + stored[7:]))
    with pytest.raises(IntegrityError):
        run_async(store.get("x"))


def test_a_missing_encryption_key_is_named(inner, store):
    run_async(store.put("a", b"1"))
    other = EncryptedStateStore(inner, EncryptionKeys({"new": NEW, "newer": NEW}))
    with pytest.raises(IntegrityError, match="'a' was encrypted with key old.*new, newer"):
        run_async(other.get("a"))


def test_another_secret_with_the_same_id_is_detected(inner, store):
    run_async(store.put("a", b"1"))
    other = EncryptedStateStore(inner, EncryptionKeys({"old": NEW}))
    with pytest.raises(IntegrityError, match="key old had another secret"):
        run_async(other.get("a"))


def test_a_newer_format_needs_a_newer_holdfast(inner, store):
    run_async(store.put("a", b"1"))
    stored = read_stored(inner, "a")
    run_async(inner.put("a", stored[:4] + b"\x02" + stored[5:]))
    with pytest.raises(IntegrityError, match="format 2.*supports 1.*newer Holdfast"):
        run_async(store.get("a"))


def test_one_damaged_value_of_many_is_named(inner, store):
    run_async(store.put_many([Put(key, b"1") for key in "abc"]))
    run_async(inner.put("b", b"plain"))
    with pytest.raises(IntegrityError, match="'b' is not encrypted"):
        run_async(store.get_many(list("abc")))


def test_a_value_too_large_for_the_cipher_is_rejected_before_anything_is_written(
    inner, store, monkeypatch
):
    monkeypatch.setattr(encryption, "MAX_VALUE_BYTES", 10)
    with pytest.raises(StateStoreError, match="'b' has 11 bytes.*allows 10"):
        run_async(store.put_many([Put("a", b"1"), Put("b", b"x" * 11)]))
    assert run_async(inner.get("a")) is None


def test_a_batch_stays_atomic(inner, store):
    run_async(store.put("b", b"0"))
    with pytest.raises(ConflictError) as caught:
        run_async(store.put_many([Put("a", b"1"), Put("b", b"1", if_absent=True)]))
    assert caught.value.key == "b"
    assert run_async(store.get("a")) is None


# ---- rotation ------------------------------------------------------------------------------------


def test_the_first_key_encrypts_and_every_key_decrypts(inner, store):
    run_async(store.put("a", b"old"))
    rotated = EncryptedStateStore(inner, ROTATED)
    assert run_async(rotated.get("a")).value == b"old"
    run_async(rotated.put("b", b"new"))
    assert read_stored(inner, "a")[6:9] == b"old"
    assert read_stored(inner, "b")[6:9] == b"new"


def test_reencrypt_leaves_no_value_with_the_old_key(inner, store):
    content = {f"k/{number:02}": os.urandom(number * 40_000) for number in range(12)}
    run_async(store.put_many([Put(key, value) for key, value in content.items()]))
    rotated = EncryptedStateStore(inner, ROTATED)
    run_async(rotated.put("k/05", content["k/05"]))
    assert run_async(reencrypt(rotated)) == 11
    assert run_async(reencrypt(rotated)) == 0
    only_new = EncryptedStateStore(inner, EncryptionKeys({"new": NEW}))
    found = run_async(only_new.get_many(content))
    assert {key: entry.value for key, entry in found.items()} == content


def test_reencrypt_of_a_prefix_leaves_other_keys(inner, store):
    run_async(store.put_many([Put(key, b"1") for key in ("a/1", "a/2", "b/1")]))
    assert run_async(reencrypt(EncryptedStateStore(inner, ROTATED), "a/")) == 2
    assert read_stored(inner, "b/1")[6:9] == b"old"


class InterruptedReads(MemoryStateStore):
    """A store in which something happens right after a key is read."""

    def __init__(self):
        super().__init__()
        self.interruptions = []

    async def _get(self, key):
        entry = await super()._get(key)
        if self.interruptions:
            await self.interruptions.pop(0)()
        return entry


def test_reencrypt_does_not_undo_concurrent_writes():
    inner = InterruptedReads()
    old = EncryptedStateStore(inner, KEYS)
    rotated = EncryptedStateStore(inner, ROTATED)
    run_async(old.put_many([Put(key, b"1") for key in "abc"]))
    inner.interruptions = [
        lambda: old.put("a", b"2"),  # with the old key: read again and written
        lambda: asyncio.sleep(0),
        lambda: rotated.put("b", b"2"),  # with the new key: read again and left
        lambda: asyncio.sleep(0),
        lambda: old.delete("c"),
    ]
    assert run_async(reencrypt(rotated)) == 1
    found = run_async(rotated.get_many(list("abc")))
    assert {key: entry.value for key, entry in found.items()} == {"a": b"2", "b": b"2"}
    assert read_stored(inner, "a")[6:9] == b"new"


def test_reencrypt_finds_the_encryption_inside_other_wrappers(inner, store):
    def team(keys):
        outside = CompressedStateStore(EncryptedStateStore(inner, keys))
        return PrefixedStateStore(PrefixedStateStore(outside, "teams/"), "red/")

    run_async(team(KEYS).put("a/1", b"1" * 100))
    run_async(team(KEYS).put("b/1", b"1"))
    run_async(store.put("teams/blue/a/1", b"1"))
    assert run_async(reencrypt(team(ROTATED), "a/")) == 1
    assert read_stored(inner, "teams/red/a/1")[6:9] == b"new"
    assert read_stored(inner, "teams/red/b/1")[6:9] == b"old"
    assert read_stored(inner, "teams/blue/a/1")[6:9] == b"old"
    assert run_async(team(ROTATED).get("a/1")).value == b"1" * 100


def test_reencrypt_needs_a_writable_store_with_encryption(inner, store):
    with pytest.raises(TypeError, match="a store with encryption"):
        run_async(reencrypt(inner))
    with pytest.raises(StateStoreError, match="is read-only"):
        run_async(reencrypt(ReadOnlyStateStore(store)))


def test_reencrypt_stops_at_a_damaged_value_and_can_be_resumed(inner, store):
    run_async(store.put_many([Put(key, b"1") for key in "abc"]))
    good = read_stored(inner, "b")
    run_async(inner.put("b", good[:-1] + b"?"))
    rotated = EncryptedStateStore(inner, ROTATED)
    with pytest.raises(IntegrityError, match="'b'"):
        run_async(reencrypt(rotated))
    run_async(inner.put("b", good))
    assert run_async(reencrypt(rotated)) == 2


# ---- threads -------------------------------------------------------------------------------------


def test_concurrent_large_values_round_trip(store):
    values = {f"k{number}": os.urandom(300_000 + number) for number in range(16)}

    async def all_at_once():
        await asyncio.gather(*(store.put(key, value) for key, value in values.items()))
        found = await asyncio.gather(*(store.get(key) for key in values))
        return [entry.value for entry in found]

    assert run_async(all_at_once()) == list(values.values())


class RecordedStore(ThreadRecorder, EncryptedStateStore):
    """Records the threads that encrypt."""


@pytest.mark.parametrize(("size", "in_loop"), [(1000, True), (300_000, False)])
def test_large_values_are_encrypted_outside_the_event_loop(inner, size, in_loop):
    watched = RecordedStore(inner, KEYS)

    async def use():
        await watched.put("a", bytes(size))
        await watched.get("a")
        await watched.put_many([Put("a", bytes(size // 2)), Put("b", bytes(size))])
        await watched.get_many(list("ab"))

    run_async(use())
    assert len(watched.threads) == 6
    assert {thread is threading.main_thread() for thread in watched.threads} == {in_loop}
