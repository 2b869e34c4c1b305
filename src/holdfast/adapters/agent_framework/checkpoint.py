"""A checkpoint as entries of the session's state: what a new one changes, and how it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent_framework import WorkflowCheckpoint, WorkflowEvent, WorkflowMessage

from holdfast.adapters.agent_framework.codec import ITEMS, Codec
from holdfast.adapters.agent_framework.layout import (
    CHECKPOINT,
    EXECUTOR_STATE,
    REQUESTS,
    ROOT,
    VALUES,
    WORKFLOW_MESSAGES,
    executor_space,
    get_header,
    is_own_space,
    quote_name,
)
from holdfast.errors import HoldfastError, IntegrityError, UnsupportedValueError, short_repr
from holdfast.sessions.run_status import COMPLETED, RUNNING, WAITING
from holdfast.snapshots.session_state import SESSION, STATE, STATUS, message_key
from holdfast.state.diff import Changes, Pair
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store, get_encoded
from holdfast.values.json_encoding import EncodedValue, encode_value

Entries = dict[Pair, EncodedValue]

PLAIN_FIELDS = (
    "graph_signature_hash",
    "previous_checkpoint_id",
    "iteration_count",
    "metadata",
    "version",
)


class CheckpointEntries:
    """The entries of a checkpoint, which share nothing with its objects.

    Raises:
        UnsupportedValueError: A value cannot be stored; the error has its path.

    """

    def __init__(self, codec: Codec, checkpoint: WorkflowCheckpoint) -> None:
        self._codec = codec
        self.entries: Entries = {}
        self.header: dict[str, Any] = {
            "id": checkpoint.checkpoint_id,
            "workflow": checkpoint.workflow_name,
            "timestamp": checkpoint.timestamp,
            "fields": {
                name: codec.encode(getattr(checkpoint, name), f"$.{name}").tree
                for name in PLAIN_FIELDS
            },
            "state": list(checkpoint.state),
            "messages": list(checkpoint.messages),
            "requests": list(checkpoint.pending_request_info_events),
        }
        for key, value in checkpoint.state.items():
            path = f"$.state.{key}"
            if not isinstance(key, str):
                raise UnsupportedValueError(
                    f"keys of a workflow's state must be str, got {short_repr(key)}, at {path}",
                    path,
                )
            if key == EXECUTOR_STATE and is_dict_of_dicts(value):
                self.header["executors"] = {each: list(state) for each, state in value.items()}
                for each, state in value.items():
                    for name, item in state.items():
                        self._add(executor_space(each), name, item, f"{path}.{each}.{name}")
            else:
                self._add(VALUES if key.startswith("_") else STATE, key, value, path)
        for source, messages in checkpoint.messages.items():
            self._add(WORKFLOW_MESSAGES, source, list(messages), f"$.messages.{source}")
        for request_id, event in checkpoint.pending_request_info_events.items():
            path = f"$.pending_request_info_events.{request_id}"
            self._add(REQUESTS, request_id, event, path)
        self.status = choose_status(checkpoint)

    def _add(self, space: str, key: str, value: Any, path: str) -> None:
        # Messages in transit are new in each checkpoint, in any case.
        lists = None
        if space != WORKFLOW_MESSAGES:
            lists = f"{space.removeprefix(f'{ROOT}/')}/{quote_name(key)}"
        encoded = self._codec.encode(value, path, lists)
        self.entries[space, key] = encode_at(encoded.tree, path)
        for name, items in encoded.lists.items():
            for number, item in enumerate(items):
                entry = encode_at(item, f"{path}[{number}]")
                self.entries[ITEMS + name, message_key(number)] = entry

    def find_changes(self, store: Store, before: Mapping[str, Any] | None) -> Changes:
        """Return the changes from the checkpoint in a store to this one.

        ``before`` is the header of the one in the store. ``header`` is to be complete.
        """
        entries = {**self.entries, (ROOT, CHECKPOINT): encode_at(self.header, "$")}
        changed: list[tuple[str, str, Any]] = [
            (space, key, value)
            for (space, key), value in entries.items()
            if get_encoded(store, space, key) != value.data
        ]
        if store.get(SESSION, STATUS) != self.status:
            changed.append((SESSION, STATUS, self.status))
        gone = [pair for pair in list_entries(store, before) if pair not in entries]
        return {"set": changed, "delete": sorted(gone)}


def list_entries(store: Store, header: Mapping[str, Any] | None) -> Iterable[Pair]:
    """Yield the entries of the checkpoint in a store; values that the user added are not its."""
    for space in store.namespaces():
        if is_own_space(space):
            yield from ((space, key) for key in store.keys(space))
    for key in header["state"] if header is not None else ():
        if isinstance(key, str) and not key.startswith("_") and store.contains(STATE, key):
            yield STATE, key


def choose_status(checkpoint: WorkflowCheckpoint) -> str:
    """Return the status of a session after a checkpoint."""
    if checkpoint.messages:
        return RUNNING
    return WAITING if checkpoint.pending_request_info_events else COMPLETED


def is_dict_of_dicts(value: object) -> bool:
    """Return whether a value is the state of executors, as the framework has it."""
    return type(value) is dict and all(
        type(name) is str and type(state) is dict and all(type(key) is str for key in state)
        for name, state in value.items()
    )


def encode_at(value: Any, path: str) -> EncodedValue:
    """Encode a value; an error has the path below ``path``."""
    try:
        return encode_value(value)
    except UnsupportedValueError as error:
        found = path + error.path.removeprefix("$")
        text = f"checkpoint cannot be stored, at {found}: {error}"
        raise UnsupportedValueError(text, found) from error


# ------------------------------------------------------------------------------------------ reading


def read_checkpoint(codec: Codec, state: Snapshot) -> WorkflowCheckpoint:
    """Return the checkpoint in the state of a session.

    Raises:
        IntegrityError: The state has no checkpoint, or a damaged one.
        UnsupportedValueError: It has an object of a class that is not known.

    """
    header = get_header(state)
    if header is None:
        raise IntegrityError("the snapshot of a checkpoint has no checkpoint in it")
    try:
        return build_checkpoint(codec, state, header)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        if isinstance(error, HoldfastError):
            raise
        raise IntegrityError(
            f"checkpoint {header['id']} is damaged: {error!r}; restore the session to an earlier "
            "snapshot, or from a backup"
        ) from error


def build_checkpoint(
    codec: Codec, state: Snapshot, header: Mapping[str, Any]
) -> WorkflowCheckpoint:
    """Return the checkpoint that a header describes, see `read_checkpoint`."""

    def read(space: str, key: str, path: str) -> Any:
        if not state.contains(space, key):
            raise KeyError(f"no entry {short_repr(key)} for {path}")
        return codec.decode(state.get(space, key), path, state.values)

    values: dict[str, Any] = {}
    for key in header["state"]:
        path = f"$.state.{key}"
        if key == EXECUTOR_STATE and "executors" in header:
            values[key] = {
                each: {
                    name: read(executor_space(each), name, f"{path}.{each}.{name}")
                    for name in names
                }
                for each, names in header["executors"].items()
            }
        elif key.startswith("_"):
            values[key] = read(VALUES, key, path)
        elif state.contains(STATE, key):  # the user may have deleted it
            values[key] = read(STATE, key, path)
    messages = {
        source: read(WORKFLOW_MESSAGES, source, f"$.messages.{source}")
        for source in header["messages"]
    }
    requests = {
        each: read(REQUESTS, each, f"$.pending_request_info_events.{each}")
        for each in header["requests"]
    }
    for each in messages.values():
        if type(each) is not list or not all(isinstance(one, WorkflowMessage) for one in each):
            raise TypeError(f"{short_repr(each)} are not messages of a workflow")
    for each in requests.values():
        if not isinstance(each, WorkflowEvent):
            raise TypeError(f"{short_repr(each)} is not an event")
    fields = {
        name: codec.decode(value, f"$.{name}", state.values)
        for name, value in header["fields"].items()
    }
    return WorkflowCheckpoint(
        checkpoint_id=header["id"],
        workflow_name=header["workflow"],
        timestamp=header["timestamp"],
        messages=messages,
        state=values,
        pending_request_info_events=requests,
        **fields,
    )
