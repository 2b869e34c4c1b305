"""Encryption keys: validation, the environment variable, and secrecy."""

from __future__ import annotations

import base64
import copy
import pickle

import pytest

from holdfast import StateStoreError
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.encryption import (
    EncryptedStateStore,
    EncryptionKeys,
    keys_from_environment,
    new_key,
)

OLD = b"old secret".ljust(32, b"!")
NEW = b"new secret".ljust(32, b"?")


def test_no_repr_contains_a_secret():
    keys = EncryptionKeys({"old": OLD})
    for thing in (keys, EncryptedStateStore(MemoryStateStore(), keys), {"keys": keys}):
        text = f"{thing!r} {thing}"
        assert "secret" not in text
        assert "old" in text


def test_keys_are_immutable():
    given_keys = {"old": OLD}
    keys = EncryptionKeys(given_keys)
    given_keys["new"] = NEW
    assert keys.ids == ("old",)
    with pytest.raises(TypeError):
        keys.secrets["new"] = NEW
    with pytest.raises(AttributeError):
        keys.secrets = {}
    assert copy.copy(keys) == keys
    with pytest.raises(TypeError):
        pickle.dumps(keys)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({}, ValueError, "at least one"),
        (OLD, TypeError, "mapping"),
        ({"old": OLD[:31]}, ValueError, "old must have 32 bytes, got 31"),
        ({"old": "x" * 32}, TypeError, "old must be bytes, got str"),
        ({"": OLD}, ValueError, "1 to 64"),
        ({"x" * 65: OLD}, ValueError, "1 to 64"),
        ({"a b": OLD}, ValueError, "1 to 64"),
        ({"é": OLD}, ValueError, "1 to 64"),
        ({7: OLD}, ValueError, "1 to 64"),
    ],
)
def test_invalid_keys_are_rejected(wrong, error, words):
    with pytest.raises(error, match=words) as caught:
        EncryptionKeys(wrong)
    assert "secret!" not in str(caught.value)


def test_an_argument_that_is_not_keys_is_rejected_and_not_repeated():
    with pytest.raises(TypeError, match="EncryptionKeys, got bytes") as caught:
        EncryptedStateStore(MemoryStateStore(), OLD)
    assert "old secret" not in str(caught.value)


def test_a_wrapper_needs_a_store():
    with pytest.raises(TypeError, match="takes a StateStore"):
        EncryptedStateStore("memory:", EncryptionKeys({"old": OLD}))


# ---- keys from the environment -------------------------------------------------------------------

NAME = "HOLDFAST_TEST_KEYS"


def encode_secret(secret):
    return base64.b64encode(secret).decode()


def test_a_new_key_can_be_put_into_the_variable(monkeypatch):
    first, second = new_key(), new_key()
    assert first != second
    monkeypatch.setenv(NAME, f"{second},{first}")
    keys = keys_from_environment(NAME)
    assert keys.ids == (second.partition(":")[0], first.partition(":")[0])
    assert [len(secret) for secret in keys.secrets.values()] == [32, 32]


def test_ids_and_secrets_are_parsed_in_order(monkeypatch):
    monkeypatch.setenv(NAME, f" new:{encode_secret(NEW)} ,\n old:{encode_secret(OLD)}\n")
    assert keys_from_environment(NAME) == EncryptionKeys({"new": NEW, "old": OLD})
    assert keys_from_environment(NAME).ids == ("new", "old")


def test_a_secret_without_an_id_gets_a_stable_one(monkeypatch):
    key = new_key()
    monkeypatch.setenv(NAME, key.partition(":")[2])
    assert keys_from_environment(NAME).ids == (key.partition(":")[0],)
    monkeypatch.setenv(NAME, f"new:{encode_secret(NEW)},{key.partition(':')[2]}")
    assert keys_from_environment(NAME).ids == ("new", key.partition(":")[0])


def test_both_base64_alphabets_are_accepted_with_or_without_padding(monkeypatch):
    secret = b"\xfb\xff\xfe" * 10 + b"\xff\xff"
    for form in (base64.b64encode(secret), base64.urlsafe_b64encode(secret)):
        for written in (form.decode(), form.decode().rstrip("=")):
            monkeypatch.setenv(NAME, f"a:{written}")
            assert keys_from_environment(NAME).secrets["a"] == secret


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, f"{NAME}.*is not set.*new_key"),
        ("  ", f"{NAME}.*is not set"),
        (
            f"a:{encode_secret(OLD[:16])}",
            f"key 1 in environment variable {NAME} must have 32 bytes, got 16",
        ),
        (f"{encode_secret(OLD)},b:{encode_secret(OLD + OLD)}", "key 2 .* got 64"),
        (f"a:{encode_secret(OLD)},", "key 2 .* got 0"),
        ("a:hunter2-not!base64", "key 1 .* is not base64"),
        ("hunter2é", "key 1 .* is not base64"),
        (f"a b:{encode_secret(OLD)}", "key 1 .* invalid id"),
        (f":{encode_secret(OLD)}", "key 1 .* invalid id"),
        (f"hunter2:x:{encode_secret(OLD)}", "key 1 .* invalid id"),
        (
            f"a:{encode_secret(OLD)},b:{encode_secret(NEW)},a:{encode_secret(NEW)}",
            f"{NAME} has key id a twice",
        ),
    ],
)
def test_an_invalid_variable_is_explained_without_its_content(monkeypatch, content, words):
    monkeypatch.delenv(NAME, raising=False)
    if content is not None:
        monkeypatch.setenv(NAME, content)
    with pytest.raises(StateStoreError, match=words) as caught:
        keys_from_environment(NAME)
    problem: BaseException | None = caught.value
    while problem is not None:
        assert "hunter2" not in str(problem)
        assert encode_secret(OLD)[:8] not in str(problem)
        problem = problem.__cause__ or (
            None if problem.__suppress_context__ else problem.__context__
        )


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a b",
        "é",
        f"old:{encode_secret(OLD)}",
        encode_secret(OLD),
        encode_secret(OLD).rstrip("="),
        OLD.hex(),
        "1A",
    ],
)
def test_a_key_given_instead_of_a_variable_name_is_not_repeated(name):
    with pytest.raises(StateStoreError, match="not the key itself") as caught:
        keys_from_environment(name)
    assert not name or name not in str(caught.value)
