"""Damage to real inputs: to their bytes, to their JSON, and to single texts.

All of it is drawn from one random generator, so that a seed gives the same inputs again.
"""

from __future__ import annotations

import json
import marshal
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

NUMBER = re.compile(rb"(?<=[\[:, ])-?\d+(?:\.\d+)?(?=[,\]} \n])")
NAME = re.compile(rb'"(?:[^"\\]|\\.){1,40}" ?:')
NUMBERS = (
    b"1e999",
    b"-1e999",
    b"1e-999",
    b"9" * 5000,
    b"-" + b"9" * 5000,
    b"18446744073709551616",
    b"9223372036854775808",
    b"1E400",
    b"-0",
    b"-0.0",
    b"00",
    b"0x10",
    b"NaN",
    b"Infinity",
    b"0." + b"1" * 3000,
)
TOKENS = (
    b"\x00",
    b"\\u0000",
    b"\\ud800",
    b"\xed\xa0\x80",
    b"\xff",
    b"\xef\xbb\xbf",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"\x91" * 3000,
    b"]",
    b"}",
    b",",
    b'"',
    b"\\",
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"../../etc/passwd",
    b"%2e%2e%2f",
    b"//",
    b"?",
    b"#",
    b"@",
    b":",
    b"%00",
    b'{"$type": ["os.system", "id"]}',
    b'{"__class__": "os.system"}',
    b"\xd8\x01",
    b"\xc7\xff\x14",
    b"\xdd\xff\xff\xff\xff",
)
TEXTS = (
    "",
    "\x00",
    "a\x00b",
    "\ud800",
    "\udfff\ud800",
    "\u202e",
    "../../etc/passwd",
    "/etc/passwd",
    "%2e%2e%2fetc",
    "C:\\Windows",
    "CON",
    "nul.txt",
    "~root",
    "$(id)",
    "{{7*7}}",
    "${jndi:x}",
    "'; DROP TABLE entries; --",
    "x" * 257,
    "x" * 100_000,
    "os.system",
    "antigravity",
    "turtledemo.clock",
    "2026-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "[Europe/Berlin]",
    "sha256:" + "0" * 64,
    "9" * 5000,
    "0x" + "f" * 5000,
    "1e999999999",
    "sNaN",
)
TAGS = (
    *("$int", "$decimal", "$uuid", "$datetime", "$date", "$time", "$timedelta", "$tuple"),
    *("$set", "$frozenset", "$map", "$type", "$bytes", "$float", "$unknown", "$", "$$tuple"),
    *("__class__", "lc", "__bytes_encoded__", "py/object", "$ref"),
)


def scalar(rng: Random) -> Any:
    """A single value that seldom belongs where it is put."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice(TEXTS)
    if kind == 1:
        return rng.choice(
            (0, 1, -1, 2**31, 2**53, 2**63, 2**64, 10**30, -(2**63) - 1, rng.random())
        )
    return rng.choice((None, True, False, [], {}, 1.5, float("nan"), float("inf"), -0.0, 1e308))


def junk(rng: Random) -> Any:
    """A small tree of JSON, often one that poses as a tag."""
    kind = rng.randrange(8)
    if kind == 0:
        return {rng.choice(TAGS): scalar(rng)}
    if kind == 1:
        return {rng.choice(TAGS): [scalar(rng) for _ in range(rng.randrange(4))]}
    if kind == 2:
        return {rng.choice(TAGS): [[scalar(rng), junk(rng)] for _ in range(rng.randrange(3))]}
    if kind == 3:
        return nested(rng, rng.choice((3, 100, 254, 256, 300)))
    if kind == 4:
        return {str(scalar(rng)): junk(rng), str(scalar(rng)): scalar(rng)}
    return scalar(rng)


def nested(rng: Random, depth: int) -> Any:
    """Lists, objects or tags in each other."""
    tree: Any = scalar(rng)
    tag = rng.choice((None, "a", "$tuple", "$map", "$$tuple"))
    for _ in range(depth):
        if tag is None:
            tree = [tree]
        else:
            tree = {tag: [[1, tree]] if tag == "$map" else [tree]}
    return tree


# ---------------------------------------------------------------------------------------- trees


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every item of a tree, as what holds it and where in that."""
    found: list[tuple[Any, Any]] = []
    left = [tree]
    while left:
        at = left.pop()
        for step, item in steps(at):
            found.append((at, step))
            left.append(item)
    return found


def steps(at: Any) -> Iterator[tuple[Any, Any]]:
    """The items of an object or a list."""
    if isinstance(at, dict):
        yield from at.items()
    elif isinstance(at, list):
        yield from enumerate(at)


