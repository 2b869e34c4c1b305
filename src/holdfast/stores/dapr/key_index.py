"""An index of keys in pages, for homes that keep records by name and cannot list them.

    the root    where each leaf begins, and its page
    a leaf      sorted keys: all there are from ``low`` up to, and without, ``high``

Here is what the pages say and how they change; who reads and writes them is told by ``Pages``. Two
rules make it safe for many writers that each write a leaf only where nobody else has meanwhile:

- A leaf is written together with whatever made it change, and a split or an end of a leaf together
  with the root. So a leaf never lies about its own range, nor the root about its leaves.
- A root that was read before may be old, and only costs a second look: a leaf that it points to
  says itself what it covers. A key that nobody covers, as an empty leaf was taken away, is given to
  the leaf before it, which is safe where the root was read after that leaf.

Keys that arrive in order fill their leaves: the last leaf is not halved but followed by another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from holdfast.errors import IntegrityError

FIRST = "first"
"""The page of the leaf that begins before all keys. It is never taken away."""

AHEAD = 8
"""How many leaves a listing reads at once, when it has read some."""

LOOKS = 50
"""How often to look again before the index is called damaged: others may change it all the time."""

LEAF = 65_536
LEAST = LEAF // 128
"""A leaf has room for so many bytes of keys. A short key takes the least: 128 of them fill it."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The keys of a range: from ``low``, and before ``high`` (None: without an end)."""

    low: str = ""
    high: str | None = None
    keys: tuple[str, ...] = ()

    def covers(self, key: str) -> bool:
        """Whether it would have the key if there was one."""
        return self.low <= key and (self.high is None or key < self.high)

    def holds(self, key: str) -> bool:
        """Whether there is such a key."""
        at = bisect_left(self.keys, key)
        return at < len(self.keys) and self.keys[at] == key

    def without(self, keys: Collection[str]) -> Leaf:
        """Itself, less some keys."""
        return replace(self, keys=tuple(key for key in self.keys if key not in keys))

    def grown(self, keys: Iterable[str]) -> list[Leaf]:
        """Itself with more keys, as one leaf or as many as it takes."""
        added = set(keys).difference(self.keys)
        merged = sorted(added.union(self.keys))
        total = sum(map(_weight, merged))
        if total <= LEAF or not added:
            return [replace(self, keys=tuple(merged))]
        if self.keys and min(added) > self.keys[-1]:
            room = LEAF
        else:
            count = -(-total // LEAF)
            room = total // count + max(map(_weight, merged))
        return self._parted(_chunks(merged, room))

    def _parted(self, chunks: Sequence[Sequence[str]]) -> list[Leaf]:
        lows = [self.low, *(chunk[0] for chunk in chunks[1:])]
        highs = [*lows[1:], self.high]
        return [
            Leaf(low, high, tuple(chunk))
            for low, high, chunk in zip(lows, highs, chunks, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Root:
    """Where each leaf begins, in order, and the page that it is on."""

    lows: tuple[str, ...] = ("",)
    pages: tuple[str, ...] = (FIRST,)

    def page(self, key: str) -> str:
        """The page of the leaf that covers the key, as far as this root knows."""
        return self.pages[bisect_right(self.lows, key) - 1]

    def pages_from(self, key: str, count: int) -> tuple[str, ...]:
        """That page, and those that follow it."""
        at = bisect_right(self.lows, key) - 1
        return self.pages[at : at + count]

    def next_low(self, key: str) -> str | None:
        """Where the first leaf begins that is all after the key."""
        at = bisect_right(self.lows, key)
        return self.lows[at] if at < len(self.lows) else None

    def split(self, page: str, more: Sequence[tuple[str, str]]) -> Root:
        """With new leaves (where each begins, its page) after one."""
        at = self.pages.index(page) + 1
        lows = tuple(low for low, _ in more)
        pages = tuple(new for _, new in more)
        return Root(
            self.lows[:at] + lows + self.lows[at:], self.pages[:at] + pages + self.pages[at:]
        )

    def without(self, page: str) -> Root:
        """Less one leaf, whose range is then covered by nobody."""
        at = self.pages.index(page)
        return Root(self.lows[:at] + self.lows[at + 1 :], self.pages[:at] + self.pages[at + 1 :])


@dataclass(frozen=True, slots=True)
class Edit:
    """Pages to write together: leaves by page (None: take it away), and the root if it changes."""

    leaves: dict[str, Leaf | None] = field(default_factory=dict)
    root: Root | None = None


class Pages(Protocol):
    """Who reads the pages. What it reads is what it later writes over, if nobody else did."""

    async def root(self, *, again: bool = False) -> Root:
        """The root, or one that was read before unless it is to be read again."""

    async def leaves(self, pages: Sequence[str]) -> Mapping[str, Leaf | None]:
        """Leaves, as they are now. None: there is no such page, or no more."""


async def find_leaves(pages: Pages, keys: Sequence[str]) -> dict[str, Leaf]:
    """The leaves, by their pages, that cover the keys."""
    root = await pages.root()
    for _ in range(LOOKS):
        wanted = {key: root.page(key) for key in keys}
        found = await pages.leaves(sorted(set(wanted.values())))
        leaves = {page: leaf for page, leaf in found.items() if leaf is not None}
        missed = [key for key, page in wanted.items() if not _covered(leaves.get(page), key)]
        if not missed:
            return leaves
        root = await pages.root(again=True)
        for key in missed:
            stretched = _stretched(leaves.get(wanted[key]), root, wanted[key], key)
            if stretched is not None:
                leaves[wanted[key]] = stretched
        if all(_covered(leaves.get(page), key) for key, page in wanted.items()):
            return leaves
    raise _damaged()


async def iterate_leaves(pages: Pages, start: str) -> AsyncGenerator[Leaf, None]:
    """The leaves from a key on, in order, the first without what comes before that key.

    They are read at different times, and may have grown over each other meanwhile: each is given
    without the part that was given already.
    """
    root = await pages.root()
    at = start
    looks = 0
    ahead = 1
    while looks < LOOKS:
        wanted = root.pages_from(at, ahead)
        ahead = min(ahead * 2, AHEAD)
        found = await pages.leaves(wanted)
        for page in wanted:
            leaf = found[page]
            if leaf is None or not leaf.covers(at):
                break
            yield replace(leaf, low=at, keys=leaf.keys[bisect_left(leaf.keys, at) :])
            looks = 0
            if leaf.high is None:
                return
            at = leaf.high
        else:
            continue
        looks += 1
        root = await pages.root(again=True)
        page = root.page(at)
        # Read before the root, so that a gap after it is one.
        if _stretched(found.get(page), root, page, at) is not None:
            low = root.next_low(at)
            if low is None:
                return
            at = low
    raise _damaged()


def plan_insert(
    leaves: Mapping[str, Leaf], keys: Sequence[str], new_page: Callable[[], str], root: Root
) -> Edit:
    """What to write for new keys, each covered by one of the leaves."""
    edited: dict[str, Leaf | None] = {}
    grown_root = root
    for page, leaf in leaves.items():
        first, *others = leaf.grown(key for key in keys if leaf.covers(key))
        edited[page] = first
        more = [(other.low, new_page()) for other in others]
        edited.update({name: other for (_, name), other in zip(more, others, strict=True)})
        if more:
            grown_root = grown_root.split(page, more)
    return Edit(edited, grown_root if grown_root is not root else None)


def plan_removal(page: str, leaf: Leaf, key: str, root: Root) -> Edit:
    """What to write when a key is gone. A leaf that has become empty goes too, but the first."""
    rest = leaf.without([key])
    if rest.keys or page == FIRST:
        return Edit({page: rest})
    return Edit({page: None}, root.without(page))


def encode_page(page: Leaf | Root) -> bytes:
    """A page as bytes."""
    return msgspec.msgpack.encode(page)


def decode_leaf(data: bytes) -> Leaf:
    """A leaf from its bytes."""
    try:
        return msgspec.msgpack.decode(data, type=Leaf)
    except msgspec.DecodeError as error:
        raise _damaged() from error


def decode_root(data: bytes) -> Root:
    """A root from its bytes."""
    try:
        return msgspec.msgpack.decode(data, type=Root)
    except msgspec.DecodeError as error:
        raise _damaged() from error


def _covered(leaf: Leaf | None, key: str) -> bool:
    return leaf is not None and leaf.covers(key)


def _stretched(leaf: Leaf | None, root: Root, page: str, key: str) -> Leaf | None:
    """A leaf that ends before the key, made to reach over the gap that the key is in.

    None where it is no gap: the root, read after the leaf, knows another page for the key.
    """
    if leaf is None or leaf.high is None or leaf.high > key or root.page(key) != page:
        return None
    return replace(leaf, high=root.next_low(key))


def _weight(key: str) -> int:
    return max(LEAST, len(key.encode()))


def _chunks(keys: Sequence[str], room: int) -> list[list[str]]:
    chunks: list[list[str]] = [[]]
    used = 0
    for key in keys:
        weight = _weight(key)
        if chunks[-1] and used + weight > room:
            chunks.append([])
            used = 0
        chunks[-1].append(key)
        used += weight
    return chunks


def _damaged() -> IntegrityError:
    return IntegrityError(
        "the index of keys is damaged: its pages do not fit together. Was a record of it changed "
        "or removed by something else? Restore the component's data from a backup"
    )
