"""The pages of the index of keys, as records of a Dapr component.

One object serves one operation: it remembers the pages that it read, so that they are written over
only if nobody else did meanwhile. What it knows of the root may be from an earlier operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.stores.dapr.key_index import (
    FIRST,
    Edit,
    Leaf,
    Root,
    decode_leaf,
    decode_root,
    encode_page,
    find_leaves,
)
from holdfast.stores.dapr.names import page_prefix
from holdfast.stores.dapr.records import Change, Record, Records, RecordView

ROOT = "root"


class IndexPages:
    """``Pages`` of a namespace."""

    def __init__(self, records: Records, namespace: str, known: Root | None = None) -> None:
        self.known = known
        self._records = records
        self._prefix = page_prefix(namespace)
        self._seen: dict[str, RecordView] = {}

    async def root(self, *, again: bool = False) -> Root:
        """The root, or one that was read before unless it is to be read again."""
        if self.known is None or again:
            body = (await self._read([ROOT]))[ROOT].body
            self.known = Root() if body is None else decode_root(body)
        return self.known

    async def leaves(self, pages: Sequence[str]) -> Mapping[str, Leaf | None]:
        """Leaves, as they are now. None: there is no such page, or no more."""
        found = await self._read(pages)
        return {page: decode_leaf_page(page, one.body) for page, one in found.items()}

    async def edit(self, make: Callable[[Root], Edit]) -> Edit | None:
        """What to write; None where the root has changed so that it is to be thought over."""
        edit = make(await self.root())
        if edit.root is None:
            return edit
        root = await self.root(again=True)
        if not set(self._seen).difference([ROOT]) <= set(root.pages):
            return None
        return make(root)

    async def begin(self, edit: Edit, mark: str) -> str | None:
        """Make the first page and the root where there are none: then all is to be read again.

        They are made by themselves, as no transaction could tell that somebody else does it too.
        None: they are there. A text: they were made (an empty one), or why not.
        """
        wanted: dict[str, Leaf | Root] = {}
        if FIRST in edit.leaves and not self._seen[FIRST].etag:
            wanted[FIRST] = Leaf()
        if edit.root is not None and not self._seen[ROOT].etag:
            wanted[ROOT] = Root()
        refusal = None
        for page, content in wanted.items():
            record = Record(token=mark, body=encode_page(content))
            refusal = await self._records.commit([Change(self._seen[page], record)]) or ""
        return refusal

    def changes(self, edit: Edit, mark: str) -> list[Change]:
        """An edit as changes of records. From here on it is what is known."""
        pages: dict[str, Leaf | Root | None] = {**edit.leaves}
        if edit.root is not None:
            self.known = pages[ROOT] = edit.root
        changes = []
        for page, content in pages.items():
            # A page that was not read is a new one, of a name that nobody else has.
            seen = self._seen.get(page) or RecordView(self._prefix + page, "", Record())
            body = None if content is None else encode_page(content)
            changes.append(Change(seen, Record(token=mark, body=body)))
        return changes

    async def were_left_by(self, mark: str, key: str) -> bool:
        """Whether the last to write where a key is listed, or was, had this mark."""
        await self.root(again=True)
        await find_leaves(self, [key])
        return any(seen.record.token == mark for seen in self._seen.values())

    async def _read(self, pages: Sequence[str]) -> dict[str, RecordView]:
        found = await self._records.read([self._prefix + page for page in pages])
        seen = {page: found[self._prefix + page] for page in pages}
        self._seen |= seen
        return seen


def decode_leaf_page(page: str, body: bytes | None) -> Leaf | None:
    """The leaf on a page. The first is there before it was ever written."""
    if body is None:
        return Leaf() if page == FIRST else None
    return decode_leaf(body)
