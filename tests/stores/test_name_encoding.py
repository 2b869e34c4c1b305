"""Keys as names of files and objects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.stores.name_encoding import decode_key_name, encode_key_name
from holdfast.testing.state_store_suite import STRANGE_KEYS

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.text(
    "a./-!~[]\\}@AZ\x00é0 ", min_size=1, max_size=8
)
CASES = pytest.mark.parametrize("fold_case", [False, True], ids=["as it is", "cases folded"])


def by_folders(name: str) -> list[str]:
    """Return the sort key of servers that list part by part."""
    return name.split("/")


@CASES
@given(first=KEYS, second=KEYS)
def test_names_sort_like_keys_by_bytes_and_by_folders(first, second, fold_case):
    names = (
        encode_key_name(first, fold_case=fold_case),
        encode_key_name(second, fold_case=fold_case),
    )
    assert (first < second) == (names[0] < names[1])
    assert (first < second) == (by_folders(names[0]) < by_folders(names[1]))


@CASES
@given(key=KEYS | st.sampled_from(STRANGE_KEYS))
def test_names_are_safe_and_round_trip(key, fold_case):
    name = encode_key_name(key, fold_case=fold_case)
    assert decode_key_name(name, fold_case=fold_case) == key
    assert name.isascii()
    assert name.isprintable()
    assert "\\" not in name
    assert not {"", ".", ".."} & set(name.split("/"))
    assert not name.endswith(".")
    if fold_case:
        assert name == name.lower()


@CASES
def test_an_invalid_name_has_no_key(fold_case):
    for name in ("", "a b", "a!zz", "a~", "a/b", "a}ff", "a}7", "a.", ".", "!-", "é", "[5d"):
        assert decode_key_name(name, fold_case=fold_case) is None, name


def test_common_keys_stay_readable():
    key = "sessions/ses_1/scopes/agent/research-bot/log/000000000001.json"
    assert encode_key_name(key) == (
        "sessions.~/ses_1.~/scopes.~/agent.~/research-bot.~/log.~/000000000001.json"
    )
