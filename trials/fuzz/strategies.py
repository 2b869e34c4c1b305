"""Hypothesis strategies: valid inputs with a few mutations, and values that look like tags."""

from __future__ import annotations

import json
import marshal
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

NUMBER = re.compile(rb"(?<=[\[:, ])-?\d+(?:\.\d+)?(?=[,\]} \n])")
NAME = re.compile(rb'"(?:[^"\\]|\\.){1,40}" ?:')
NUMBERS = (
    *(b"1e999", b"-1e999", b"1e-999", b"18446744073709551616", b"9223372036854775808", b"-0.0"),
    *(b"-0", b"00", b"0x10", b"NaN", b"9" * 5000, b"0." + b"1" * 3000),
)
TOKENS = (
    *(b"\x00", b"\\u0000", b"\\ud800", b"\xed\xa0\x80", b"\xff", b"\xef\xbb\xbf", b"\xd8\x01"),
    *(b"[" * 3000, b'{"a":' * 3000, b"\x91" * 3000, b"\xc7\xff\x14", b"\xdd\xff\xff\xff\xff"),
    *(b"]", b"}", b",", b'"', b"\\", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"../../etc/passwd"),
    *(b'{"$type": ["os.system", "id"]}', b'{"__class__": "os.system"}'),
)
TEXTS = (
    *("", "\x00", "a\x00b", "\u202e", "../../etc/passwd", "/etc/passwd", "%2e%2e%2fetc", "%00"),
    *("C:\\Windows", "CON", "nul.txt", "~root", "$(id)", "{{7*7}}", "${jndi:x}", "os.system"),
    *("'; DROP TABLE entries; --", "x" * 257, "antigravity", "turtledemo.clock", "sNaN"),
    *("2026-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "[Europe/Berlin]", "1e999999999"),
    *("sha256:" + "0" * 64, "9" * 5000, "0x" + "f" * 5000, "x" * 100_000),
)
SURROGATES = ("\ud800", "\udfff\ud800")
TAGS = (
    *("$int", "$decimal", "$uuid", "$datetime", "$date", "$time", "$timedelta", "$tuple", "$set"),
    *("$frozenset", "$map", "$type", "$bytes", "$float", "$unknown", "$", "$$tuple", "$ref"),
    *("__class__", "lc", "__bytes_encoded__", "py/object"),
)
WORDS = st.text(max_size=12) | st.sampled_from([text for text in TEXTS if len(text) < 300])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from((*TEXTS, *SURROGATES))
    | st.datetimes().map(lambda time: f"{time.isoformat()}Z")
)
COUNTS = st.integers(1, 3)
SIZES = st.sampled_from((0, 0, 1, 1, 1, 2, 8, 64, 1024, 1 << 30))
PIECES_OF_TEXT = st.sampled_from(
    (*"/:@?#&=%[]\\.,;+ \n\t\x7f\u00e9\u2028", *TEXTS, *SURROGATES, None)
)
"""What a part of a text is replaced by; None stands for the text itself."""
PIECES_OF_BYTES = (
    st.binary(min_size=1, max_size=1)
    | st.binary(max_size=8)
    | st.sampled_from((*TOKENS, *[2, 20] * 4, *[None] * 6))
)
"""What a part of some bytes is replaced by: also its repetition, or a part of other bytes."""


def dump_json(tree: Any) -> bytes:
    """Return a tree as JSON; one that is too deep as JSON that is too deep."""
    try:
        return json.dumps(tree).encode()
    except RecursionError:
        return b"[" * 2000 + b"]" * 2000


def copy_tree(tree: Any) -> Any:
    """Return a copy of a JSON tree of any depth."""
    return marshal.loads(marshal.dumps(tree))


def nest(tree: Any, tag: str | None, depth: int) -> Any:
    """Return a tree wrapped in lists, objects or tags."""
    for _ in range(depth):
        tree = [tree] if tag is None else {tag: [[1, tree]] if tag == "$map" else [tree]}
    return tree


def trees(*names: str) -> st.SearchStrategy[Any]:
    """Generate JSON with tags and the given names in it."""
    keys = st.sampled_from((*TAGS, *names)) | st.text(max_size=4)

    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        pairs = st.lists(st.lists(inner, min_size=1, max_size=3), max_size=3)
        tagged = st.dictionaries(st.sampled_from(TAGS), inner | pairs, min_size=1, max_size=1)
        return st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | tagged

    wrappers = st.sampled_from((None, "a", "$tuple", "$map", "$$tuple"))
    deep = st.builds(nest, SCALARS, wrappers, st.sampled_from((3, 100, 254, 256, 300)))
    return st.recursive(SCALARS, extend, max_leaves=12) | deep


