"""What a restore would do to a folder. Nothing is changed here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from holdfast.workspaces.entries import FileEntries, FileEntry
from holdfast.workspaces.errors import WorkspaceError
from holdfast.workspaces.paths import find_collision, fold_path, iterate_parents
from holdfast.workspaces.scan import Scan


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The steps that lead a folder to a set of files. All lists are sorted."""

    target: FileEntries
    write: list[str]
    """Files and links to create, or to replace because their content differs."""
    chmod: list[str]
    """Files of which only the mode differs."""
    remove: list[str]
    kept: list[str]
    """Files that are not in the target and stay, because its own ignore rules ignore them."""
    first: frozenset[str]
    """Those to remove before anything is written: they are in the way."""
    replaced_folders: list[str]
    """Folders where a file is to be written, the innermost first."""

    @property
    def is_empty(self) -> bool:
        """Whether the folder has the files already."""
        return not (self.write or self.chmod or self.remove)


def compare_files(
    files: FileEntries, before: FileEntries
) -> tuple[list[str], list[str], list[str]]:
    """Return the paths that were added, changed and removed, each sorted."""
    added, changed = [], []
    for path, entry in files.items():
        old = before.get(path)
        if old is entry:
            continue
        if old is None:
            added.append(path)
        elif old != entry:
            changed.append(path)
    removed = []
    if len(before) != len(files) - len(added):
        removed = [path for path in before if path not in files]
    return sorted(added), sorted(changed), sorted(removed)


def plan_restore(
    scan: Scan,
    target: FileEntries,
    *,
    is_kept: Callable[[str], bool] = lambda _: False,
    case_insensitive: bool = False,
) -> RestorePlan:
    """Return what leads a scanned folder to the target.

    ``is_kept`` tells whether a file that is not in the target stays.

    Raises:
        WorkspaceError: Something that is not captured is where a file has to be written, or the
            file system does not tell two files of the target apart.

    """
    if case_insensitive:
        reject_collision(target)
    files = scan.files
    write = sorted(path for path, entry in target.items() if needs_write(files.get(path), entry))
    chmod = sorted(
        path
        for path, entry in target.items()
        if path in files and not needs_write(files[path], entry) and files[path].mode != entry.mode
    )
    extra = sorted(path for path in files if path not in target)
    kept = [path for path in extra if is_kept(path)]
    stay = set(kept)
    remove = [path for path in extra if path not in stay]
    in_the_way = find_obstacles(scan, write, stay)
    first = {path for path in remove if path in in_the_way}
    folders = {path for path in write if path in scan.folders}
    first |= {path for path in remove if not folders.isdisjoint(iterate_parents(path))}
    replaced = folders | {
        path for path in scan.folders if not folders.isdisjoint(iterate_parents(path))
    }
    if case_insensitive:
        written = {fold_path(path) for path in write}
        first |= {path for path in remove if fold_path(path) in written}
    return RestorePlan(
        target, write, chmod, remove, kept, frozenset(first), sorted(replaced, reverse=True)
    )


def needs_write(old: FileEntry | None, new: FileEntry) -> bool:
    """Return whether a file has to be written, rather than only its mode changed."""
    return old is None or not old.has_content_of(new)


def reject_collision(paths: Iterable[str]) -> None:
    """Raise if two paths are one file on a file system that ignores case."""
    found = find_collision(paths)
    if found is not None:
        raise WorkspaceError(
            f"files {found[0]!r} and {found[1]!r} are the same file on this file system, which "
            "ignores case; restore them on another one",
            found[1],
        )


def find_obstacles(scan: Scan, write: Iterable[str], stay: set[str]) -> set[str]:
    """Return the captured files that are where a folder has to be.

    Raises:
        WorkspaceError: Something is in the way that is not captured or has to stay.

    """
    uncaptured: Mapping[str, str] = {
        **dict.fromkeys(scan.ignored, "an ignored file"),
        **{each.path: each.reason for each in scan.skipped},
        **dict.fromkeys(stay, "a file that the restored rules ignore"),
    }
    below: dict[str, str] = {}
    for path in (*uncaptured, *scan.ignored_folders):
        for parent in iterate_parents(path):
            below.setdefault(parent, path)
    found = set()
    for path in write:
        if path in uncaptured:
            raise obstacle_error(path, path, uncaptured[path])
        if path in scan.ignored_folders:
            raise obstacle_error(path, path, "an ignored folder")
        if path in scan.folders and path in below:
            raise obstacle_error(path, below[path], "a file or folder that is not captured")
        for parent in iterate_parents(path):
            if parent in uncaptured:
                raise obstacle_error(path, parent, uncaptured[parent])
            if parent in scan.files:
                found.add(parent)
    return found


def obstacle_error(path: str, other: str, what: str) -> WorkspaceError:
    """Return the error for something that a restore must not replace."""
    return WorkspaceError(
        f"cannot restore {path!r}: {other!r} is in the way ({what}); move it and retry", path
    )


def find_changed(plan: RestorePlan, files: FileEntries, base: FileEntries) -> list[str]:
    """Return the files that differ from the last capture and that the restore would change.

    A file that has its restored content already does not count: an interrupted restore left it.
    """
    touched = {*plan.write, *plan.chmod, *plan.remove}
    added, changed, removed = compare_files(files, base)
    return sorted(path for path in (*added, *changed, *removed) if path in touched)
