"""The bodies of objects: entries and tombstones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.stores.objectstore.bodies import (
    MAX_HEADER_SIZE,
    TOMBSTONE_SIZE,
    entry_body,
    new_token,
    parse_header,
    tombstone_body,
)


@given(st.text(max_size=300), st.binary(max_size=300))
def test_the_header_of_an_entry_has_its_token_key_and_size(key, value):
    token = new_token()
    body = entry_body(value, token, key)
    header = parse_header(body)
    assert header == parse_header(body[:MAX_HEADER_SIZE])
    assert (header.token, header.key, header.deleted) == (token, key, "")
    assert body[header.size :] == value


def test_a_tombstone_names_the_deleted_entry_and_is_smaller_than_any_entry():
    token = new_token()
    for expiring in (False, True):
        body = tombstone_body(token, new_token(), expiring=expiring)
        header = parse_header(body)
        assert (header.deleted, header.expiring) == (token, expiring)
        assert len(body) == TOMBSTONE_SIZE < len(entry_body(b"", token))


def test_a_body_of_another_program_has_no_header():
    token = new_token()
    for body in (b"", b"text", tombstone_body(token, token)[:-1], entry_body(b"", token)[:-1]):
        assert parse_header(body) is None
