"""Remove secrets and personal data from documents: by pattern, and by path.

A secret is removed from the state and from the events that set it, and a text that was found
anywhere is removed everywhere. The result is an ordinary document: its events lead to its state,
and its digest and hash chain are recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from holdfast.documents.document import Document, link_document, require_document
from holdfast.documents.export import bind_document, find_referred
from holdfast.documents.json_path import (
    ROOTS,
    EntryPaths,
    JsonPath,
    invalid_path_error,
    parse_paths,
    step_matches,
    transform_at,
)
from holdfast.log.event import EventDraft
from holdfast.log.event_log import Position
from holdfast.redaction.clean import Cleaner
from holdfast.redaction.contents import DocumentContents
from holdfast.redaction.detect import Detector
from holdfast.snapshots.keys import MAX_ID_LENGTH
from holdfast.snapshots.session_state import MESSAGES, SESSION, STATUS, STATUSES, message_key
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.values.references import FILES, find_file, keep_references

REDACTIONS = "redactions"
NOT_SEARCHED = "not_searched"
EVENTS, DATA, TAGS = "events", "data", "tags"
EXTRA, STATE_EXTRA = "extra", "state_extra"
FIELD_PATHS: dict[str, tuple[str, ...]] = {EXTRA: (), STATE_EXTRA: ("state",)}

Entry: TypeAlias = tuple[str, str, Any]


class Redactor:
    """Removes secrets and personal data from documents.

    Args:
        patterns: Find secrets, email addresses and phone numbers by their form.
        paths: What else to remove: ``values.customer.name``, ``messages[*].content``.
        secrets: Set to False to keep secrets.
        emails: Set to False to keep email addresses.
        phones: Set to False to keep phone numbers.
        entropy: Also find words that look random; ids do, too.
        region: Also find phone numbers in the national format of this region, such as ``"DE"``.
        cards: Also find card numbers.
        ibans: Also find IBANs.
        ssns: Also find social security numbers of the United States.
        drop_binary: Drop attachments and large bytes that are not text, which are not searched.
            Without it, ``extra["not_searched"]`` of the document lists them.

    Raises:
        ValueError: A path or the region is invalid.
        MissingExtraError: The extra ``redaction`` is not installed, which patterns need.

    """

    def __init__(
        self,
        patterns: bool = True,  # noqa: FBT001, FBT002 - passed by name
        paths: Iterable[str] = (),
        *,
        secrets: bool = True,
        emails: bool = True,
        phones: bool = True,
        entropy: bool = False,
        region: str | None = None,
        cards: bool = False,
        ibans: bool = False,
        ssns: bool = False,
        drop_binary: bool = False,
    ) -> None:
        self._drop_binary = drop_binary
        self._paths = parse_paths(paths, (*ROOTS, EVENTS, TAGS))
        for path in self._paths:
            validate_redaction_path(path)
        self._detector = Detector(
            secrets=patterns and secrets,
            emails=patterns and emails,
            phones=patterns and phones,
            entropy=entropy,
            region=region,
            cards=cards,
            ibans=ibans,
            ssns=ssns,
        )

    def redact(self, document: Document) -> Document:
        """Return the document without secrets; ``extra["redactions"]`` lists what was removed.

        Large texts, and attachments that are text, are searched too, and get a new digest.
        ``extra["not_searched"]`` lists attachments and large bytes that are not text.
        """
        require_document(document, "Redactor.redact")
        contents = DocumentContents(document.blobs, drop_binary=self._drop_binary)
        cleaner = Cleaner(self._detector, contents)
        parts = DocumentParts.of(document, contents)
        parts = redact_paths(parts, self._paths, cleaner)
        while True:
            # A removal may leave text behind that only now looks like a secret.
            cleaner.collecting = True
            redact_findings(parts, cleaner)
            cleaner.collecting = False
            before = cleaner.counts.total()
            parts = redact_findings(parts, cleaner)
            if cleaner.counts.total() == before:
                return parts.document(document, cleaner)


def validate_redaction_path(path: JsonPath) -> None:
    """Reject a path to something that cannot be redacted."""
    root, rest = path.steps[0], path.steps[1:]
    if STATUS in (root, *rest[:1]) and root in (STATUS, SESSION):
        raise invalid_path_error(path.text, "the status cannot be redacted")
    if root == EVENTS and (len(rest) < 2 or rest[1] != DATA):
        raise invalid_path_error(
            path.text, "only the data of events can be redacted, such as events[*].data.prompt"
        )
    if root == TAGS and len(rest) != 1:
        raise invalid_path_error(path.text, "must name one tag, such as tags.customer")


# ------------------------------------------------------------------------------ document parts


@dataclass(frozen=True, slots=True)
class DocumentParts:
    """Everything in a document that may hold a secret, as plain data."""

    entry_paths: EntryPaths
    state: list[Entry]
    base: list[Entry] | None
    events: list[EventDraft]
    fields: dict[str, Any]

    @classmethod
    def of(cls, document: Document, contents: DocumentContents) -> DocumentParts:
        """Return the parts of a document, with its large values."""

        def entry(namespace: str, key: str, value: Any) -> Entry:
            return namespace, key, contents.restore(value)

        with keep_references():
            state = list(document.snapshot.items())
            base = None if document.base is None else list(document.base.items())
            events = [
                EventDraft(each.id, each.type, each.at, each.data, each.changes, each.extra)
                for each in document.events
            ]
        return cls(
            EntryPaths(document.snapshot),
            [entry(*each) for each in state],
            None if base is None else [entry(*each) for each in base],
            [
                map_set_entries(replace(each, data=contents.restore(each.data)), entry)
                for each in events
            ],
            {
                "agent_id": document.agent_id,
                "session_id": document.session_id,
                "source_environment": document.source_environment,
                TAGS: document.tags,
                EXTRA: document.without_signatures().extra,
                STATE_EXTRA: document.state_extra,
            },
        )

    def document(self, original: Document, cleaner: Cleaner) -> Document:
        """Return the original document with these parts."""
        after = Position()
        with keep_references():
            if original.events:
                first = original.events[0]
                after = Position(first.seq - 1, first.prev)
        extra = {**self.fields[EXTRA]}
        extra[REDACTIONS] = list_redactions(extra.get(REDACTIONS), cleaner)
        extra.pop(NOT_SEARCHED, None)
        if left := cleaner.contents.not_searched:
            extra[NOT_SEARCHED] = sorted(left.values(), key=lambda each: str(each["path"]))
        linked = link_document(
            freeze_entries(self.state),
            self.events,
            after,
            base=None if self.base is None else freeze_entries(self.base),
            agent_id=original.agent_id,
            session_id=original.session_id,
        )
        # Only what is still referred to: the original contents have the secrets.
        blobs = cleaner.contents.select(self.find_sizes(linked), cleaner.dropped)
        linked = bind_document(linked, blobs | linked.blobs.entries)
        position = None
        if linked.events:
            with keep_references():
                position = Position(linked.events[-1].seq, linked.events[-1].hash)
        return replace(
            original,
            **{**self.fields, EXTRA: extra},
            snapshot=linked.snapshot,
            base=linked.base,
            events=linked.events,
            blobs=linked.blobs,
            position=position,
        )

    def find_sizes(self, document: Document) -> dict[str, int]:
        """Return the sizes of the blobs that the new document refers to, by digest."""
        sizes, _ = find_referred(document)
        entries = [*self.state, *(self.base or ())]
        entries += [entry for event in self.events for entry in event.changes["set"]]
        files = [find_file(value) for namespace, _, value in entries if namespace == FILES]
        return {**sizes, **dict(file for file in files if file is not None)}


def freeze_entries(entries: Iterable[Entry]) -> Snapshot:
    """Return a state with these entries."""
    store = Store(max_history=0)
    store.set_many(entries)
    return store.snapshot()


def list_redactions(earlier: Any, cleaner: Cleaner) -> list[Any]:
    """Return how often each kind was removed at each path, with earlier redactions added."""
    found: list[Any] = []
    counts: dict[tuple[str, str], int] = {}
    for each in earlier if isinstance(earlier, list) else []:
        if isinstance(each, dict) and each.keys() == {"kind", "path", "count"}:
            counts[each["kind"], each["path"]] = each["count"]
        else:
            found.append(each)
    for (kind, path), count in list(cleaner.counts.items()):
        where = (kind, cleaner.clean_text(path))
        counts[where] = counts.get(where, 0) + count
    return found + [
        {"kind": kind, "path": path, "count": count}
        for (kind, path), count in sorted(counts.items(), key=lambda item: item[0][::-1])
    ]


# ---------------------------------------------------------------------------------- by paths


def is_status(value: object) -> bool:
    """Return whether a value is a valid status, which is never a secret."""
    return isinstance(value, str) and value in STATUSES


def redact_paths(
    parts: DocumentParts, paths: Sequence[JsonPath], cleaner: Cleaner
) -> DocumentParts:
    """Return the parts without the values that paths lead to."""
    if not paths:
        return parts

    def entry(namespace: str, key: str, value: Any) -> Entry:
        if (namespace, key) == (SESSION, STATUS):
            return namespace, key, value
        for path, rest in parts.entry_paths.matching(paths, namespace, key):
            if namespace == MESSAGES and not rest and isinstance(value, dict):
                value = cleaner.replace_message(value, path.text)
            else:
                value = transform_at(value, rest, partial(cleaner.replace_value, path=path.text))
        return namespace, key, value

    events = []
    for at, each in enumerate(parts.events):
        data = each.data
        for path in paths:
            if path.steps[0] == EVENTS and step_matches(path.steps[1], at, len(parts.events)):
                data = transform_at(
                    data, path.steps[3:], partial(cleaner.replace_value, path=path.text)
                )
        events.append(map_set_entries(replace(each, data=data), entry))
    tags = dict(parts.fields[TAGS])
    for path in paths:
        for name in [
            name for name in tags if path.steps[0] == TAGS and step_matches(path.steps[1], name)
        ]:
            tags[name] = cleaner.replace_value(tags[name], path.text)
    return DocumentParts(
        parts.entry_paths,
        [entry(*each) for each in parts.state],
        None if parts.base is None else [entry(*each) for each in parts.base],
        events,
        {**parts.fields, TAGS: tags},
    )


def map_set_entries(event: EventDraft, entry: Callable[[str, str, Any], Entry]) -> EventDraft:
    """Return an event with a function applied to the entries that it sets."""
    changes = event.changes
    return replace(
        event,
        changes={"set": [entry(*each) for each in changes["set"]], "delete": changes["delete"]},
    )


# ------------------------------------------------------------------------------- by patterns


def redact_findings(parts: DocumentParts, cleaner: Cleaner) -> DocumentParts:
    """Return the parts without what the cleaner finds; different entries stay different."""
    order = renumber_message_keys(parts, cleaner)

    def names(namespace: str, key: str) -> tuple[str, str]:
        if namespace == MESSAGES:
            return namespace, order.get(key, key)
        return cleaner.clean_key(namespace, ("namespaces",)), cleaner.clean_key(
            key, parts.entry_paths.steps_to(namespace, "*")[:-1]
        )

    def entry(namespace: str, key: str, value: Any) -> Entry:
        if (namespace, key) == (SESSION, STATUS) and is_status(value):
            return namespace, key, value
        new = names(namespace, key)
        if namespace == FILES and find_file(value) is not None:
            return *new, cleaner.clean_file(value, parts.entry_paths.steps_to(*new))
        steps = parts.entry_paths.steps_to(*((namespace, key) if namespace == MESSAGES else new))
        return *new, cleaner.clean_value(value, steps, None if namespace == MESSAGES else key)

    events = []
    for at, each in enumerate(parts.events):
        event = map_set_entries(each, entry)
        changes = event.changes
        events.append(
            replace(
                event,
                type=cleaner.clean_text(each.type, (EVENTS, at, "type")),
                data=cleaner.clean_value(each.data, (EVENTS, at, DATA)),
                changes={**changes, "delete": [names(*pair) for pair in changes["delete"]]},
                extra=cleaner.clean_value(each.extra, (EVENTS, at)),
            )
        )
    return DocumentParts(
        parts.entry_paths,
        [entry(*each) for each in parts.state],
        None if parts.base is None else [entry(*each) for each in parts.base],
        events,
        redact_fields(parts.fields, cleaner),
    )


def redact_fields(fields: dict[str, Any], cleaner: Cleaner) -> dict[str, Any]:
    """Return the other fields without what the cleaner finds. Ids keep a valid length."""
    new = {}
    for name, value in fields.items():
        if name in ("agent_id", "session_id"):
            new[name] = cleaner.clean_key(value, (name,))[:MAX_ID_LENGTH]
        else:
            new[name] = cleaner.clean_value(value, FIELD_PATHS.get(name, (name,)))
    return new


def renumber_message_keys(parts: DocumentParts, cleaner: Cleaner) -> dict[str, str]:
    """Return new, numbered keys for all messages if the key of one of them has a secret."""
    keys = {
        key for namespace, key, _ in [*parts.state, *(parts.base or ())] if namespace == MESSAGES
    }
    for event in parts.events:
        keys.update(key for namespace, key, _ in event.changes["set"] if namespace == MESSAGES)
        keys.update(key for namespace, key in event.changes["delete"] if namespace == MESSAGES)
    odd = [key for key in keys if not key.isdecimal()]
    if all(cleaner.clean_key(key, (MESSAGES,)) == key for key in odd):
        return {}
    return {key: message_key(number) for number, key in enumerate(sorted(keys))}
