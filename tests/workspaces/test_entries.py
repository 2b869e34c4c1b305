"""Entries of files in the state of a session."""

from __future__ import annotations

import pytest

from holdfast import IntegrityError, Store
from holdfast.workspaces.entries import FileEntry, decode_entry, read_entries

DIGEST = "0" * 64


@pytest.mark.parametrize("entry", [FileEntry(DIGEST, 3, 0o755), FileEntry(link="../x")])
def test_an_entry_round_trips(entry):
    assert decode_entry("a", entry.to_value()) == entry


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"digest": "x", "size": 1, "mode": 0},
        {"digest": DIGEST.upper().replace("0", "A"), "size": 1, "mode": 0},
        {"digest": DIGEST, "size": -1, "mode": 0},
        {"digest": DIGEST, "size": 1, "mode": 0o4755},
        {"digest": DIGEST, "size": 1, "mode": 0, "more": 1},
        {"link": "", "mode": 0},
        {"link": "a\0b", "mode": 0},
        {"link": "a", "mode": -1},
    ],
)
def test_an_invalid_entry_is_named(value):
    with pytest.raises(IntegrityError, match="entry of file 'a/b' is invalid"):
        decode_entry("a/b", value)


def test_the_files_of_a_state_are_checked():
    store = Store()
    store.set("files", "a/b", FileEntry(DIGEST).to_value())
    assert read_entries(store.snapshot()) == {"a/b": FileEntry(DIGEST)}
    store.set("files", "../x", FileEntry(DIGEST).to_value())
    with pytest.raises(IntegrityError, match="unsafe path"):
        read_entries(store.snapshot())
    store.delete("files", "../x")
    store.set("files", "a", FileEntry(DIGEST).to_value())
    with pytest.raises(IntegrityError, match="below it"):
        read_entries(store.snapshot())
