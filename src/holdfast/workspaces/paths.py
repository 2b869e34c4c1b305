"""Which paths a workspace may contain.

A session may come from another machine or from a document that anybody wrote, so a path is checked
before a file is written to it. It must stay inside the folder, and must not reach a Git repository
or a Holdfast store in it: a hook in ``.git`` would run as the user.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable

from holdfast.errors import IntegrityError

ALWAYS_IGNORED = (".git", ".holdfast")
STAGING_PREFIX = ".holdfast-restore-"

# Characters that HFS+ ignores in names, so that ".g\u200cit" opens ".git".
INVISIBLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
# Short names that NTFS gives to ".git" and ".holdfast".
SHORT_NAMES = re.compile(r"(?:git|holdfa)~\d+")
WINDOWS_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
WINDOWS_INVALID = re.compile(r'[\x00-\x1f<>:"|?*\\]|[. ]$')


def is_reserved(name: str) -> bool:
    """Return whether a name opens ``.git`` or ``.holdfast`` on some file system."""
    if name.isascii() and name[:1] != "." and "~" not in name:
        return False
    plain = INVISIBLE.sub("", name).rstrip(". ").lower()
    return (
        plain in ALWAYS_IGNORED
        or plain.startswith(STAGING_PREFIX)
        or SHORT_NAMES.fullmatch(plain) is not None
    )


def find_path_problem(path: str, *, windows: bool = os.name == "nt") -> str | None:
    """Return why a file must not be written to a path, or None."""
    if "\0" in path:
        return "it contains a NUL character"
    if path.startswith("/"):
        return "it is absolute"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return f"it contains the part {part!r}"
        if is_reserved(part):
            return f"{part!r} is reserved"
        if windows and WINDOWS_DEVICES.fullmatch(part):
            return f"{part!r} is a device on Windows"
        if windows and WINDOWS_INVALID.search(part):
            return f"{part!r} is not a valid name on Windows"
    return None


def validate_path(path: str) -> str:
    """Return a path that is safe to write to.

    Raises:
        IntegrityError: The path is not relative, or leaves the folder.

    """
    problem = find_path_problem(path)
    if problem is not None:
        raise IntegrityError(f"unsafe path of a file in the session: {path!r}: {problem}")
    return path


def validate_tree(paths: Iterable[str]) -> None:
    """Check that no file is also the folder of another one.

    Raises:
        IntegrityError: One path is below another.

    """
    known = set(paths)
    for path in known:
        for parent in iterate_parents(path):
            if parent in known:
                raise IntegrityError(
                    f"the session has a file {parent!r} and a file {path!r} below it"
                )


def iterate_parents(path: str) -> Iterable[str]:
    """Yield the folders that contain a path, innermost first."""
    end = path.rfind("/")
    while end > 0:
        yield path[:end]
        end = path.rfind("/", 0, end)


def fold_path(path: str) -> str:
    """Return what is equal for paths that a case-insensitive file system does not tell apart."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def find_collision(paths: Iterable[str]) -> tuple[str, str] | None:
    """Return two paths that are the same file where case does not matter, or None."""
    known: dict[str, str] = {}
    for path in sorted(paths):
        for each in (path, *iterate_parents(path)):
            other = known.setdefault(fold_path(each), each)
            if other != each:
                return other, each
    return None


def is_case_insensitive(root: str) -> bool:
    """Return whether a folder treats names that differ in case as equal.

    It is probed with a name that exists; nothing is written.
    """
    try:
        names = [name for name in os.listdir(root) if name.swapcase() != name]
        for name in names[:1]:
            return is_same_file(os.path.join(root, name), os.path.join(root, name.swapcase()))
        parent, name = os.path.split(os.path.realpath(root))
        return is_same_file(root, os.path.join(parent, name.swapcase()))
    except OSError:
        return sys.platform in ("win32", "darwin")


def is_same_file(path: str, other: str) -> bool:
    """Return whether both paths exist and are one file."""
    try:
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except FileNotFoundError:
        return False
