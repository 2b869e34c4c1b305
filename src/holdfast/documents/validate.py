"""Whether a document is what was written: its digest, and that its events lead to its state.

A chain of hashes tells of a change in any event. The digest covers all else, and whoever removes it
or computes another is still told where the events contradict the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.documents.encode import DIGEST, compute_digest
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

REMEDY = "get another copy; if it was changed on purpose, read it with allow_modified"


def validate_digest(tree: Mapping[str, Any]) -> None:
    """Refuse a document that does not match its digest, or has events and no digest.

    One without events may lack it, as one that was written by hand does.

    Raises:
        InvalidDocumentError: It was changed after it was written.

    """
    digest = tree.get(DIGEST)
    if digest is None:
        if tree.get("events"):
            raise InvalidDocumentError(
                "the document has events but no digest: it was changed after it was written, or "
                f"written by hand; {REMEDY}"
            )
        return
    try:
        expected = compute_digest(tree)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidDocumentError(
            f"the document has no digest, as it is not JSON data: {error!s:.400}"
        ) from error
    if digest != expected:
        raise InvalidDocumentError(
            f"the document does not match its digest {short_repr(digest)}: it was changed or damaged "
            f"after it was written; {REMEDY}"
        )


def validate_fold(events: Sequence[Event], base: Snapshot | None, state: Snapshot) -> None:
    """Refuse events that do not lead from the state before them to the document's state.

    Raises:
        InvalidDocumentError: They contradict each other.

    """
    if not events:
        return
    if events[0].seq != 1 and base is None:
        raise InvalidDocumentError(
            f"the document's events begin at {events[0].seq}, and it has no state from before them "
            f"(base); {REMEDY}"
        )
    store = Store(max_history=0)
    if base is not None:
        store.restore(base)
    fold_changes(store, (event.changes for event in events))
    found = state.diff(store.snapshot())
    problems = (
        *((pair, "is in the state, and no event set it") for pair in found["added"]),
        *((pair, "was set by its events and is not in the state") for pair in found["removed"]),
        *((pair, "has another value in the state") for pair in found["changed"]),
    )
    if problems:
        (space, key), problem = problems[0]
        raise InvalidDocumentError(
            "the document's events do not lead to its state: the entry "
            f"({short_repr(space)}, {short_repr(key)}) {problem}, and {len(problems) - 1:,} more differ; "
            f"{REMEDY}"
        )
