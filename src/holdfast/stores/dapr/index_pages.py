"""The pages of the key index, as records of a Dapr component.

One object serves one operation. It remembers the pages that it read, so that each is only replaced
if no other writer changed it since. The root may be known from an earlier operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.stores.dapr.key_index import (
    FIRST,
    Edit,
    Leaf,
    Root,
    decode_page,
    encode_page,
    find_leaves,
)
from holdfast.stores.dapr.names import page_prefix
from holdfast.stores.dapr.records import Change, Record, Records, RecordView

ROOT = "root"


class IndexPages:
    """The ``Pages`` of a namespace."""

    def __init__(self, records: Records, namespace: str, known_root: Root | None = None) -> None:
        self.known_root = known_root
        self._records = records
        self._prefix = page_prefix(namespace)
        self._views: dict[str, RecordView] = {}

    async def root(self, *, again: bool = False) -> Root:
        """Return the root, which may be an older one unless it is read again."""
        if self.known_root is None or again:
            body = (await self._read([ROOT]))[ROOT].body
            self.known_root = Root() if body is None else decode_page(body, Root)
        return self.known_root

    async def leaves(self, pages: Sequence[str]) -> Mapping[str, Leaf | None]:
        """Return leaves as they are now, None for pages that do not exist."""
        views = await self._read(pages)
        return {page: decode_leaf_page(page, view.body) for page, view in views.items()}

    async def edit(self, make: Callable[[Root], Edit]) -> Edit | None:
        """Return the edit to write, or None if the root changed so that all must be read again."""
        edit = make(await self.root())
        if edit.root is None:
            return edit
        root = await self.root(again=True)
        if not set(self._views).difference([ROOT]) <= set(root.pages):
            return None
        return make(root)

    async def create_missing(self, edit: Edit, token: str) -> str | None:
        """Create the first page and the root if they do not exist.

        Each is created on its own, because a transaction cannot detect that another writer creates
        it too.

        Returns None if both existed. Otherwise all must be read again, and the text is empty, or
        the reason why a page could not be created.
        """
        missing: dict[str, Leaf | Root] = {}
        if FIRST in edit.leaves and not self._views[FIRST].etag:
            missing[FIRST] = Leaf()
        if edit.root is not None and not self._views[ROOT].etag:
            missing[ROOT] = Root()
        refusal = None
        for page, content in missing.items():
            record = Record(token=token, body=encode_page(content))
            refusal = await self._records.commit([Change(self._views[page], record)]) or ""
        return refusal

    def changes(self, edit: Edit, token: str) -> list[Change]:
        """Return an edit as changes of records. Its root becomes the known one."""
        pages: dict[str, Leaf | Root | None] = {**edit.leaves}
        if edit.root is not None:
            self.known_root = pages[ROOT] = edit.root
        changes = []
        for page, content in pages.items():
            # A page that was not read is new, with a unique name.
            view = self._views.get(page) or RecordView(self._prefix + page, "", Record())
            body = None if content is None else encode_page(content)
            changes.append(Change(view, Record(token=token, body=body)))
        return changes

    async def were_written_by(self, token: str, key: str) -> bool:
        """Return whether the last write to the pages of a key has this token."""
        await self.root(again=True)
        await find_leaves(self, [key])
        return any(view.record.token == token for view in self._views.values())

    async def _read(self, pages: Sequence[str]) -> dict[str, RecordView]:
        found = await self._records.read([self._prefix + page for page in pages])
        views = {page: found[self._prefix + page] for page in pages}
        self._views |= views
        return views


def decode_leaf_page(page: str, body: bytes | None) -> Leaf | None:
    """Return the leaf of a page. The first page counts as an empty leaf until it is written."""
    if body is None:
        return Leaf() if page == FIRST else None
    return decode_page(body, Leaf)
