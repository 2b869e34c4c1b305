"""Inputs of about the right shape, made up by Hypothesis, which also makes a finding small."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from hypothesis import strategies as st

from trials.fuzz.mutation import TAGS, TEXTS

Tree: TypeAlias = st.SearchStrategy[Any]

SHORT = tuple(text for text in TEXTS if len(text) < 300)
BYTES = st.binary(max_size=200)
WORDS = st.text(max_size=12) | st.sampled_from(SHORT)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | WORDS
    | st.dates().map(str)
    | st.datetimes().map(lambda moment: f"{moment.isoformat()}Z")
)


def trees(names: tuple[str, ...] = ()) -> Tree:
    """JSON with tags in it, and with some names."""
    keys = st.sampled_from((*TAGS, *names)) | st.text(max_size=4)

    def around(inner: Tree) -> Tree:
        pairs = st.lists(st.lists(inner, min_size=1, max_size=3), max_size=3)
        return (
            st.lists(inner, max_size=4)
            | st.dictionaries(keys, inner, max_size=4)
            | st.builds(lambda tag, item: {tag: item}, st.sampled_from(TAGS), inner | pairs)
        )

    return st.recursive(SCALARS, around, max_leaves=12)


@st.composite
def packed(draw: st.DrawFn) -> bytes:
    """Msgpack with extension types, known ones and others, whose payloads are of any kind."""
    payloads = WORDS.map(lambda text: text.encode(errors="replace")) | BYTES

    def around(inner: Tree) -> Tree:
        contained = st.lists(inner, max_size=3).map(safely_packed)
        extension = st.builds(msgspec.msgpack.Ext, st.integers(0, 21), contained | payloads)
        return st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3) | extension

    leaves = (
        st.none()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats()
        | st.text(max_size=6)
        | BYTES
        | st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), payloads)
    )
    return safely_packed(draw(st.recursive(leaves, around, max_leaves=8)))


def safely_packed(tree: object) -> bytes:
    """A tree in msgpack; for one that it cannot write, half of a surrogate pair."""
    try:
        return msgspec.msgpack.encode(tree)
    except UnicodeEncodeError:
        return b"\xa3\xed\xa0\x80"
