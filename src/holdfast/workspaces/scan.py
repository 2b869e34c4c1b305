"""Find the files of a folder and their digests.

First the tree is walked, with one ``stat`` per file; then the files that the cache does not know
are hashed. The walk is the cost of a capture in which little changed, so its inner loop does no
more than it has to.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from holdfast.errors import short_repr
from holdfast.workspaces.entries import PERMISSIONS, FileEntry
from holdfast.workspaces.errors import WorkspaceError, explain_file_error
from holdfast.workspaces.folder import Directory, Folder
from holdfast.workspaces.hashing import HashedFile, hash_file
from holdfast.workspaces.ignore import GIT_EXCLUDE, GITIGNORE, HOLDFASTIGNORE, IgnoreRules
from holdfast.workspaces.paths import ALWAYS_IGNORED, STAGING_PREFIX, is_reserved, iterate_parents
from holdfast.workspaces.stat_cache import RACY_NS, StatCache, StatKey

MAX_FILE_SIZE = 50 * 2**20
MAX_TOTAL_SIZE = 2**30
MAX_DEPTH = 200
MAX_IGNORE_FILE = 2**20
MAX_KEPT_CONTENT = 16 * 2**20
"""How many bytes of small files a scan keeps in memory."""

SPECIAL = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Which files of a folder are captured."""

    max_file_size: int = MAX_FILE_SIZE
    max_total_size: int = MAX_TOTAL_SIZE
    ignore: Sequence[str] = ()
    """Patterns in addition to those of the ignore files."""
    respect_gitignore: bool = True
    excluded: frozenset[str] = frozenset()
    """Absolute paths that are not captured: the files of the store, if they are in the folder."""

    def __post_init__(self) -> None:
        for name in ("max_file_size", "max_total_size"):
            limit = getattr(self, name)
            if type(limit) is not int or limit < 0:
                raise ValueError(f"{name} must be a number of bytes, got {short_repr(limit)}")
        if isinstance(self.ignore, str) or not all(isinstance(each, str) for each in self.ignore):
            raise TypeError(
                f'ignore must be a list of patterns such as "*.log", got {short_repr(self.ignore)}'
            )


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was not captured, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Scan:
    """The files of a folder at one moment."""

    files: dict[str, FileEntry] = field(default_factory=dict)
    skipped: list[SkippedFile] = field(default_factory=list)
    ignored: set[str] = field(default_factory=set)
    """Files that the rules ignore, and that are not in an ignored folder."""
    ignored_folders: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    hashed: dict[str, HashedFile] = field(default_factory=dict)
    """The files whose content was read in this scan."""
    cache: StatCache = field(default_factory=StatCache)
    size: int = 0
    """The bytes of all files together."""


def scan_folder(
    folder: Folder,
    options: ScanOptions,
    cache: StatCache,
    include: Collection[str] = (),
) -> Scan:
    """Return the files of an open folder.

    ``include`` lists files that are captured although they are ignored or too large.

    Raises:
        WorkspaceError: A file or folder cannot be read, or a file changes all the time; the error
            names it.

    """
    return Scanner(folder, options, cache, include).run()


