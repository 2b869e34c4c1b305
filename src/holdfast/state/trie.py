"""A persistent map: a hash trie whose leaves are small dicts.

A node is a leaf (a plain dict of up to 48 entries) or a `Branch` with 64 children, selected by six
bits of the key's hash. Versions of a map share the nodes that did not change, so freezing one is
free: a root identifies a version. A node is modified in place only if the trie's owner created it
since the last freeze; any other node is copied first.

Ownership is stored in two places. A `Trie` records the owner that may modify it, and a branch has
one bit per child that was created by that owner. A child's bit counts only if all nodes above it
are owned too: the copy of a branch starts with no bits set.

Values are opaque and never None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from holdfast.state.names import mypyc_attr

if TYPE_CHECKING:
    from mypy_extensions import i64

COMPILED: Final = not __file__.endswith(".py")
"""Whether this code was compiled by mypyc."""

BITS: Final = 6
WIDTH: Final = 64
MASK: Final = 63
MAX_LEAF_SIZE: Final = 48
HASH_BITS: Final = 60
"""Beyond this many bits a leaf no longer splits: its keys have equal hashes."""

EMPTY_LEAF: Final[dict[str, object]] = {}
"""The empty leaf, shared by all tries and never owned."""

NEEDS_NEW_NODE: Final = object()
"""The result of `set_in_place` if it would have to copy or create a node."""


class Hashing:
    """A mask for the hashes of keys. Tests clear bits to force collisions."""

    def __init__(self) -> None:
        self.mask: i64 = -1


HASHING: Final = Hashing()


# A version holds no cycles. The garbage collector need not know it, and does not start because a
# program keeps many.
@mypyc_attr(acyclic=True)
class Branch:
    """Children by six bits of the hash; bit ``i`` of ``owned``: child ``i`` may be modified."""

    def __init__(self, owned: i64, children: list[object]) -> None:
        self.owned: i64 = owned
        self.children: list[object] = children


@mypyc_attr(acyclic=True)
class Trie:
    """One version of a map, and the owner that may modify it in place."""

    def __init__(self, owner: i64, root: object, owned: i64) -> None:
        self.owner: i64 = owner
        self.root: object = root
        self.owned: i64 = owned
        """1 if the root node may be modified in place."""


def hash_key(key: str) -> i64:
    """Return the hash of a key."""
    bits: i64 = hash(key)
    return bits & HASHING.mask


def bit(slot: i64, one: i64) -> i64:
    """Return ``1 << slot``. ``one`` is a parameter: mypyc makes a constant a 32-bit C int."""
    return one << slot


def new_trie(owner: i64) -> Trie:
    """Return an empty map."""
    return Trie(owner, EMPTY_LEAF, 0)


def copy_trie(trie: Trie, owner: i64) -> Trie:
    """Return the same map for another owner, sharing all nodes."""
    return Trie(owner, trie.root, 0)


def lookup(trie: Trie, bits: i64, key: str) -> object | None:
    """Return the value of a key, or None."""
    node = trie.root
    while isinstance(node, Branch):
        node = node.children[bits & MASK]
        bits = bits >> BITS
    return cast("dict[str, object]", node).get(key)


def set_in_place(trie: Trie, bits: i64, key: str, value: object) -> object | None:
    """Set a key if that needs no new node.

    Return the previous value, None if there was none, or `NEEDS_NEW_NODE`.

    It allocates nothing that the garbage collector tracks and performs only dict operations on str
    keys, so when compiled and under the GIL it is atomic. New keys that are not ASCII are left to
    the caller, which validates them first.
    """
    owned = trie.owned
    node = trie.root
    shift: i64 = 0
    while isinstance(node, Branch):
        slot: i64 = (bits >> shift) & MASK
        owned &= node.owned >> slot
        node = node.children[slot]
        shift += BITS
    leaf = cast("dict[str, object]", node)
    previous = leaf.get(key)
    if previous is not None:
        if previous == value:
            return previous
        if not owned & 1:
            return NEEDS_NEW_NODE
        leaf[key] = value
        return previous
    if not owned & 1 or not key.isascii():
        return NEEDS_NEW_NODE
    if len(leaf) >= MAX_LEAF_SIZE and shift < HASH_BITS:
        return NEEDS_NEW_NODE
    leaf[key] = value
    return None


def owned_leaf(trie: Trie, bits: i64, *, for_new_key: bool) -> dict[str, object]:
    """Return the leaf of a key, owned by the trie, with room if the key is new."""
    if not trie.owned & 1:
        trie.root = copy_node(trie.root)
        trie.owned = 1
    shift: i64 = 0
    slot: i64 = 0
    parent: Branch | None = None
    node = trie.root
    while True:
        if isinstance(node, Branch):
            parent = node
            slot = (bits >> shift) & MASK
            shift += BITS
            node = parent.children[slot]
            if not (parent.owned >> slot) & 1:
                node = copy_node(node)
                parent.children[slot] = node
                parent.owned |= bit(slot, 1)
            continue
        leaf = cast("dict[str, object]", node)
        if not for_new_key or len(leaf) < MAX_LEAF_SIZE or shift >= HASH_BITS:
            return leaf
        node = split_leaf(leaf, shift)
        if parent is None:
            trie.root = node
        else:
            parent.children[slot] = node


def copy_node(node: object) -> object:
    """Return a shallow copy of a node."""
    if isinstance(node, Branch):
        return Branch(0, node.children[:])
    return cast("dict[str, object]", node).copy()


def split_leaf(leaf: dict[str, object], shift: i64) -> Branch:
    """Return a branch of owned leaves with the same entries."""
    children: list[object] = [EMPTY_LEAF] * WIDTH
    owned: i64 = 0
    for key, value in leaf.items():
        slot: i64 = (hash_key(key) >> shift) & MASK
        child = children[slot]
        if child is EMPTY_LEAF:
            children[slot] = {key: value}
            owned |= bit(slot, 1)
        else:
            cast("dict[str, object]", child)[key] = value
    return Branch(owned, children)


def remove_key(trie: Trie, bits: i64, key: str) -> object | None:
    """Delete a key and reclaim its space; return the previous value, or None."""
    previous = lookup(trie, bits, key)
    if previous is None:
        return None
    leaf = owned_leaf(trie, bits, for_new_key=False)
    del leaf[key]
    path: list[Branch] = []
    node = trie.root
    shift: i64 = 0
    while isinstance(node, Branch):
        path.append(node)
        node = node.children[(bits >> shift) & MASK]
        shift += BITS
    size = len(leaf)
    if size == 0:
        remove_empty_leaf(trie, path, bits)
    elif size == 5 or size == 10 or size == 21:
        # Dicts do not shrink; at these sizes a copy needs a smaller table.
        replace_leaf(trie, path, bits, leaf.copy())
    return previous


def replace_leaf(trie: Trie, path: list[Branch], bits: i64, leaf: dict[str, object]) -> None:
    """Replace the leaf at the end of a path of owned branches."""
    if not path:
        trie.root = leaf or EMPTY_LEAF
        trie.owned = 1 if leaf else 0
        return
    depth: i64 = len(path) - 1
    branch = path[depth]
    slot: i64 = (bits >> (depth * BITS)) & MASK
    if leaf:
        branch.children[slot] = leaf
        branch.owned |= bit(slot, 1)
    else:
        branch.children[slot] = EMPTY_LEAF
        branch.owned &= ~bit(slot, 1)


def remove_empty_leaf(trie: Trie, path: list[Branch], bits: i64) -> None:
    """Remove the empty leaf at the end of a path, and turn small branches into leaves."""
    leaf: dict[str, object] = EMPTY_LEAF
    while True:
        replace_leaf(trie, path, bits, leaf)
        if not path:
            return
        merged = merge_children(path[-1])
        if merged is None:
            return
        leaf = merged
        path.pop()


def merge_children(branch: Branch) -> dict[str, object] | None:
    """Return the entries of a branch as one leaf if they fill at most half of it, or None."""
    total = 0
    for child in branch.children:
        if isinstance(child, Branch):
            return None
        total += len(cast("dict[str, object]", child))
        if total > MAX_LEAF_SIZE // 2:
            return None
    leaf: dict[str, object] = {}
    for child in branch.children:
        leaf.update(cast("dict[str, object]", child))
    return leaf


def is_empty(trie: Trie) -> bool:
    """Return whether the map has no entries."""
    root = trie.root
    return not isinstance(root, Branch) and not cast("dict[str, object]", root)


def list_leaves(node: object) -> list[dict[str, object]]:
    """Return the non-empty leaves under a node."""
    found: list[dict[str, object]] = []
    collect_leaves(node, found)
    return found


def collect_leaves(node: object, found: list[dict[str, object]]) -> None:
    """Append the non-empty leaves under a node."""
    if isinstance(node, Branch):
        for child in node.children:
            if child is not EMPTY_LEAF:
                collect_leaves(child, found)
        return
    leaf = cast("dict[str, object]", node)
    if leaf:
        found.append(leaf)


def collect_entries(node: object) -> dict[str, object]:
    """Return all entries under a node as one dict; a leaf is returned itself."""
    if isinstance(node, Branch):
        entries: dict[str, object] = {}
        for leaf in list_leaves(node):
            entries.update(leaf)
        return entries
    return cast("dict[str, object]", node)


def compare_nodes(
    later: object, base: object, found: list[tuple[str, object | None, object | None]]
) -> None:
    """Append ``(key, later value, base value)`` for each key whose values are different objects.

    Shared nodes are skipped, so the cost depends on what was written between the two versions.
    """
    if later is base:
        return
    if isinstance(later, Branch) and isinstance(base, Branch):
        laters = later.children
        bases = base.children
        slot: i64 = 0
        while slot < WIDTH:
            one = laters[slot]
            other = bases[slot]
            if one is not other:
                compare_nodes(one, other, found)
            slot += 1
        return
    new = collect_entries(later)
    old = collect_entries(base)
    kept = 0
    for key, value in new.items():
        previous = old.get(key)
        if previous is not None:
            kept += 1
        if previous is not value:
            found.append((key, value, previous))
    if kept == len(old):
        return
    for key, previous in old.items():
        if key not in new:
            found.append((key, None, previous))
