"""Texts that are taken out wherever they stand, once they are known to be secret.

A password that was found under its name is also looked for in what was said about it. So is what a
path names, where it is more than a common word: or else a customer who said "thanks" would take
every "thanks" out of a document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from holdfast.sessions.detection import Found
from holdfast.sessions.secret_names import is_placeholder
from holdfast.snapshots.session_state import STATUSES

HEAD = 6
SHORTEST = 4
LONG_WORD = 8
LONG_NUMBER = 6
PATH = "path"
COMMON = frozenset(
    (*STATUSES, "assistant", "developer", "function", "computer", "username", "postgres")
)


class KnownTexts:
    """The texts, found in others by how they begin and then compared as a whole."""

    def __init__(self) -> None:
        self.numbers: dict[str, str] = {}
        """The kinds of those that a number may be written as."""
        self._texts: dict[str, tuple[str, bool]] = {}
        self._heads: dict[str, list[str]] = {}
        self._regex: re.Pattern[str] | None = None

    def add(self, text: str, kind: str, *, distinct: bool) -> None:
        """Know a text. One that is not distinct counts only as whole words, if it counts at all."""
        plain = text.strip()
        if len(plain) < SHORTEST or not (distinct or is_telling(plain, kind)):
            return
        if plain.isdecimal():
            self.numbers[plain] = kind
        for form in {plain, *written_forms(plain)}:
            # What is known to be distinct stays so.
            if form not in self._texts or (distinct and not self._texts[form][1]):
                self._texts[form] = (kind, distinct)
                self._regex = None

    def find(self, text: str) -> Iterator[Found]:
        """Where the texts stand in another."""
        if not self._texts:
            return
        regex = self._regex or self._prepared()
        at = 0
        while hit := regex.search(text, at):
            start = hit.start()
            found = self._at(text, start)
            if found is not None:
                yield found
            at = start + 1 if found is None else found.end

    def _at(self, text: str, start: int) -> Found | None:
        for size in range(HEAD, SHORTEST - 1, -1):
            for whole in self._heads.get(text[start : start + size], ()):
                end = start + len(whole)
                kind, distinct = self._texts[whole]
                if text.startswith(whole, start) and (distinct or is_whole(text, start, end)):
                    return Found(start, end, kind, distinct)
        return None

    def _prepared(self) -> re.Pattern[str]:
        self._heads = {}
        for text in sorted(self._texts, key=len, reverse=True):
            self._heads.setdefault(text[:HEAD], []).append(text)
        self._regex = re.compile(pattern_of(self._heads))
        return self._regex


def is_telling(text: str, kind: str) -> bool:
    """Whether a text is more than a word that may well stand elsewhere for something else."""
    if is_placeholder(text) or text.lower() in COMMON:
        return False
    if text.isdecimal():
        return len(text) >= LONG_NUMBER
    if re.fullmatch(r"[a-z_]+", text):
        return kind != PATH and len(text) >= LONG_WORD
    return True


def is_whole(text: str, start: int, end: int) -> bool:
    """Whether what stands here is not a part of a longer word."""
    beside = text[max(0, start - 1) : start] + text[end : end + 1]
    return not any(char.isalnum() or char == "_" for char in beside)


def written_forms(text: str) -> Iterator[str]:
    """The same text as it stands in JSON, and in a URL."""
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield quote(text, safe="")


def pattern_of(heads: dict[str, list[str]]) -> str:
    """One pattern for many beginnings, as a tree: its cost does not grow with their number."""
    tree: dict[str, Any] = {}
    for head in heads:
        node = tree
        for char in head:
            node = node.setdefault(char, {})
        node[""] = {}
    return branch(tree)


def branch(tree: dict[str, Any]) -> str:
    """The pattern of a part of the tree; where a shorter one ends, no longer one is asked for."""
    if "" in tree:
        return ""
    choices = [re.escape(char) + branch(rest) for char, rest in sorted(tree.items())]
    return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"