def copied(tree: Any) -> Any:
    """A copy of a tree, however deep: ``copy.deepcopy`` ends at half the depth that JSON has."""
    return marshal.loads(marshal.dumps(tree))


def changed_tree(rng: Random, tree: Any, most: int = 3) -> Any:
    """A tree of JSON with a few changes."""
    tree = copied(tree)
    for _ in range(rng.randint(1, most)):
        found = places(tree)
        if not found:
            return junk(rng)
        at, step = rng.choice(found)
        change_at(rng, at, step, found)
    return tree


def change_at(rng: Random, at: Any, step: Any, found: Sequence[tuple[Any, Any]]) -> None:
    """One change at a place of a tree."""
    kind = rng.randrange(8)
    if kind == 0:
        del at[step]
    elif kind == 1:
        other, there = rng.choice(found)
        # A copy, so that no tree holds itself.
        at[step] = copied(other[there])
    elif kind == 2:
        at[step] = {rng.choice(TAGS): rng.choice((at[step], [at[step]], [["a", at[step]]]))}
    elif kind == 3 and isinstance(at, dict):
        at[rng.choice((*TAGS, *TEXTS, "state", "status"))] = at.pop(step)
    elif kind == 4 and isinstance(at, list):
        at.insert(rng.randrange(len(at) + 1), copied(at[step]))
    elif kind == 5 and isinstance(at[step], str):
        at[step] = changed_text(rng, at[step])
    elif kind == 6 and isinstance(at[step], int | float):
        at[step] = rng.choice((-1, 0, at[step] + 1, at[step] - 1, 2**53, 2**64, 1.5, True, "1"))
    else:
        at[step] = junk(rng)


def changed_json(rng: Random, data: bytes) -> bytes:
    """A text of JSON with changes to what it says, and sometimes to how it says it."""
    text = written(changed_tree(rng, json.loads(data)))
    if rng.randrange(4) == 0:
        text = changed_number(rng, text)
    if rng.randrange(6) == 0:
        text = doubled_name(rng, text)
    return text


def written(tree: Any) -> bytes:
    """A tree as a text of JSON; half of a surrogate pair is written as it is."""
    try:
        return json.dumps(tree).encode()
    except RecursionError:
        return b"[" * 2000 + b"]" * 2000


def changed_number(rng: Random, text: bytes) -> bytes:
    """One number of a text of JSON is another."""
    found = list(NUMBER.finditer(text))
    if not found:
        return text
    at = rng.choice(found)
    return text[: at.start()] + rng.choice(NUMBERS) + text[at.end() :]


def doubled_name(rng: Random, text: bytes) -> bytes:
    """One name of an object stands there twice."""
    found = list(NAME.finditer(text))
    if not found:
        return text
    at = rng.choice(found)
    other = rng.choice((b"null", b"1", b'"x"', b"[]", b"{}"))
    return text[: at.start()] + at[0] + other + b"," + text[at.start() :]


# ---------------------------------------------------------------------------------------- bytes


def changed_bytes(rng: Random, data: bytes, others: Sequence[bytes] = (), most: int = 4) -> bytes:
    """Bytes with a few changes."""
    work = bytearray(data)
    for _ in range(rng.randint(1, most)):
        change_bytes(rng, work, others)
    return bytes(work)


def change_bytes(rng: Random, work: bytearray, others: Sequence[bytes]) -> None:
    """One change."""
    at = rng.randrange(len(work) + 1)
    end = min(len(work), at + rng.choice((1, 2, 8, 64, 1024)))
    kind = rng.randrange(10)
    if kind < 3 and at < len(work):
        work[at] ^= 1 << rng.randrange(8)
    elif kind == 3 and at < len(work):
        work[at] = rng.randrange(256)
    elif kind == 4:
        del work[at:]
    elif kind == 5:
        del work[at:end]
    elif kind == 6:
        work[at:at] = work[at:end] * rng.choice((1, 1, 20))
    elif kind == 7 and others:
        other = rng.choice(others)
        start = rng.randrange(len(other) + 1)
        work[at:end] = other[start : start + rng.choice((4, 64, 1024))]
    elif kind == 8:
        work[at:end] = bytes(rng.randrange(256) for _ in range(rng.randrange(9)))
    else:
        work[at:at] = rng.choice(TOKENS)


# ----------------------------------------------------------------------------------------- text


def changed_text(rng: Random, text: str) -> str:
    """A text with one change."""
    at = rng.randrange(len(text) + 1)
    end = min(len(text), at + rng.choice((1, 2, 8)))
    more = rng.choice((*TEXTS, *"/:@?#&=%[]\\.,;+ \n\t\x7f\u00e9\u2028", text))
    return rng.choice((text[:at] + more + text[at:], text[:at] + text[end:], text[:at] + more))
