"""An index of keys in pages, for backends that store records by name but cannot list them.

    the root    where each leaf begins, and its page
    a leaf      sorted keys: all that exist from ``low`` (included) to ``high`` (excluded)

This module defines the pages and how they change; ``Pages`` reads and writes them. Two rules make
this safe for many writers, each of which replaces a leaf only if no other writer changed it since:

- A leaf is written together with the change that it reflects, and a split or removal of a leaf
  together with the root. So a leaf is always right about its range, and the root about its leaves.
- An outdated root only costs another read, because each leaf states its range. A key that no leaf
  covers, because an empty leaf was removed, is added to the leaf before it. That is safe if the
  root was read after that leaf.

Keys that arrive in order fill their leaves: the last leaf is not halved, but followed by another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import msgspec

from holdfast.errors import IntegrityError

FIRST = "first"
"""The page of the first leaf, which is never removed."""

READ_AHEAD = 8
"""The maximum number of leaves that a listing reads at once."""

MAX_READS = 50
"""How often to read again, because of other writers, before the index counts as damaged."""

LEAF_BYTES = 65_536
MIN_KEY_BYTES = LEAF_BYTES // 128
"""What a short key counts for, so that 128 of them fill a leaf."""


Page = TypeVar("Page", "Leaf", "Root")


@dataclass(frozen=True, slots=True)
class Leaf:
    """The keys of a range: from ``low``, and before ``high``, which is None for the last leaf."""

    low: str = ""
    high: str | None = None
    keys: tuple[str, ...] = ()

    def covers(self, key: str) -> bool:
        """Return whether the key is in its range."""
        return self.low <= key and (self.high is None or key < self.high)

    def contains(self, key: str) -> bool:
        """Return whether the key is in the leaf."""
        at = bisect_left(self.keys, key)
        return at < len(self.keys) and self.keys[at] == key

    def remove(self, keys: Collection[str]) -> Leaf:
        """Return the leaf without some keys."""
        return replace(self, keys=tuple(key for key in self.keys if key not in keys))

    def insert(self, keys: Iterable[str]) -> list[Leaf]:
        """Return the leaf with more keys, as one or several leaves."""
        added = set(keys).difference(self.keys)
        merged = sorted(added.union(self.keys))
        total = sum(map(_weight, merged))
        if total <= LEAF_BYTES or not added:
            return [replace(self, keys=tuple(merged))]
        if self.keys and min(added) > self.keys[-1]:
            size = LEAF_BYTES
        else:
            count = -(-total // LEAF_BYTES)
            size = total // count + max(map(_weight, merged))
        return self._split(_split_keys(merged, size))

    def _split(self, chunks: Sequence[Sequence[str]]) -> list[Leaf]:
        lows = [self.low, *(chunk[0] for chunk in chunks[1:])]
        highs = [*lows[1:], self.high]
        return [
            Leaf(low, high, tuple(chunk))
            for low, high, chunk in zip(lows, highs, chunks, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Root:
    """Where each leaf begins, in order, and its page."""

    lows: tuple[str, ...] = ("",)
    pages: tuple[str, ...] = (FIRST,)

    def page(self, key: str) -> str:
        """Return the page of the leaf that covers the key, as far as this root knows."""
        return self.pages[bisect_right(self.lows, key) - 1]

    def pages_from(self, key: str, count: int) -> tuple[str, ...]:
        """Return that page and the following ones."""
        at = bisect_right(self.lows, key) - 1
        return self.pages[at : at + count]

    def next_low(self, key: str) -> str | None:
        """Return where the next leaf after the key begins, or None."""
        at = bisect_right(self.lows, key)
        return self.lows[at] if at < len(self.lows) else None

    def insert_after(self, page: str, leaves: Sequence[tuple[str, str]]) -> Root:
        """Return the root with new leaves, as pairs of low and page, after a page."""
        at = self.pages.index(page) + 1
        lows = tuple(low for low, _ in leaves)
        pages = tuple(new for _, new in leaves)
        return Root(
            self.lows[:at] + lows + self.lows[at:], self.pages[:at] + pages + self.pages[at:]
        )

    def remove(self, page: str) -> Root:
        """Return the root without a page, whose range is not covered then."""
        at = self.pages.index(page)
        return Root(self.lows[:at] + self.lows[at + 1 :], self.pages[:at] + self.pages[at + 1 :])


@dataclass(frozen=True, slots=True)
class Edit:
    """Pages to write together: leaves by page (None to remove), and the root if it changes."""

    leaves: dict[str, Leaf | None] = field(default_factory=dict)
    root: Root | None = None


class Pages(Protocol):
    """Reads pages. Only what it read may be replaced, if no other writer changed it since."""

    async def root(self, *, again: bool = False) -> Root:
        """Return the root, which may be an older one unless it is read again."""

    async def leaves(self, pages: Sequence[str]) -> Mapping[str, Leaf | None]:
        """Return leaves as they are now, None for pages that do not exist."""


async def find_leaves(pages: Pages, keys: Sequence[str]) -> dict[str, Leaf]:
    """Return the leaves that cover the keys, by page.

    Raises:
        IntegrityError: The index is damaged.

    """
    root = await pages.root()
    for _ in range(MAX_READS):
        wanted = {key: root.page(key) for key in keys}
        found = await pages.leaves(sorted(set(wanted.values())))
        leaves = {page: leaf for page, leaf in found.items() if leaf is not None}
        missed = [key for key, page in wanted.items() if not _is_covered(leaves.get(page), key)]
        if not missed:
            return leaves
        root = await pages.root(again=True)
        for key in missed:
            extended = _extend_over_gap(leaves.get(wanted[key]), root, wanted[key], key)
            if extended is not None:
                leaves[wanted[key]] = extended
        if all(_is_covered(leaves.get(page), key) for key, page in wanted.items()):
            return leaves
    raise _damaged_index_error()


async def iterate_leaves(pages: Pages, start: str) -> AsyncGenerator[Leaf, None]:
    """Yield the leaves from a key on, in order, the first without what precedes the key.

    Leaves are read at different times and may overlap if they changed in between: each is yielded
    without the part that was yielded before.

    Raises:
        IntegrityError: The index is damaged.

    """
    root = await pages.root()
    at = start
    reads = 0
    ahead = 1
    while reads < MAX_READS:
        wanted = root.pages_from(at, ahead)
        ahead = min(ahead * 2, READ_AHEAD)
        found = await pages.leaves(wanted)
        for page in wanted:
            leaf = found[page]
            if leaf is None or not leaf.covers(at):
                break
            yield replace(leaf, low=at, keys=leaf.keys[bisect_left(leaf.keys, at) :])
            reads = 0
            if leaf.high is None:
                return
            at = leaf.high
        else:
            continue
        reads += 1
        root = await pages.root(again=True)
        page = root.page(at)
        # The leaf was read before the root, so a gap after it is a real one.
        if _extend_over_gap(found.get(page), root, page, at) is not None:
            low = root.next_low(at)
            if low is None:
                return
            at = low
    raise _damaged_index_error()


def plan_insert(
    leaves: Mapping[str, Leaf], keys: Sequence[str], new_page: Callable[[], str], root: Root
) -> Edit:
    """Return the edit that adds keys, each covered by one of the leaves."""
    edited: dict[str, Leaf | None] = {}
    new_root = root
    for page, leaf in leaves.items():
        first, *others = leaf.insert(key for key in keys if leaf.covers(key))
        edited[page] = first
        added = [(other.low, new_page()) for other in others]
        edited.update({name: other for (_, name), other in zip(added, others, strict=True)})
        if added:
            new_root = new_root.insert_after(page, added)
    return Edit(edited, new_root if new_root is not root else None)


def plan_removal(page: str, leaf: Leaf, key: str, root: Root) -> Edit:
    """Return the edit that deletes a key. An empty leaf is removed, except the first."""
    rest = leaf.remove([key])
    if rest.keys or page == FIRST:
        return Edit({page: rest})
    return Edit({page: None}, root.remove(page))


def encode_page(page: Leaf | Root) -> bytes:
    """Return a page as bytes."""
    return msgspec.msgpack.encode(page)


def decode_page(data: bytes, kind: type[Page]) -> Page:
    """Return a page from its bytes.

    Raises:
        IntegrityError: It is damaged.

    """
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise _damaged_index_error() from error


def _is_covered(leaf: Leaf | None, key: str) -> bool:
    return leaf is not None and leaf.covers(key)


def _extend_over_gap(leaf: Leaf | None, root: Root, page: str, key: str) -> Leaf | None:
    """Return a leaf that ends before the key, extended over the gap that the key is in.

    Returns None without a gap: the root, read after the leaf, has another page for the key.
    """
    if leaf is None or leaf.high is None or leaf.high > key or root.page(key) != page:
        return None
    return replace(leaf, high=root.next_low(key))


def _weight(key: str) -> int:
    return max(MIN_KEY_BYTES, len(key.encode()))


def _split_keys(keys: Sequence[str], size: int) -> list[list[str]]:
    chunks: list[list[str]] = [[]]
    used = 0
    for key in keys:
        weight = _weight(key)
        if chunks[-1] and used + weight > size:
            chunks.append([])
            used = 0
        chunks[-1].append(key)
        used += weight
    return chunks


def _damaged_index_error() -> IntegrityError:
    return IntegrityError(
        "the index of keys is damaged: its pages are inconsistent, perhaps because another program "
        "changed or removed a record; restore the component's data from a backup"
    )
