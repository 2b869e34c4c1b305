"""Remove secrets from values, keeping their types and structure.

In a value, each secret becomes ``[redacted: <kind>]``. Keys must stay different, so marks after the
first have a number: ``[redacted: email 2]``. The same secret has the same number in all keys of a
document.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from holdfast.documents.blobs import DocumentBlobs
from holdfast.documents.json_path import format_path, rebuild_registered
from holdfast.redaction.contents import DocumentContents
from holdfast.redaction.detect import Detector
from holdfast.redaction.findings import SECRET, Finding
from holdfast.redaction.known_texts import PATH, KnownTexts
from holdfast.redaction.secret_names import MARK, SECRET_WORD
from holdfast.values.lowering import registered_types
from holdfast.values.references import BLOB_SIZE, Attachment

FIELD_NAME = re.compile(r"[a-z_]+")
RANDOM_SAMPLE = "0f8e1d2c3b4a"
SMALLEST_NUMBER, LARGEST_NUMBER = 10**3, 10**100
KEPT_MESSAGE_FIELDS = ("role", "agent")
BINARY = "binary"
"""The kind of contents that are dropped because they cannot be searched."""


def format_mark(kind: str, number: int = 1) -> str:
    """Return the mark that replaces a secret."""
    return f"[redacted: {kind}]" if number == 1 else f"[redacted: {kind} {number}]"


class Cleaner:
    """Removes secrets from texts and values.

    While ``collecting``, it only records what is secret, and changes nothing.
    """

    def __init__(self, detector: Detector, contents: DocumentContents | None = None) -> None:
        self.contents = contents or DocumentContents(DocumentBlobs())
        self.dropped: set[str] = set()
        """The digests of attachments whose contents are dropped."""
        self.known = KnownTexts()
        self.counts: Counter[tuple[str, str]] = Counter()
        """The number of removals by kind and path."""
        self.collecting = True
        self._names = detector.names
        self._detect = detector.find
        self._found: dict[str, list[Finding]] = {}
        self._labels: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}
        """The last number used in the marks of each kind."""
        self._taken: set[str] = set()

    # --------------------------------------------------------------------------------- texts

    def clean_text(self, text: str, steps: tuple[object, ...] = (), name: str | None = None) -> str:
        """Return a text without secrets; ``name`` is the key of the value."""
        spans = self._spans(text, name)
        if not spans:
            return text
        for found in spans:
            self.counts[found.kind, format_path(steps)] += 1
        return replace_findings(text, spans, [format_mark(found.kind) for found in spans])

    def clean_key(self, text: str, steps: tuple[object, ...] = (), name: str | None = None) -> str:
        """Return a key, an id or an item of a set without secrets."""
        if self.collecting:
            self._taken.update(MARK.findall(text))
        spans = self._spans(text, name)
        if FIELD_NAME.fullmatch(text) and name is None:
            # A password that is a common word may also be the name of a field.
            spans = [found for found in spans if found.distinct]
        if not spans:
            return text
        labels = [self._label(found.kind, text[found.start : found.end]) for found in spans]
        for found in spans:
            self.counts[found.kind, format_path(steps)] += 1
        return replace_findings(text, spans, labels)

    def _label(self, kind: str, secret: str) -> str:
        if (kind, secret) not in self._labels:
            number = self._numbers.get(kind, 0) + 1
            while format_mark(kind, number) in self._taken:
                number += 1
            self._numbers[kind] = number
            self._labels[kind, secret] = format_mark(kind, number)
        return self._labels[kind, secret]

    def _spans(self, text: str, name: str | None) -> list[Finding]:
        """Return what to remove from a text, in order and without overlaps."""
        found = self._found.get(text)
        if found is None:
            found = self._found[text] = self._detect(text)
        if self._fits(name, text):
            found = [*found, Finding(0, len(text), SECRET, distinct=False)]
        if self.collecting:
            for each in found:
                self.known.add(text[each.start : each.end], each.kind, distinct=each.distinct)
            return []
        return merge_findings([*found, *self.known.find(text)], text)

    # -------------------------------------------------------------------------------- values

    def clean_value(
        self, value: Any, steps: tuple[object, ...] = (), name: str | None = None
    ) -> Any:
        """Return a value without secrets; ``name`` is its key."""
        if isinstance(value, str):
            return self.clean_text(value, steps, name)
        if isinstance(value, dict):
            return self._dict(value, steps, name)
        if isinstance(value, list | tuple):
            return type(value)(list(self._items(value, steps, name)))
        if isinstance(value, bytes):
            return self._bytes(value, steps, name)
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            return self._number(value, steps, name)
        if isinstance(value, UUID):
            return self._id(value, steps, name)
        if isinstance(value, set | frozenset):
            return type(value)([self._member(item, (*steps, "*"), name) for item in value])
        if isinstance(value, Attachment):
            return self._attachment(value, steps)
        if type(value) in registered_types:
            return rebuild_registered(value, lambda content: self.clean_value(content, steps, name))
        return value

    def _dict(self, value: dict[Any, Any], steps: tuple[object, ...], name: str | None) -> Any:
        cleaned = {}
        for key, item in value.items():
            new = self._member(key, steps)
            cleaned[new] = self.clean_value(item, (*steps, new), self._name_of(value, key, name))
        return cleaned

    def _items(
        self, items: Sequence[Any], steps: tuple[object, ...], name: str | None
    ) -> Iterator[Any]:
        """Yield the items of a list without secrets. An option is the name of the next item."""
        before: str | None = None
        for at, item in enumerate(items):
            text = as_text(item)
            own = name
            if before and text and self._names and self._names.tell_next(before, text, len(items)):
                own = before.lstrip("-")
            yield self.clean_value(item, (*steps, at), own)
            before = text

    def _name_of(self, holder: dict[Any, Any], key: object, outer: str | None) -> str | None:
        """Return the name that decides whether a field is secret: usually its key."""
        own = as_text(key)
        if own is None:
            return None
        if own == "value":
            # Settings are often listed as {"name": "API_KEY", "value": "…"}.
            other = holder.get("name", holder.get("key"))
            return other if isinstance(other, str) else outer or own
        if outer and self._names and not SECRET_WORD.search(own) and self._names.hold_many(outer):
            return outer
        return own

    def _member(self, key: Any, steps: tuple[object, ...], name: str | None = None) -> Any:
        """Return a key of a dict, or an item of a set, without secrets."""
        if isinstance(key, str):
            return self.clean_key(key, steps, name)
        if isinstance(key, bytes):
            return clean_bytes(key, lambda text: self.clean_key(text, steps, name))
        if isinstance(key, tuple | frozenset):
            return type(key)([self._member(item, steps, name) for item in key])
        if isinstance(key, UUID):
            kind = self._kind(str(key), own=self._fits(name, str(key)))
            if kind is not None:
                self.counts[kind, format_path(steps)] += 1
                return self._label(kind, repr(key))  # the same text may be another key
        return key

    def _bytes(self, value: bytes, steps: tuple[object, ...], name: str | None) -> bytes:
        if decode_text(value) is not None:
            return clean_bytes(value, lambda text: self.clean_text(text, steps, name))
        if self.collecting:
            return value
        if not self._fits(name, RANDOM_SAMPLE):
            if len(value) < BLOB_SIZE:
                return value
            if not self.contents.drop_binary:
                digest = hashlib.sha256(value).hexdigest()
                self.contents.note(format_path(steps), digest, len(value))
                return value
            self.counts[BINARY, format_path(steps)] += 1
            return format_mark(BINARY).encode()
        self.counts[SECRET, format_path(steps)] += 1
        return format_mark(SECRET).encode()

    def _attachment(self, value: Attachment, steps: tuple[object, ...]) -> Attachment:
        """Return an attachment with its name and its content without secrets."""
        name = None if value.name is None else self.clean_text(value.name, steps)
        digest, size = self._content(value.digest, value.size, steps, value.media_type, name)
        return Attachment(digest, size, value.media_type, name)

    def clean_file(self, file: dict[str, Any], steps: tuple[object, ...]) -> dict[str, Any]:
        """Return an entry of a workspace with the content of its file without secrets."""
        digest, size = self._content(file["digest"], file["size"], steps)
        return {**file, "digest": digest, "size": size}

    def _content(
        self,
        digest: str,
        size: int,
        steps: tuple[object, ...],
        media_type: str | None = None,
        name: str | None = None,
    ) -> tuple[str, int]:
        """Return the digest and the size of a content without secrets."""
        text = self.contents.read_text(digest, media_type)
        if text is not None:
            new = self.clean_text(text, steps)
            return (digest, size) if new == text else self.contents.replace_text(digest, new)
        if self.contents.has(digest) and not self.collecting:
            path = format_path(steps)
            if not self.contents.drop_binary:
                self.contents.note(path, digest, size, media_type=media_type, name=name)
            elif digest not in self.dropped:
                self.dropped.add(digest)
                self.counts[BINARY, path] += 1
        return digest, size

    def _number(self, value: float | Decimal, steps: tuple[object, ...], name: str | None) -> Any:
        if isinstance(value, Decimal) and not value.is_finite():
            return value
        size = value.copy_abs() if isinstance(value, Decimal) else abs(value)
        if not SMALLEST_NUMBER <= size < LARGEST_NUMBER:
            return value
        own = name is not None and self._names is not None and self._names.fit_number(name)
        return self._whole(value, steps, own=own)

    def _id(self, value: UUID, steps: tuple[object, ...], name: str | None) -> Any:
        return self._whole(value, steps, own=self._fits(name, str(value)))

    def _whole(self, value: object, steps: tuple[object, ...], *, own: bool) -> Any:
        kind = self._kind(str(value), own=own)
        if kind is None:
            return value
        self.counts[kind, format_path(steps)] += 1
        return format_mark(kind)

    def _kind(self, text: str, *, own: bool) -> str | None:
        """Return the kind of a number or an id: secret by its ``own`` name, or a known text."""
        if not self.collecting:
            return SECRET if own else self.known.kinds.get(text)
        if own:
            self.known.add(text, SECRET, distinct=False)
        return None

    def _fits(self, name: str | None, text: str) -> bool:
        return name is not None and self._names is not None and self._names.fit(name, text)

    # --------------------------------------------------------------------------------- paths

    def replace_value(self, value: Any, path: str) -> Any:
        """Return the mark for a value that a path leads to, and remove its texts everywhere."""
        new: Any = format_mark(PATH).encode() if isinstance(value, bytes) else format_mark(PATH)
        if new == value:
            return value
        self.add_known_texts(value)
        self.counts[PATH, path] += 1
        return new

    def replace_message(self, message: dict[Any, Any], path: str) -> dict[Any, Any]:
        """Return a message with its content replaced; role and agent stay."""
        kept = {name: message[name] for name in KEPT_MESSAGE_FIELDS if name in message}
        new = {**kept, "content": format_mark(PATH)}
        if new == message:
            return message
        self.add_known_texts({name: item for name, item in message.items() if name not in kept})
        self.counts[PATH, path] += 1
        return new

    def add_known_texts(self, value: Any) -> None:
        """Add the texts in a value to those that are removed everywhere."""
        for text in iter_texts(value):
            self.known.add(text, PATH, distinct=False)


def merge_findings(found: Iterable[Finding], text: str) -> list[Finding]:
    """Return findings in order, with overlapping ones merged, and without existing marks."""
    marks = [match.span() for match in MARK.finditer(text)] if "[redacted: " in text else []
    spans = [part for each in found for part in exclude_marks(each, marks)]
    spans.sort(key=lambda each: (each.start, -each.end, each.kind == SECRET))
    whole: list[Finding] = []
    for each in spans:
        if not whole or each.start >= whole[-1].end:
            whole.append(each)
            continue
        last = whole[-1]
        longer = each if each.end - each.start > last.end - last.start else last
        end, distinct = max(last.end, each.end), last.distinct or each.distinct
        whole[-1] = Finding(last.start, end, longer.kind, distinct)
    return whole


def exclude_marks(found: Finding, marks: list[tuple[int, int]]) -> Iterator[Finding]:
    """Yield the part of a finding that is not an existing mark, if any."""
    start, end = found.start, found.end
    at = bisect_right(marks, (start, len(marks) and marks[-1][1]))
    if at and start < marks[at - 1][1]:
        start = marks[at - 1][1]
    at = bisect_left(marks, (end, 0))
    if at and end <= marks[at - 1][1]:
        end = marks[at - 1][0]
    if start < end:
        yield Finding(start, end, found.kind, found.distinct)


def replace_findings(text: str, spans: list[Finding], new: list[str]) -> str:
    """Return a text with each finding replaced."""
    parts, at = [], 0
    for found, instead in zip(spans, new, strict=True):
        parts += [text[at : found.start], instead]
        at = found.end
    return "".join([*parts, text[at:]])


def decode_text(value: bytes) -> str | None:
    """Decode bytes that are UTF-8 text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def as_text(value: object) -> str | None:
    """Return a value that is a text or UTF-8 bytes as a text."""
    if isinstance(value, bytes):
        return decode_text(value)
    return value if isinstance(value, str) else None


def clean_bytes(value: bytes, clean: Any) -> bytes:
    """Apply a function on texts to bytes, if they are UTF-8 text."""
    text = decode_text(value)
    return value if text is None else clean(text).encode()


def iter_texts(value: Any) -> Iterator[str]:
    """Yield every text inside a value, and numbers and ids as texts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        if (text := decode_text(value)) is not None:
            yield text
    elif isinstance(value, dict):
        for item in value.values():
            yield from iter_texts(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from iter_texts(item)
    elif isinstance(value, UUID) or (type(value) is int and abs(value) < LARGEST_NUMBER):
        yield str(value)
    elif type(value) in registered_types:
        yield from iter_texts(registered_types[type(value)][1](value))
