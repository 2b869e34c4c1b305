"""Encode what a workflow puts into a checkpoint as plain data, and decode it.

Plain data, and all types that Holdfast stores, stay as they are. An object of a known class (see
`object_types`) becomes a dict that names the class. Long lists, such as conversations, get one
entry per item, so that a list that grows writes only what was added. Everything else is refused,
unless the user keeps it as bytes that only the framework's restricted decoder loads.

Kinds of a dict with the key ``agent_framework``, besides the names of classes:

list      a list with entries of its own, in the namespace ``space``
dict      a dict of the user that has this key
set       a set or frozenset with objects in it
type      a class or generic alias, by name; decoded only if its module is imported already
pickled   an object that the framework pickled
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from types import GenericAlias, ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from agent_framework import Message

# They have no public name.
from agent_framework._workflows._checkpoint_encoding import (
    decode_checkpoint_value,
    encode_checkpoint_value,
)

from holdfast.adapters.agent_framework.layout import quote_name
from holdfast.adapters.agent_framework.object_types import (
    ENUM,
    FIELDS,
    FRAMEWORK_TYPES,
    MESSAGE,
    MODEL,
    ObjectType,
    describe_type,
    dump_model,
    validate_message,
)
from holdfast.errors import IntegrityError, UnsupportedValueError, short_repr
from holdfast.values.extensions import MAX_DEPTH
from holdfast.values.lowering import NATIVE, registered_types

Opaque = Literal["refuse", "keep"]

KIND = "agent_framework"
LIST = "list"
DICT = "dict"
SET = "set"
FROZENSET = "frozenset"
TYPE = "type"
PICKLED = "pickled"
ITEMS = "agent_framework/items/"
MIN_LIST_ITEMS = 8
"""Lists of this length get one entry per item, and those that hold messages."""
CONTAINERS = frozenset((list, tuple, dict, set, frozenset))
PICKLE_FIELDS = ("__pickled__", "__type__")


class Codec:
    """Encodes and decodes the values of checkpoints."""

    def __init__(
        self,
        types: Iterable[type[Any]] = (),
        opaque: Opaque = "refuse",
        allowed_checkpoint_types: Iterable[str] = (),
    ) -> None:
        if opaque not in ("refuse", "keep"):
            raise ValueError(f'opaque must be "refuse" or "keep", got {short_repr(opaque)}')
        known = (*FRAMEWORK_TYPES, *map(describe_type, types))
        self.by_class = {each.cls: each for each in known}
        self.by_name = {each.name: each for each in known}
        self.opaque = opaque
        self.allowed_checkpoint_types = frozenset(allowed_checkpoint_types)

    def encode(self, value: Any, path: str, space: str | None = None) -> Encoded:
        """Return a value as data, and the lists in it that get entries of their own.

        ``path`` is that of the value in errors, ``space`` the namespace for lists below `ITEMS`.

        Raises:
            UnsupportedValueError: A part of the value cannot be stored; the error has its path.

        """
        encoded = Encoded(self)
        encoded.tree = encoded.encode(value, path, space, MAX_DEPTH)
        return encoded

    def decode(self, tree: Any, path: str, read_list: Callable[[str], list[Any]]) -> Any:
        """Return the value of a tree that was read from a store.

        ``read_list`` returns the entries of a list by their namespace.

        Raises:
            UnsupportedValueError: An object has a class that is not known, or was pickled.
            IntegrityError: The tree is damaged.
            WorkflowCheckpointException: The framework refuses to load pickled bytes.

        """
        return Decoder(self, read_list).decode(tree, path)


class Encoded:
    """A value as data."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.tree: Any = None
        self.lists: dict[str, list[Any]] = {}
        """Items of lists by their namespaces."""

    def encode(self, value: Any, path: str, space: str | None, room: int) -> Any:
        """Return a value as data."""
        cls = type(value)
        if cls in NATIVE and cls not in CONTAINERS:
            return value
        if room <= 0:
            raise UnsupportedValueError(f"value is too deep or contains itself, at {path}", path)
        if cls in CONTAINERS:
            return self._encode_container(value, path, space, room - 1)
        if (known := self._codec.by_class.get(cls)) is not None:
            try:
                return self._encode_object(known, value, path, space, room - 1)
            except UnsupportedValueError:
                if known.kind != MESSAGE or self._codec.opaque == "refuse":
                    raise
                return self._pickle(value, path)
        if cls in registered_types:
            return value
        if (named := name_type(value, self._codec.by_class)) is not None:
            return {KIND: TYPE, **named}
        return self._pickle(value, path)

    def _encode_container(self, value: Any, path: str, space: str | None, room: int) -> Any:
        cls = type(value)
        if cls is dict:
            tree = {
                key: self.encode(each, f"{path}.{key}", join_space(space, key), room)
                for key, each in value.items()
            }
            return (
                {KIND: DICT, "items": [list(item) for item in tree.items()]}
                if KIND in tree
                else tree
            )
        own = space if cls is list and is_stored_by_item(value) else None
        items = [
            self.encode(each, f"{path}[{number}]", join_space(own, str(number)), room)
            for number, each in enumerate(value)
        ]
        if own is not None:
            self.lists[own] = items
            return {KIND: LIST, "space": own}
        if cls is list or cls is tuple:
            return cls(items)
        if all(each is item for each, item in zip(value, items, strict=True)):
            return value
        return {KIND: SET if cls is set else FROZENSET, "items": items}

    def _encode_object(
        self, known: ObjectType, value: Any, path: str, space: str | None, room: int
    ) -> Any:
        if known.kind == ENUM:
            return {KIND: known.name, "value": self.encode(value.value, path, None, room)}
        if known.kind == MESSAGE:
            validate_message(value, path)
            return {KIND: known.name, "value": value.to_dict()}
        if known.kind == MODEL:
            tree = dump_model(value, path)
            return {KIND: known.name, "value": self.encode(tree, path, space, room)}
        fields = {
            name: self.encode(each, f"{path}.{name}", join_space(space, name), room)
            for name, each in known.list_fields(value).items()
        }
        return {KIND: known.name, "fields": fields}

    def _pickle(self, value: Any, path: str) -> Any:
        cls = type(value)
        if self._codec.opaque == "refuse":
            raise UnsupportedValueError(
                f"value of type {cls.__module__}.{cls.__qualname__} is not data, at {path}; "
                "pass dataclasses, enums and pydantic models as types=[…], or keep objects that "
                'the framework pickles with opaque="keep"',
                path,
            )
        try:
            envelope = encode_checkpoint_value(value)
            data = b64decode(envelope[PICKLE_FIELDS[0]])
        except Exception as error:
            raise UnsupportedValueError(
                f"value of type {cls.__module__}.{cls.__qualname__} is not pickled by the "
                f"framework, at {path}: {error}; pass its class as types=[…]",
                path,
            ) from error
        return {KIND: PICKLED, "type": envelope[PICKLE_FIELDS[1]], "data": data}


