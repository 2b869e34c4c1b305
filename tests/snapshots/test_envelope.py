"""The checksummed envelope of stored objects."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import IntegrityError, InvalidDocumentError
from holdfast.snapshots.envelope import decode_envelope, encode_envelope
from support.observed_store import flip_bit, try_call
from support.sample_values import text

CONTENT = {"name": "Grüße", "count": 3, "none": None, "list": [1, {"a": True}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
)


def read(data):
    return decode_envelope("some/key.json", data, "record")


@given(st.dictionaries(text, JSON, max_size=5))
def test_decode_returns_the_encoded_object(content):
    assert read(encode_envelope(content)) == content


def test_the_digest_is_the_sha256_of_the_content():
    data = encode_envelope(CONTENT)
    tree = json.loads(data)
    assert tree["format"] == 1
    assert tree["content"] == CONTENT
    text = data[data.index(b'"content":') + len(b'"content":') : -1]
    assert hashlib.sha256(text).hexdigest() == tree["digest"]


def test_any_flipped_bit_is_detected_or_changes_nothing():
    data = encode_envelope(CONTENT)
    for bit in range(len(data) * 8):
        found, refusal = try_call(read, flip_bit(data, bit))
        assert found == CONTENT or "some/key.json" in refusal


def test_truncation_is_detected():
    data = encode_envelope(CONTENT)
    for length in range(len(data)):
        with pytest.raises(IntegrityError, match=r"record some/key\.json is damaged.*backup"):
            read(data[:length])


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_damage(data):
    with pytest.raises(IntegrityError, match=r"some/key\.json"):
        read(data)


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"null",
        b"{}",
        b'{"format":1,"digest":"","content":{}}',
        b'{"format":1,"digest":7,"content":{}}',
        b'{"format":"1","digest":"","content":{}}',
    ],
)
def test_json_of_another_shape_is_damage(data):
    with pytest.raises(IntegrityError, match=r"some/key\.json is damaged"):
        read(data)


def test_content_other_than_an_object_is_damage():
    digest = hashlib.sha256(b"[1]").hexdigest()
    with pytest.raises(IntegrityError, match=r"some/key\.json is damaged"):
        read(b'{"format":1,"digest":"%s","content":[1]}' % digest.encode())


def test_a_newer_format_is_rejected():
    data = encode_envelope(CONTENT).replace(b'"format":1', b'"format":2', 1)
    with pytest.raises(InvalidDocumentError, match="newer Holdfast.*format 2, this one reads 1"):
        read(data)


def test_unknown_fields_beside_the_content_are_ignored():
    data = encode_envelope(CONTENT)
    assert read(b'{"more":[1],' + data[1:]) == CONTENT
