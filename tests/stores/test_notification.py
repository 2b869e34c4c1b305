"""What servers tell other processes about writes."""

from __future__ import annotations

import os

import pytest

from holdfast.stores.notification import (
    decode_notification,
    encode_notification,
    find_common_prefix,
    get_process_id,
)


def test_a_notification_of_many_keys_has_their_prefix():
    assert decode_notification(encode_notification(["a\x00é", "b"])).keys == ["a\x00é", "b"]
    many = decode_notification(encode_notification([f"a/{n:0100}" for n in range(100)]))
    assert (many.keys, many.prefix) == (None, "a/" + "0" * 98)
    for keys in (["\x01" * 8192, "\x01" * 8192 + "a"], ["é" * 4000, "b" * 8000]):
        encoded = encode_notification(keys)
        assert len(encoded) < 8000
        assert all(key.startswith(decode_notification(encoded).prefix) for key in keys)
    for strange in (b"", b"{}", b"[1]", b"\xff", b'["a", 5]'):
        assert decode_notification(strange).keys is None


@pytest.mark.parametrize(
    ("keys", "prefix"),
    [(["a"], "a"), (["ab", "a"], "a"), (["b", "a"], ""), (["a/2", "a/1", "a/10"], "a/")],
)
def test_common_prefix(keys, prefix):
    assert find_common_prefix(keys) == prefix


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_another_process():
    ours = get_process_id()
    assert get_process_id() == ours
    child = os.fork()
    if not child:
        os._exit(get_process_id() == ours)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
