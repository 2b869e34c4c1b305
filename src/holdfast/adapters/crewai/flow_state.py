"""The state of a flow as entries of a session: what a save changes, and how it is read.

messages                the field ``messages`` of the state, if it is a conversation
state                   the other fields, by name
crewai                  flow: the names of the fields, and the method that was saved last;
                        pending: what a person is asked, while the flow waits for feedback
crewai/items/<field>    a field that is a long list, one entry per item
crewai/pending          fields as they were when the flow paused, if they have changed since
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel

from holdfast.errors import IntegrityError, UnsupportedValueError, short_repr
from holdfast.snapshots.session_state import MESSAGES, STATE, message_key
from holdfast.state.diff import Changes, Pair
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store, get_encoded
from holdfast.values.extensions import MAX_DEPTH
from holdfast.values.json_encoding import EncodedValue, encode_value

METHOD_EVENT = "crewai.method"
PAUSED_EVENT = "crewai.paused"
RESUMED_EVENT = "crewai.resumed"

ROOT = "crewai"
FLOW = "flow"
PENDING = "pending"
PENDING_FIELDS = "crewai/pending"
ITEMS = "crewai/items/"

MIN_LIST_ITEMS = 8
"""Lists of this length get one entry per item."""
HEADER_FIELDS: dict[str, type] = {"fields": list, "lists": list, "method": str}
PENDING_HEADER_FIELDS: dict[str, type] = {"fields": list, "context": dict}


# ---------------------------------------------------------------------------------------- writing


def to_fields(state_data: object) -> dict[str, Any]:
    """Return the state of a flow as data: a pydantic model as JSON, a dict as it is.

    Raises:
        UnsupportedValueError: A key is not a str.
        ValueError: It is neither a model nor a dict, as with CrewAI's own persistence.

    """
    if isinstance(state_data, BaseModel):
        return dump_model(state_data)
    if not isinstance(state_data, dict):
        raise ValueError(  # noqa: TRY004 - the error of CrewAI's own persistence
            f"state_data must be a pydantic BaseModel or a dict, got {short_repr(state_data)}"
        )
    items = list(state_data.items())  # at once: a method in another thread may add a field
    for name, _ in items:
        if not isinstance(name, str):
            raise UnsupportedValueError(
                f"names of fields must be str, got {short_repr(name)}, at $.state", "$.state"
            )
    return {str.__str__(name): to_data(value, f"$.state.{name}") for name, value in items}


def to_data(value: Any, path: str, room: int = MAX_DEPTH) -> Any:
    """Return a value with the pydantic models in it as JSON. ``path`` is that of the field.

    Raises:
        UnsupportedValueError: It is too deep.

    """
    if isinstance(value, BaseModel):
        return dump_model(value)
    cls = type(value)
    if cls is not dict and cls is not list and cls is not tuple:
        return value
    if room <= 0:
        raise UnsupportedValueError(f"value is too deep or contains itself, at {path}", path)
    if cls is dict:
        return {key: to_data(each, path, room - 1) for key, each in list(value.items())}
    return cls(to_data(each, path, room - 1) for each in list(value))


def dump_model(model: BaseModel) -> dict[str, Any]:
    """Return the fields of a model as JSON, or as Python values if one has no JSON."""
    try:
        return model.model_dump(mode="json")
    except Exception:  # noqa: BLE001 - the encoding reports the value with its path
        return model.model_dump(mode="python")


class FieldEntries:
    """The entries of a flow's state, which share nothing with its objects.

    Raises:
        UnsupportedValueError: A value cannot be stored; the error has its path.

    """

    def __init__(self, flow_uuid: str, fields: Mapping[str, Any], method: str) -> None:
        self.fields = fields
        self.entries: dict[Pair, EncodedValue] = {}
        lists = [name for name, value in fields.items() if is_stored_by_item(name, value)]
        for name, value in fields.items():
            path = f"$.state.{name}"
            if name not in lists:
                self.entries[STATE, name] = encode_at(value, path)
                continue
            for number, item in enumerate(value):
                entry = encode_at(item, f"{path}[{number}]")
                self.entries[items_space(name), message_key(number)] = entry
        header = {"id": flow_uuid, "fields": list(fields), "lists": lists, "method": method}
        self.entries[ROOT, FLOW] = encode_at(header, "$")

    def find_changes(self, store: Store) -> Changes:
        """Return the changes from the state in a store to this one.

        While the flow waits for feedback, the fields that change are kept as they were.
        """
        state = store.snapshot()
        changed: list[tuple[str, str, Any]] = [
            (space, key, value)
            for (space, key), value in self.entries.items()
            if get_encoded(store, space, key) != value.data
        ]
        pending = get_pending(state)
        for name in () if pending is None else pending["fields"]:
            if has_field(state, name) and not state.contains(PENDING_FIELDS, name):
                old = encode_value(read_field(state, name))
                if name not in self.fields or encode_value(self.fields[name]).data != old.data:
                    changed.append((PENDING_FIELDS, name, old))
        gone = [pair for pair in list_entries(state) if pair not in self.entries]
        return {"set": changed, "delete": sorted(gone)}


def list_entries(state: Snapshot) -> list[Pair]:
    """Return the entries of a flow's state; values that the user added are not among them."""
    header = get_header(state)
    if header is None:
        return []
    found: list[Pair] = []
    for name in header["fields"]:
        if name in header["lists"]:
            space = items_space(name)
            found += [(space, key) for _, key, _ in state.items(space)]
        if state.contains(STATE, name):
            found.append((STATE, name))
    return found


