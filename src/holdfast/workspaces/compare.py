"""Compare two sets of files, with text diffs."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.workspaces.entries import FileEntries, FileEntry
from holdfast.workspaces.plan import compare_files

MAX_TEXT_SIZE = 256 * 1024
"""Larger files are compared by their size only."""
MAX_TEXTS = 500
"""Of more files, only the first ones are compared by their text."""

NO_NEWLINE = "\\ No newline at end of file\n"

ReadContent = Callable[[str, FileEntry], Awaitable[bytes]]
"""Returns the content of a file."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that differs; ``before`` or ``after`` is None if it was added or removed."""

    path: str
    before: FileEntry | None
    after: FileEntry | None
    text: str | None = None
    """The unified diff; None for a binary or large file, or if only the mode changed."""

    @property
    def kind(self) -> str:
        """``"added"``, ``"removed"`` or ``"changed"``."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON data."""
        return {
            "path": self.path,
            "kind": self.kind,
            "before": None if self.before is None else self.before.to_value(),
            "after": None if self.after is None else self.after.to_value(),
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class WorkspaceDiff:
    """The files that differ between two moments, sorted by their paths."""

    files: list[FileChange]

    @property
    def added(self) -> list[FileChange]:
        """The files that only the later one has."""
        return [each for each in self.files if each.kind == "added"]

    @property
    def removed(self) -> list[FileChange]:
        """The files that only the earlier one has."""
        return [each for each in self.files if each.kind == "removed"]

    @property
    def changed(self) -> list[FileChange]:
        """The files whose content, mode or target differs."""
        return [each for each in self.files if each.kind == "changed"]

    @property
    def text(self) -> str:
        """All text diffs, one after the other."""
        return "".join(each.text or "" for each in self.files)

    def __bool__(self) -> bool:
        return bool(self.files)


async def diff_files(
    before: FileEntries,
    after: FileEntries,
    read_before: ReadContent,
    read_after: ReadContent,
    *,
    text: bool = True,
) -> WorkspaceDiff:
    """Return the files that differ; with ``text``, with the diffs of those that are text."""
    added, changed, removed = compare_files(after, before)
    found: list[FileChange] = []
    for path in sorted((*added, *changed, *removed)):
        old, new = before.get(path), after.get(path)
        diff = None
        if text and len(found) < MAX_TEXTS and is_comparable(old, new):
            one = await read_text(path, old, read_before)
            two = await read_text(path, new, read_after)
            if one is not None and two is not None:
                diff = diff_texts(path, one, two, is_added=old is None, is_removed=new is None)
        found.append(FileChange(path, old, new, diff))
    return WorkspaceDiff(found)


def is_comparable(old: FileEntry | None, new: FileEntry | None) -> bool:
    """Return whether the texts of two files are to be compared."""
    if old is not None and new is not None and old.has_content_of(new):
        return False
    return all(each is None or each.size <= MAX_TEXT_SIZE for each in (old, new))


async def read_text(path: str, entry: FileEntry | None, read: ReadContent) -> str | None:
    """Return the text of a file, or None for a binary one. A link's text is its target."""
    if entry is None:
        return ""
    if entry.link is not None:
        return entry.link
    data = await read(path, entry)
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def diff_texts(path: str, before: str, after: str, *, is_added: bool, is_removed: bool) -> str:
    """Return a unified diff as Git prints it."""
    lines = difflib.unified_diff(
        split_lines(before),
        split_lines(after),
        "/dev/null" if is_added else f"a/{path}",
        "/dev/null" if is_removed else f"b/{path}",
    )
    return "".join(end_lines(lines))


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with their ends; only a line feed ends one."""
    parts = text.split("\n")
    lines = [f"{part}\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def end_lines(lines: Iterable[str]) -> Iterable[str]:
    """Yield lines, each with a line feed."""
    for line in lines:
        if line.endswith("\n"):
            yield line
        else:
            yield f"{line}\n"
            yield NO_NEWLINE