class Scanner:
    """One scan of a folder."""

    def __init__(
        self, folder: Folder, options: ScanOptions, cache: StatCache, include: Collection[str]
    ) -> None:
        self._folder = folder
        self._options = options
        self._known = cache
        self._include = frozenset(include)
        self._include_parents = {parent for path in include for parent in iterate_parents(path)}
        self._rules: dict[str, str] = {}
        self._to_hash: dict[str, int] = {}
        self._forced: set[str] = set()
        self._excluded = find_inside(options.excluded, folder.root)
        self._scan = Scan()

    def run(self) -> Scan:
        """Walk the tree, apply the size limits and hash what is not known."""
        started = time.time_ns()
        options, scan = self._options, self._scan
        exclude = ""
        if options.respect_gitignore:
            exclude = self._read_text(GIT_EXCLUDE) or ""
        rules = IgnoreRules.create(options.ignore, exclude)
        self._walk(self._folder.top, "", rules, "", is_included=False, depth=0)
        self._apply_total_limit()
        self._hash_files(started - RACY_NS)
        scan.skipped.sort(key=lambda each: each.path)
        scan.cache.ignored = frozenset(scan.ignored)
        scan.cache.folders = frozenset(scan.folders)
        scan.cache.rules = self._rules
        return scan

    def _walk(
        self,
        directory: Directory,
        prefix: str,
        rules: IgnoreRules,
        known_rules: str,
        *,
        is_included: bool,
        depth: int,
    ) -> None:
        """Walk one folder; of an ignored one, only what is to be included."""
        if depth > MAX_DEPTH:
            raise WorkspaceError(
                f"folder {prefix!r} is nested more than {MAX_DEPTH} deep; add it to "
                ".holdfastignore",
                prefix,
            )
        try:
            with os.scandir(directory.path if directory.fd is None else directory.fd) as found:
                entries = list(found)
        except OSError as error:
            raise explain_file_error("read folder", prefix or ".", error) from error
        if not is_included:
            rules = self._enter_rules(entries, prefix, rules)
        known_rules = self._known.rules.get(prefix, known_rules)
        if prefix == "" or rules.fingerprint != self._rules.get("", ""):
            self._rules[prefix] = rules.fingerprint
        is_trusted = known_rules == rules.fingerprint and not is_included
        known, files, fresh = self._known.files, self._scan.files, self._scan.cache.files
        largest, size = self._options.max_file_size, 0
        folders = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
                continue
            path = prefix + entry.name
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # removed in the meantime
            key = (
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_size,
                status.st_ino,
                status.st_mode,
            )
            old = known.get(path)
            if is_trusted and old is not None and old[0] == key and key[2] <= largest:
                files[path] = old[1]
                fresh[path] = old
                size += key[2]
            else:
                self._examine(directory, entry.name, path, key, old, rules, is_trusted, is_included)
        self._scan.size += size
        for name in folders:
            path = prefix + name
            if is_trusted and path in self._known.folders:
                self._scan.folders.add(path)
            elif not self._check_folder(path, name, rules, is_included=is_included):
                continue
            self._walk_inside(
                directory, name, path, rules, known_rules, path not in self._scan.folders, depth
            )

    def _check_folder(self, path: str, name: str, rules: IgnoreRules, *, is_included: bool) -> bool:
        """Return whether a folder is to be walked: it is not ignored, or has files to include."""
        if not self._check_name(path, name, self._scan.ignored_folders):
            return False
        if is_included:
            return path in self._include_parents
        if rules.is_ignored(path, is_folder=True):
            self._scan.ignored_folders.add(path)
            return path in self._include_parents
        self._scan.folders.add(path)
        return True

    def _walk_inside(
        self,
        directory: Directory,
        name: str,
        path: str,
        rules: IgnoreRules,
        known_rules: str,
        is_included: bool,  # noqa: FBT001
        depth: int,
    ) -> None:
        """Walk a folder inside another one."""
        try:
            inner = directory.open_folder(name)
        except (FileNotFoundError, NotADirectoryError):
            return  # removed or replaced in the meantime
        except OSError as error:
            raise explain_file_error("read folder", path, error) from error
        try:
            self._walk(
                inner, f"{path}/", rules, known_rules, is_included=is_included, depth=depth + 1
            )
        finally:
            inner.close()

    def _examine(
        self,
        directory: Directory,
        name: str,
        path: str,
        key: StatKey,
        old: tuple[StatKey, FileEntry] | None,
        rules: IgnoreRules,
        is_trusted: bool,  # noqa: FBT001
        is_included: bool,  # noqa: FBT001
    ) -> None:
        """Decide about a file that is not known, or changed."""
        scan = self._scan
        if is_included and path not in self._include:
            return
        if not self._check_name(path, name, scan.ignored):
            return
        if is_trusted and old is not None:
            is_ignored = False
        elif is_trusted and path in self._known.ignored:
            is_ignored = True
        else:
            is_ignored = is_included or rules.is_ignored(path)
        if is_ignored:
            if path not in self._include:
                scan.ignored.add(path)
                return
            # The cache holds only files that the rules do not ignore.
            self._forced.add(path)
        kind = stat.S_IFMT(key[4])
        if kind == stat.S_IFLNK:
            self._add_link(directory, name, path)
        elif kind != stat.S_IFREG:
            scan.skipped.append(SkippedFile(path, SPECIAL.get(kind, "not a regular file")))
        elif key[2] > self._options.max_file_size and path not in self._include:
            limit = self._options.max_file_size
            reason = f"{key[2]:,} bytes, more than max_file_size ({limit:,})"
            scan.skipped.append(SkippedFile(path, reason))
        elif old is not None and old[0] == key:
            scan.files[path] = old[1]
            scan.cache.files[path] = old
            scan.size += key[2]
        else:
            self._to_hash[path] = key[2]

    def _add_link(self, directory: Directory, name: str, path: str) -> None:
        """Add a symbolic link."""
        try:
            target = os.readlink(directory.at(name), dir_fd=directory.fd)
        except FileNotFoundError:
            return  # removed in the meantime
        except OSError as error:
            raise explain_file_error("read link", path, error) from error
        if is_utf8(target):
            self._scan.files[path] = FileEntry(link=target)
        else:
            self._scan.skipped.append(SkippedFile(path, "a link whose target is not UTF-8"))

    def _check_name(self, path: str, name: str, ignored: set[str]) -> bool:
        """Return whether a name can be captured; report or ignore it otherwise."""
        if name in ALWAYS_IGNORED or name.startswith(STAGING_PREFIX) or self._is_excluded(path):
            ignored.add(path)
            return False
        if not is_utf8(path):
            shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            self._scan.skipped.append(SkippedFile(shown, "its name is not UTF-8"))
            return False
        if is_reserved(name):
            self._scan.skipped.append(SkippedFile(path, "its name is reserved"))
            return False
        return True

    def _is_excluded(self, path: str) -> bool:
        """Return whether a file belongs to the store of the session."""
        return any(path == each or path.startswith(f"{each}-") for each in self._excluded)

    # -------------------------------------------------------------------------- ignore files

    def _enter_rules(
        self, entries: list[os.DirEntry[str]], prefix: str, rules: IgnoreRules
    ) -> IgnoreRules:
        """Return the rules inside a folder."""
        gitignore = holdfastignore = None
        for entry in entries:
            name = entry.name
            if name == GITIGNORE and self._options.respect_gitignore:
                gitignore = self._read_text(prefix + name)
            elif name == HOLDFASTIGNORE:
                holdfastignore = self._read_text(prefix + name)
        return rules.enter(prefix, gitignore, holdfastignore)

    def _read_text(self, path: str) -> str | None:
        """Return the text of an ignore file; None for anything but a small regular file.

        Git does not follow a symbolic link here either.
        """
        try:
            directory, name = self._folder.parent_of(path)
            status = directory.lstat(name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise explain_file_error("read", path, error) from error
        if status is None or not stat.S_ISREG(status.st_mode) or status.st_size > MAX_IGNORE_FILE:
            return None
        data = self._folder.read_file(path, MAX_IGNORE_FILE)
        return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")

    # ------------------------------------------------------------------------ sizes, digests

    def _apply_total_limit(self) -> None:
        """Skip the files beyond the limit of the total size, in the order of their paths."""
        scan, limit = self._scan, self._options.max_total_size
        if scan.size + sum(self._to_hash.values()) <= limit:
            return
        sizes = {path: entry.size for path, entry in scan.files.items()}
        sizes.update(self._to_hash)
        total = 0
        for path in sorted(sizes):
            if path not in self._include and total + sizes[path] > limit:
                reason = f"{sizes[path]:,} bytes, beyond max_total_size ({limit:,})"
                scan.skipped.append(SkippedFile(path, reason))
                scan.cache.files.pop(path, None)
                self._to_hash.pop(path, None)
                if scan.files.pop(path, None) is not None:
                    scan.size -= sizes[path]
            else:
                total += sizes[path]

    def _hash_files(self, trusted_before: int) -> None:
        """Hash the files that are not known."""
        scan, kept = self._scan, 0
        for path in sorted(self._to_hash):
            found = hash_file(self._folder, path)
            if found is None:
                continue  # removed in the meantime
            if found.content is not None:
                kept += found.size
                if kept > MAX_KEPT_CONTENT:
                    found = replace(found, content=None)
            entry = FileEntry(found.digest, found.size, found.key[4] & PERMISSIONS)
            scan.files[path] = entry
            scan.hashed[path] = found
            scan.size += found.size
            if max(found.key[:2]) < trusted_before and path not in self._forced:
                scan.cache.files[path] = (found.key, entry)


def find_inside(paths: Collection[str], root: str) -> list[str]:
    """Return those of some absolute paths that are in a folder, relative to it."""
    prefix = root.rstrip(os.sep) + os.sep
    return [
        each.removeprefix(prefix).replace(os.sep, "/") for each in paths if each.startswith(prefix)
    ]


def is_utf8(text: str) -> bool:
    """Return whether a name of the file system is valid UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