def is_stored_by_item(name: str, value: object) -> bool:
    """Return whether a field gets one entry per item: conversations and long lists."""
    if type(value) is not list:
        return False
    if name == MESSAGES:
        return all(isinstance(each, dict) for each in value)
    return len(value) >= MIN_LIST_ITEMS


def items_space(name: str) -> str:
    """Return the namespace of the items of a field."""
    return MESSAGES if name == MESSAGES else ITEMS + quote(name, safe="", errors="surrogatepass")


def encode_at(value: Any, path: str) -> EncodedValue:
    """Encode a value; an error has the path below ``path``."""
    try:
        return encode_value(value)
    except UnsupportedValueError as error:
        found = path + error.path.removeprefix("$")
        raise UnsupportedValueError(
            f"the state of the flow cannot be stored, at {found}: {error}", found
        ) from error


# ---------------------------------------------------------------------------------------- reading


def get_header(state: Snapshot) -> Mapping[str, Any] | None:
    """Return the entry that describes a flow's state, if there is one.

    Raises:
        IntegrityError: The entry is damaged.

    """
    return get_entry(state, FLOW, HEADER_FIELDS)


def get_pending(state: Snapshot) -> Mapping[str, Any] | None:
    """Return the entry of a flow that waits for feedback, if it does.

    Raises:
        IntegrityError: The entry is damaged.

    """
    return get_entry(state, PENDING, PENDING_HEADER_FIELDS)


def get_entry(state: Snapshot, key: str, fields: Mapping[str, type]) -> Mapping[str, Any] | None:
    """Return an entry of a flow, validated, because a session can be edited or damaged."""
    entry: object = state.get(ROOT, key, None)
    if entry is None:
        return None
    if (
        isinstance(entry, dict)
        and all(isinstance(entry.get(name), kind) for name, kind in fields.items())
        and all(isinstance(name, str) for name in entry["fields"])
    ):
        return entry
    raise IntegrityError(
        f"entry {key!r} in namespace {ROOT!r} is damaged: {short_repr(entry)}; restore the "
        "session to an earlier snapshot, or from a backup"
    )


def read_fields(state: Snapshot) -> dict[str, Any] | None:
    """Return the state of a flow, or None if none was saved."""
    header = get_header(state)
    if header is None:
        return None
    return {name: read_field(state, name) for name in header["fields"] if has_field(state, name)}


def has_field(state: Snapshot, name: str) -> bool:
    """Return whether a field is in the state; the user may have deleted it."""
    header = get_header(state)
    return state.contains(STATE, name) or (header is not None and name in header["lists"])


def read_field(state: Snapshot, name: str) -> Any:
    """Return one field of a flow's state, as the user set it if it is a list with entries."""
    if state.contains(STATE, name):
        return state.get(STATE, name)
    return state.values(items_space(name))


def read_pending_fields(state: Snapshot, pending: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a flow when it paused."""
    return {
        name: state.get(PENDING_FIELDS, name)
        if state.contains(PENDING_FIELDS, name)
        else read_field(state, name)
        for name in pending["fields"]
        if state.contains(PENDING_FIELDS, name) or has_field(state, name)
    }


def rename_flow(state: Snapshot, found: dict[str, Any], name: str, flow_uuid: str) -> None:
    """Set the id in data of a flow, if the session is a fork that still has that of its origin.

    Otherwise CrewAI would save the fork over its origin.
    """
    header = get_header(state)
    origin = None if header is None else header.get("id")
    if origin is not None and origin != flow_uuid and found.get(name) == origin:
        found[name] = flow_uuid