class Decoder:
    """Builds values from data that was read from a store, which is not trusted."""

    def __init__(self, codec: Codec, read_list: Callable[[str], list[Any]]) -> None:
        self._codec = codec
        self._read_list = read_list
        self._spaces: set[str] = set()

    def decode(self, tree: Any, path: str) -> Any:
        """Return the value of a tree."""
        cls = type(tree)
        if cls is list or cls is tuple:
            return cls(self.decode(each, f"{path}[{at}]") for at, each in enumerate(tree))
        if cls is not dict:
            return tree
        if KIND not in tree:
            return {key: self.decode(each, f"{path}.{key}") for key, each in tree.items()}
        try:
            return self._decode_kind(tree[KIND], tree, path)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            if isinstance(error, UnsupportedValueError):
                raise
            raise IntegrityError(
                f"stored value {short_repr(tree)} is damaged, at {path}: {error!r}; restore the "
                "session to an earlier snapshot"
            ) from error

    def _decode_kind(self, kind: Any, tree: dict[str, Any], path: str) -> Any:
        if kind == LIST:
            return self._decode_list(tree["space"], path)
        if kind == DICT:
            return {key: self.decode(each, f"{path}.{key}") for key, each in tree["items"]}
        if kind in (SET, FROZENSET):
            items = [self.decode(each, f"{path}[{at}]") for at, each in enumerate(tree["items"])]
            return set(items) if kind == SET else frozenset(items)
        if kind == TYPE:
            return self._decode_type(tree, path)
        if kind == PICKLED:
            return self._load_pickled(tree, path)
        known = self._codec.by_name.get(kind) if isinstance(kind, str) else None
        if known is None:
            raise UnsupportedValueError(
                f"stored object has the unknown type {short_repr(kind)}, at {path}; "
                "pass its class as types=[…]",
                path,
            )
        if known.kind == FIELDS:
            fields = tree["fields"].items()
            return known.build({name: self.decode(each, f"{path}.{name}") for name, each in fields})
        if known.kind == MESSAGE:
            return known.cls.from_dict(tree["value"])
        value = self.decode(tree["value"], path)
        return known.cls(value) if known.kind == ENUM else known.cls.model_validate(value)

    def _decode_list(self, space: Any, path: str) -> list[Any]:
        if not isinstance(space, str) or space in self._spaces:
            raise ValueError(f"invalid list {short_repr(space)}")
        self._spaces.add(space)
        items = self._read_list(ITEMS + space)
        return [self.decode(each, f"{path}[{at}]") for at, each in enumerate(items)]

    def _decode_type(self, tree: dict[str, Any], path: str) -> Any:
        if "name" in tree:
            found = find_type(tree["name"], self._codec.by_class)
            if found is None:
                raise UnsupportedValueError(
                    f"stored type {short_repr(tree['name'])} is not defined here, at {path}; "
                    "import its module before you load the checkpoint",
                    path,
                )
            return found
        args = [self._decode_type(each, path) for each in tree["args"]]
        if "origin" in tree:
            return GenericAlias(self._decode_type(tree["origin"], path), tuple(args))
        union = args[0]
        for each in args[1:]:
            union = union | each
        return union

    def _load_pickled(self, tree: dict[str, Any], path: str) -> Any:
        codec = self._codec
        if codec.opaque == "refuse":
            raise UnsupportedValueError(
                f"stored object of type {short_repr(tree['type'])} was pickled, at {path}; "
                'load it with opaque="keep" and its name in allowed_checkpoint_types=[…]',
                path,
            )
        envelope = (b64encode(tree["data"]).decode(), tree["type"])
        return decode_checkpoint_value(
            dict(zip(PICKLE_FIELDS, envelope, strict=True)),
            allowed_types=codec.allowed_checkpoint_types,
        )


