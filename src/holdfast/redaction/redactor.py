"""Documents without what must not leave: secrets, addresses, phone numbers, what a path names.

What is taken out of the state is taken out of the events that set it, and a text that was found
anywhere is taken out everywhere, so that it is nowhere in the document. The result is a document
like any other: its events lead to its state, and its digest and hash chain are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from holdfast.documents.document import Document, require_document
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
from holdfast.log.hash_chain import link_events
from holdfast.redaction.clean import Cleaner
from holdfast.redaction.detect import Detector
from holdfast.snapshots.keys import MAX_ID_LENGTH
from holdfast.snapshots.session_state import MESSAGES, SESSION, STATUS, STATUSES, message_key
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

REDACTIONS = "redactions"
EVENTS, DATA, TAGS = "events", "data", "tags"
EXTRA, STATE_EXTRA = "extra", "state_extra"
FIELD_PATHS: dict[str, tuple[str, ...]] = {EXTRA: (), STATE_EXTRA: ("state",)}

Entry: TypeAlias = tuple[str, str, Any]


class Redactor:
    """Takes out of documents what must not leave.

    ``patterns`` finds secrets, email addresses and phone numbers by how they look; ``secrets``,
    ``emails`` and ``phones`` switch single kinds off. ``region`` (``"DE"``) also finds phone
    numbers as they are dialled within it, ``entropy`` also whatever looks random, ids among it.
    ``cards``, ``ibans`` and ``ssns`` (of the United States) also find these numbers.
    ``paths`` name what else goes: ``values.customer.name``, ``messages[*].content``.
    """

    def __init__(
        self,
        patterns: bool = True,  # noqa: FBT001, FBT002 - said by name everywhere
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
    ) -> None:
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
        """Return the document without secrets; ``extra["redactions"]`` lists what was removed."""
        require_document(document, "Redactor.redact")
        cleaner = Cleaner(self._detector)
        parts = DocumentParts.of(document)
        parts = redact_paths(parts, self._paths, cleaner)
        while True:
            # What is taken out may leave something behind that only now looks like a secret.
            cleaner.collecting = True
            redact_findings(parts, cleaner)
            cleaner.collecting = False
            before = cleaner.counts.total()
            parts = redact_findings(parts, cleaner)
            if cleaner.counts.total() == before:
                return parts.document(document, cleaner)


def validate_redaction_path(path: JsonPath) -> None:
    """Refuse a path to what cannot be redacted."""
    root, rest = path.steps[0], path.steps[1:]
    if STATUS in (root, *rest[:1]) and root in (STATUS, SESSION):
        raise invalid_path_error(
            path.text, "the status of a session is one of a few words, and stays"
        )
    if root == EVENTS and (len(rest) < 2 or rest[1] != DATA):
        raise invalid_path_error(
            path.text, "of events the data can be named, as in events[*].data.prompt"
        )
    if root == TAGS and len(rest) != 1:
        raise invalid_path_error(path.text, "a tag is named as in tags.customer")


# ------------------------------------------------------------------------- a document in parts


@dataclass(frozen=True, slots=True)
class DocumentParts:
    """All of a document that may hold a secret, as plain data."""

    places: EntryPaths
    state: list[Entry]
    base: list[Entry] | None
    events: list[EventDraft]
    fields: dict[str, Any]

    @classmethod
    def of(cls, document: Document) -> DocumentParts:
        """The parts of a document."""
        events = [
            EventDraft(each.id, each.type, each.at, each.data, each.changes, each.extra)
            for each in document.events
        ]
        return cls(
            EntryPaths(document.snapshot),
            list(document.snapshot.items()),
            None if document.base is None else list(document.base.items()),
            events,
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
        first = original.events[0] if original.events else None
        events = link_events(self.events, first.seq - 1, first.prev) if first else []
        extra = {**self.fields[EXTRA]}
        extra[REDACTIONS] = list_redactions(extra.get(REDACTIONS), cleaner)
        return replace(
            original,
            **{**self.fields, EXTRA: extra},
            snapshot=freeze_entries(self.state),
            base=None if self.base is None else freeze_entries(self.base),
            events=tuple(events),
            position=Position(events[-1].seq, events[-1].hash) if events else None,
        )


def freeze_entries(entries: Iterable[Entry]) -> Snapshot:
    """A state of these entries."""
    store = Store(max_history=0)
    store.set_many(entries)
    return store.snapshot()


def list_redactions(earlier: Any, cleaner: Cleaner) -> list[Any]:
    """What was taken out, after what was before, without any of it."""
    found: list[Any] = []
    counts: dict[tuple[str, str], int] = {}
    for each in earlier if isinstance(earlier, list) else []:
        if isinstance(each, dict) and each.keys() == {"kind", "path", "count"}:
            counts[each["kind"], each["path"]] = each["count"]
        else:
            found.append(each)
    for (kind, path), count in list(cleaner.counts.items()):
        where = (kind, cleaner.text(path))
        counts[where] = counts.get(where, 0) + count
    return found + [
        {"kind": kind, "path": path, "count": count}
        for (kind, path), count in sorted(counts.items(), key=lambda item: item[0][::-1])
    ]


# ---------------------------------------------------------------------------------- by paths


def is_status(value: object) -> bool:
    """Whether a value is one of the few words that a status can be; a forged one is not."""
    return isinstance(value, str) and value in STATUSES


def redact_paths(
    parts: DocumentParts, paths: Sequence[JsonPath], cleaner: Cleaner
) -> DocumentParts:
    """A document without what paths name."""
    if not paths:
        return parts

    def entry(space: str, key: str, value: Any) -> Entry:
        if (space, key) == (SESSION, STATUS):
            return space, key, value
        for path, rest in parts.places.leading(paths, space, key):
            if space == MESSAGES and not rest and isinstance(value, dict):
                value = cleaner.named_message(value, path.text)
            else:
                value = transform_at(value, rest, partial(cleaner.named, path=path.text))
        return space, key, value

    events = []
    for at, each in enumerate(parts.events):
        data = each.data
        for path in paths:
            if path.steps[0] == EVENTS and step_matches(path.steps[1], at, len(parts.events)):
                data = transform_at(data, path.steps[3:], partial(cleaner.named, path=path.text))
        events.append(map_set_entries(replace(each, data=data), entry))
    tags = dict(parts.fields[TAGS])
    for path in paths:
        for name in [
            name for name in tags if path.steps[0] == TAGS and step_matches(path.steps[1], name)
        ]:
            tags[name] = cleaner.named(tags[name], path.text)
    return DocumentParts(
        parts.places,
        [entry(*each) for each in parts.state],
        None if parts.base is None else [entry(*each) for each in parts.base],
        events,
        {**parts.fields, TAGS: tags},
    )


def map_set_entries(event: EventDraft, entry: Callable[[str, str, Any], Entry]) -> EventDraft:
    """An event whose changes set other entries."""
    changes = event.changes
    return replace(
        event,
        changes={"set": [entry(*each) for each in changes["set"]], "delete": changes["delete"]},
    )


# ------------------------------------------------------------------------------- by patterns


def redact_findings(parts: DocumentParts, cleaner: Cleaner) -> DocumentParts:
    """A document without what the cleaner finds. Which entries are the same stays so."""
    order = renumber_messages(parts, cleaner)

    def names(space: str, key: str) -> tuple[str, str]:
        if space == MESSAGES:
            return space, order.get(key, key)
        return cleaner.key(space, ("namespaces",)), cleaner.key(
            key, parts.places.of(space, "*")[:-1]
        )

    def entry(space: str, key: str, value: Any) -> Entry:
        if (space, key) == (SESSION, STATUS) and is_status(value):
            return space, key, value
        new = names(space, key)
        place = parts.places.of(*((space, key) if space == MESSAGES else new))
        return *new, cleaner.value(value, place, None if space == MESSAGES else key)

    events = []
    for at, each in enumerate(parts.events):
        event = map_set_entries(each, entry)
        changes = event.changes
        events.append(
            replace(
                event,
                type=cleaner.text(each.type, (EVENTS, at, "type")),
                data=cleaner.value(each.data, (EVENTS, at, DATA)),
                changes={**changes, "delete": [names(*pair) for pair in changes["delete"]]},
                extra=cleaner.value(each.extra, (EVENTS, at)),
            )
        )
    return DocumentParts(
        parts.places,
        [entry(*each) for each in parts.state],
        None if parts.base is None else [entry(*each) for each in parts.base],
        events,
        redact_fields(parts.fields, cleaner),
    )


def redact_fields(fields: dict[str, Any], cleaner: Cleaner) -> dict[str, Any]:
    """What stands beside state and events. Ids stay ids of a length that they may have."""
    new = {}
    for name, value in fields.items():
        if name in ("agent_id", "session_id"):
            new[name] = cleaner.key(value, (name,))[:MAX_ID_LENGTH]
        else:
            new[name] = cleaner.value(value, FIELD_PATHS.get(name, (name,)))
    return new


def renumber_messages(parts: DocumentParts, cleaner: Cleaner) -> dict[str, str]:
    """New keys for all messages where one of them has a secret in it: numbers, in their order."""
    keys = {key for space, key, _ in [*parts.state, *(parts.base or ())] if space == MESSAGES}
    for event in parts.events:
        keys.update(key for space, key, _ in event.changes["set"] if space == MESSAGES)
        keys.update(key for space, key in event.changes["delete"] if space == MESSAGES)
    odd = [key for key in keys if not key.isdecimal()]
    if all(cleaner.key(key, (MESSAGES,)) == key for key in odd):
        return {}
    return {key: message_key(number) for number, key in enumerate(sorted(keys))}
