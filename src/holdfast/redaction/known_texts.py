"""Texts that are known to be secret, and are removed wherever they occur.

A password that was found under its name is also removed from messages that repeat it. So is a text
that a path leads to, unless it is a common word: otherwise redacting the message "thanks" would
remove every "thanks" from a document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, unquote

from holdfast.redaction.detect import MAX_ESCAPE, blank_escapes
from holdfast.redaction.findings import Finding
from holdfast.redaction.secret_names import is_placeholder
from holdfast.snapshots.session_state import STATUSES

HEAD = 6
SHORTEST = 4
LONG_WORD = 8
LONG_NUMBER = 6
LONG_TEXT = 200
LONG_HEAD = 64
"""Texts longer than this are looked up by this many first characters."""
LONGEST, MAX_ALIKE = 4096, 16
"""Texts longer than LONGEST are compared one by one, at most MAX_ALIKE with the same start."""
JSON_IN_JSON = 3
UNICODE_ESCAPE = re.compile(r"\\u[0-9a-f]{4}")
PERCENT_ESCAPE = re.compile(r"%[0-9A-F]{2}")
UNRESERVED_ESCAPE = re.compile(r"%2[1789A]")  # !'()*
PATH = "path"
COMMON = frozenset(
    (*STATUSES, "assistant", "developer", "function", "computer", "username", "postgres")
)


class KnownTexts:
    """A set of texts that can be found in other texts, by their first characters."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        """The kind of each text, also for numbers and ids."""
        self._added: set[tuple[str, bool]] = set()
        self._texts: dict[str, tuple[str, bool]] = {}
        self._longest: dict[str, list[str]] = {}
        self._lengths: dict[str, list[int]] = {}
        self._regex: re.Pattern[str] | None = None

    def add(self, text: str, kind: str, *, distinct: bool) -> None:
        """Add a text. Unless distinct, it matches only whole words, and not if it is common."""
        plain = text.strip()
        if len(plain) < SHORTEST or (plain, distinct) in self._added:
            return
        if not (distinct or is_distinctive(plain, kind)):
            return
        self._added.add((plain, distinct))
        self.kinds[plain] = kind
        for form in list_encoded_forms(plain):
            if form not in self._texts or (distinct and not self._texts[form][1]):
                self._texts[form] = (kind, distinct)
                self._regex = None

    def find(self, text: str) -> Iterator[Finding]:
        """Find the known texts in another text."""
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

    def _at(self, text: str, start: int) -> Finding | None:
        for size in (LONG_HEAD, *range(HEAD, SHORTEST - 1, -1)):
            for whole in self._standing(text, start, text[start : start + size]):
                end = start + len(whole)
                kind, distinct = self._texts[whole]
                if distinct or is_whole_word(text, start, end):
                    return Finding(start, end, kind, distinct)
        return None

    def _standing(self, text: str, start: int, head: str) -> Iterator[str]:
        """Yield the known texts with this head that occur at a position, the longest first.

        They are looked up once per length, and there are few lengths per head, so the cost per
        position does not grow with the number of known texts.
        """
        for whole in self._longest.get(head, ()):
            if text.startswith(whole, start):
                yield whole
        for length in self._lengths.get(head, ()):
            whole = text[start : start + length]
            if whole in self._texts:
                yield whole

    def _prepared(self) -> re.Pattern[str]:
        self._longest, self._lengths = {}, {}
        for text in sorted(self._texts, key=len, reverse=True):
            head = text[: LONG_HEAD if len(text) > LONG_HEAD else HEAD]
            if len(text) > LONGEST:
                alike = self._longest.setdefault(head, [])
                if len(alike) < MAX_ALIKE:
                    alike.append(text)
                continue
            lengths = self._lengths.setdefault(head, [])
            if len(text) not in lengths[-1:] and len(lengths) < LONG_HEAD:
                lengths.append(len(text))
        heads = {head[:HEAD] for head in (*self._longest, *self._lengths)}
        self._regex = re.compile(make_prefix_pattern(heads))
        return self._regex


def is_distinctive(text: str, kind: str) -> bool:
    """Return whether a text is more than a common word or a short number."""
    if is_placeholder(text) or text.lower() in COMMON:
        return False
    if text.isdecimal():
        return len(text) >= LONG_NUMBER
    if re.fullmatch(r"[a-z_]+", text):
        return kind != PATH and len(text) >= LONG_WORD
    return True


def is_whole_word(text: str, start: int, end: int) -> bool:
    """Return whether a part of a text is not part of a longer word."""
    before = blank_escapes(text[max(0, start - MAX_ESCAPE) : start])
    beside = before[-1:] + text[end : end + 1]
    return not any(char.isalnum() or char == "_" for char in beside)


def list_encoded_forms(text: str) -> set[str]:
    """Return a text as it is, in JSON, in nested JSON, and in URLs.

    A long text has fewer forms, since each takes as much memory as the text.
    """
    if text.isascii() and text.isalnum():
        return {text}
    url = quote(text, safe="")
    # The forms of quote(), urlencode() and JavaScript's encodeURIComponent().
    urls = {
        url,
        url.replace("%2F", "/"),
        url.replace("%20", "+"),
        UNRESERVED_ESCAPE.sub(lambda escape: unquote(escape[0]), url),
    }
    if len(text) > LONG_TEXT:
        return {text, *urls, *list_json_forms({text})}
    urls |= {PERCENT_ESCAPE.sub(lambda escape: escape[0].lower(), form) for form in urls}
    forms = list_json_forms({text}) | list_json_forms({text}, slash="\\/")
    forms |= list_json_forms({form.replace("/", "\\/") for form in list_json_forms({text}, 1)}, 2)
    upper = {
        UNICODE_ESCAPE.sub(lambda escape: "\\u" + escape[0][2:].upper(), form) for form in forms
    }
    return {text, *urls, *forms, *upper}


def list_json_forms(texts: set[str], depth: int = JSON_IN_JSON, slash: str = "/") -> set[str]:
    """Return texts as JSON strings, nested up to a depth."""
    found: set[str] = set()
    for _ in range(depth):
        texts = {
            json.dumps(text, ensure_ascii=ascii_only)[1:-1].replace("/", slash)
            for text in texts
            for ascii_only in (True, False)
        }
        found |= texts
    return found


def make_prefix_pattern(heads: Iterable[str]) -> str:
    """Return one pattern for many prefixes, as a tree: its cost does not grow with their number."""
    tree: dict[str, Any] = {}
    for head in heads:
        node = tree
        for char in head:
            node = node.setdefault(char, {})
        node[""] = {}
    return make_branch_pattern(tree)


def make_branch_pattern(tree: dict[str, Any]) -> str:
    """Return the pattern of a subtree. A shorter prefix makes longer ones redundant."""
    if "" in tree:
        return ""
    choices = [re.escape(char) + make_branch_pattern(rest) for char, rest in sorted(tree.items())]
    return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"