def is_stored_by_item(value: list[Any]) -> bool:
    """Return whether the items of a list get entries of their own."""
    return len(value) >= MIN_LIST_ITEMS or any(type(each) is Message for each in value)


def join_space(space: str | None, name: object) -> str | None:
    """Return the namespace of the lists in a member of a value, or None if it has none."""
    if space is None or not isinstance(name, str):
        return None
    return f"{space}/{quote_name(name)}"


def name_type(value: object, known: Iterable[type[Any]]) -> dict[str, Any] | None:
    """Return a class, generic alias or union by its name; None if it cannot be found by name."""
    is_union = get_origin(value) in (Union, UnionType)
    if is_union or isinstance(value, GenericAlias):
        args = [name_type(each, known) for each in get_args(value)]
        if None in args:
            return None
        if is_union:
            return {"args": args}
        return {"origin": name_type(get_origin(value), known), "args": args}
    if not isinstance(value, type):
        return None
    name = f"{value.__module__}:{value.__qualname__}"
    return {"name": name} if find_type(name, known) is value else None


def find_type(name: object, known: Iterable[type[Any]]) -> type[Any] | None:
    """Return a class by its name, among known ones and in modules that are imported already."""
    if not isinstance(name, str):
        return None
    for cls in (*known, type(None)):
        if f"{cls.__module__}:{cls.__qualname__}" == name:
            return cls
    module_name, _, type_name = name.partition(":")
    module = sys.modules.get(module_name)
    if not isinstance(module, ModuleType):
        return None
    # Not getattr or vars: a lazy module is executed when an attribute is read.
    found = object.__getattribute__(module, "__dict__").get(type_name)
    return found if isinstance(found, type) else None