TREES = trees()
ANY_TAG = st.sampled_from(TAGS)
EDITS = st.sampled_from(("delete", "copy", "tag", "rename", "repeat", "edit", "new"))


def msgpacks() -> st.SearchStrategy[bytes]:
    """Generate MessagePack with extension types, known and unknown ones."""
    payloads = WORDS.map(str.encode) | st.binary(max_size=200)

    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        packed = st.lists(inner, max_size=3).map(msgspec.msgpack.encode)
        extension = st.builds(msgspec.msgpack.Ext, st.integers(0, 21), packed | payloads)
        return st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3) | extension

    scalars = st.none() | st.integers(-(2**63), 2**64 - 1) | st.floats() | WORDS
    unknown = st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), payloads)
    leaves = scalars | st.binary(max_size=200) | unknown
    return st.recursive(leaves, extend, max_leaves=8).map(msgspec.msgpack.encode)


@st.composite
def mutated_texts(draw: st.DrawFn, texts: Sequence[str]) -> str:
    """Generate a text of which a part is replaced, removed or inserted."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(COUNTS)):
        start = draw(st.integers(0, len(text)))
        size = draw(SIZES)
        piece = draw(PIECES_OF_TEXT)
        text = text[:start] + (text if piece is None else piece) + text[start + size :]
    return text


@st.composite
def mutated_bytes(draw: st.DrawFn, samples: Sequence[bytes], splice: Sequence[bytes] = ()) -> bytes:
    """Generate bytes of which parts are replaced, removed, repeated, or taken from elsewhere."""
    data = draw(st.sampled_from(samples))
    for _ in range(draw(COUNTS)):
        start = draw(st.integers(0, len(data)))
        end = start + draw(SIZES)
        piece = draw(PIECES_OF_BYTES)
        if isinstance(piece, int):
            piece = data[start:end] * piece
        elif piece is None and splice:
            other = draw(st.sampled_from(splice))
            offset = draw(st.integers(0, len(other)))
            piece = other[offset : offset + 64]
        data = data[:start] + (piece or b"") + data[end:]
    return data


def list_places(tree: Any) -> list[tuple[Any, Any]]:
    """Return every item of a tree, as its container and its key or index there."""
    places: list[tuple[Any, Any]] = []
    left = [tree]
    while left:
        at = left.pop()
        if isinstance(at, dict | list):
            steps = list(at) if isinstance(at, dict) else range(len(at))
            places += ((at, step) for step in steps)
            left += (at[step] for step in steps)
    return places


@st.composite
def mutated_trees(draw: st.DrawFn, samples: Sequence[Any]) -> Any:
    """Generate a JSON tree with up to three items removed, moved, renamed, tagged or replaced."""
    tree = copy_tree(draw(st.sampled_from(samples)))
    for _ in range(draw(COUNTS)):
        places = list_places(tree)
        if not places:
            return draw(TREES)
        at, step = places[draw(st.integers(0, len(places) - 1))]
        item = at[step]
        match draw(EDITS):
            case "delete":
                del at[step]
            case "copy":
                other, there = places[draw(st.integers(0, len(places) - 1))]
                at[step] = copy_tree(other[there])
            case "tag":
                wrapped = draw(st.sampled_from((item, [item], [["a", item]])))
                at[step] = {draw(ANY_TAG): wrapped}
            case "rename" if isinstance(at, dict):
                at[draw(st.sampled_from((*TAGS, *TEXTS, "state", "status")))] = at.pop(step)
            case "repeat" if isinstance(at, list):
                at.insert(step, copy_tree(item))
            case "edit" if isinstance(item, str):
                at[step] = draw(mutated_texts([item]))
            case "edit" if isinstance(item, int | float):
                at[step] = draw(
                    st.sampled_from((-1, 0, item + 1, item - 1, 2**53, 2**64, 1.5, "1"))
                )
            case _:
                at[step] = draw(TREES)
    return tree


@st.composite
def mutated_json(draw: st.DrawFn, samples: Sequence[Any]) -> bytes:
    """Generate JSON of mutated trees, some with impossible numbers or a duplicate name."""
    text = dump_json(draw(mutated_trees(samples)))
    kind = draw(st.integers(0, 7))
    found = list({0: NUMBER, 1: NAME}[kind].finditer(text)) if kind < 2 else []
    if not found:
        return text
    at = draw(st.sampled_from(found))
    if kind == 0:
        return text[: at.start()] + draw(st.sampled_from(NUMBERS)) + text[at.end() :]
    value = draw(st.sampled_from((b"null", b"1", b'"x"', b"[]", b"{}")))
    return text[: at.start()] + at[0] + value + b"," + text[at.start() :]
