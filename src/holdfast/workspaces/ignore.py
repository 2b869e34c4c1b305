"""Which files of a folder are not captured: ``.gitignore`` and ``.holdfastignore``.

The rules are Git's. A pattern is matched against the path itself, never against its parents: what
is below an ignored folder is not looked at. Of the patterns that match, the last one in the
innermost file counts. ``.holdfastignore`` has precedence over ``.gitignore``, so that it can
include what Git ignores; patterns that the caller passes have precedence over both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

GITIGNORE = ".gitignore"
HOLDFASTIGNORE = ".holdfastignore"
GIT_EXCLUDE = ".git/info/exclude"


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of an ignore file."""

    search: Callable[[str], object]
    ignores: bool
    """False for a pattern that starts with ``!``."""
    only_folders: bool


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The patterns of one ignore file, the last one first."""

    folder: str
    """The folder of the file, relative to the root, with a slash at its end; empty for the root."""
    patterns: Sequence[IgnorePattern]

    def decide(self, path: str, *, is_folder: bool) -> bool | None:
        """Return whether a path is ignored, or None if no pattern matches."""
        path = path[len(self.folder) :]
        for each in self.patterns:
            if (is_folder or not each.only_folders) and each.search(path):
                return each.ignores
        return None


def parse_patterns(lines: Iterable[str]) -> list[IgnorePattern]:
    """Return the patterns of an ignore file, the last one first."""
    # It takes long to import, and few programs that use a session need it.
    from pathspec import GitIgnoreSpec  # noqa: PLC0415

    found = []
    for line in lines:
        text = strip_line(line)
        if not text or text.startswith("#"):
            continue
        only_folders = text.endswith("/")
        bare = text.rstrip("/") if only_folders else text
        try:
            pattern = GitIgnoreSpec.from_lines([bare]).patterns[0]
        except ValueError:
            continue  # Git does not match anything with an invalid pattern either
        if pattern.include is None or pattern.regex is None:
            continue
        # pathspec matches what is below a folder, too.
        regex = pattern.regex.pattern
        is_below = bare.endswith("/**") or regex == "."
        search = re.compile(regex if is_below else rf"(?:{regex})\Z", re.DOTALL).search
        found.append(IgnorePattern(search, pattern.include, only_folders))
    return found[::-1]


def strip_line(line: str) -> str:
    """Return a line without its end and without trailing spaces, unless these are escaped."""
    line = line.rstrip("\r\n")
    stripped = line.rstrip(" ")
    return stripped + " " if stripped.endswith("\\") and stripped != line else stripped


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules that hold in one folder.

    ``fingerprint`` is equal for equal rules: a decision about a file holds as long as it is equal.
    """

    extra: tuple[IgnoreFile, ...] = ()
    holdfast: tuple[IgnoreFile, ...] = ()
    git: tuple[IgnoreFile, ...] = ()
    """Innermost first."""
    fingerprint: str = ""

    @classmethod
    def create(cls, patterns: Sequence[str] = (), exclude: str = "") -> Self:
        """Return the rules of the root, from the caller's patterns and Git's exclude file."""
        text = "\n".join(patterns)
        return cls(
            (IgnoreFile("", parse_patterns(patterns)),) if patterns else (),
            (),
            (IgnoreFile("", parse_patterns(exclude.splitlines())),) if exclude else (),
            compute_fingerprint(text, exclude),
        )

    def enter(self, folder: str, gitignore: str | None, holdfastignore: str | None) -> IgnoreRules:
        """Return the rules inside a folder, given the text of its ignore files.

        ``folder`` ends with a slash, or is empty for the root.
        """
        if gitignore is None and holdfastignore is None:
            return self
        git, holdfast = self.git, self.holdfast
        if gitignore is not None:
            git = (IgnoreFile(folder, parse_patterns(gitignore.splitlines())), *git)
        if holdfastignore is not None:
            own = IgnoreFile(folder, parse_patterns(holdfastignore.splitlines()))
            holdfast = (own, *holdfast)
        fingerprint = compute_fingerprint(
            self.fingerprint, folder, repr(gitignore), repr(holdfastignore)
        )
        return IgnoreRules(self.extra, holdfast, git, fingerprint)

    def is_ignored(self, path: str, *, is_folder: bool = False) -> bool:
        """Return whether a path in this folder is ignored. Its parents are not checked."""
        for files in (self.extra, self.holdfast, self.git):
            for each in files:
                decision = each.decide(path, is_folder=is_folder)
                if decision is not None:
                    return decision
        return False


def compute_fingerprint(*texts: str) -> str:
    """Return a digest of some texts, which may be file contents that are not UTF-8."""
    return sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()


class IgnoreTree:
    """The rules of a whole folder that is not on disk, from the text of its ignore files."""

    def __init__(self, rules: IgnoreRules, texts: dict[str, str]) -> None:
        self._texts = texts
        """The text of each ignore file, by its path."""
        self._rules: dict[str, IgnoreRules | None] = {"": self._enter("", rules)}
        """The rules of each folder; None for one that is ignored."""

    def is_ignored(self, path: str) -> bool:
        """Return whether a file, or a folder that contains it, is ignored."""
        rules = self._find_rules(path[: path.rfind("/") + 1])
        return rules is None or rules.is_ignored(path)

    def _find_rules(self, folder: str) -> IgnoreRules | None:
        if folder in self._rules:
            return self._rules[folder]
        parent = self._find_rules(folder[: folder.rfind("/", 0, -1) + 1])
        rules = None
        if parent is not None and not parent.is_ignored(folder[:-1], is_folder=True):
            rules = self._enter(folder, parent)
        self._rules[folder] = rules
        return rules

    def _enter(self, folder: str, rules: IgnoreRules) -> IgnoreRules:
        texts = self._texts
        return rules.enter(
            folder, texts.get(folder + GITIGNORE), texts.get(folder + HOLDFASTIGNORE)
        )
