"""Which formats can be read, and which of them a source is.

A reader is a name and two functions. Holdfast's own come with it; a program registers others with
`register_reader`, and an installed package offers them by entry points of the group
``holdfast.readers``, so that the command line finds them too: the entry's name is the format, and
what it names is a module, or anything else, that has ``recognises`` and ``read``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from holdfast.documents.document import Document
from holdfast.documents.limits import DEFAULT_LIMITS, DocumentLimits
from holdfast.errors import HoldfastError, InvalidDocumentError, short_repr
from holdfast.importers.source import Source, open_source

T = TypeVar("T")

RecognisesFunction: TypeAlias = Callable[[Source], bool]
ReadFunction: TypeAlias = Callable[[Source], Document | Iterable[Document]]

ENTRY_POINT_GROUP = "holdfast.readers"
HOLDFAST = "holdfast"
BUILT_IN = {
    HOLDFAST: "holdfast.importers.holdfast_document",
    "strands": "holdfast.importers.strands",
    "langgraph-sqlite": "holdfast.importers.langgraph_sqlite",
    "langgraph-postgres": "holdfast.importers.langgraph_postgres",
    "chat": "holdfast.importers.chat",
}
"""Formats in the order in which they are tried, and where their readers are."""
ONE_CONVERSATION = frozenset((HOLDFAST, "strands", "chat"))


@dataclass(frozen=True, slots=True)
class Reader:
    """How one format is recognised and read."""

    name: str
    recognises: RecognisesFunction
    """Whether a source is of this format. It is asked of every source, and must be quick."""
    read: ReadFunction
    """The documents in a source: one, or any number of them."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a source had in it."""

    format: str
    documents: list[Document]
    is_list: bool
    """Whether it could have been another number of documents than one."""


REGISTERED: dict[str, Reader] = {}


def register_reader(name: str, recognises: RecognisesFunction, read: ReadFunction) -> None:
    """Let documents of another format be imported in this process.

    What is registered last is asked first, and all before the readers that come with Holdfast,
    except that a document of Holdfast's own always is one.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of a format is a text, not {short_repr(name)}")
    if name in BUILT_IN or name in REGISTERED:
        raise ValueError(f"there is a reader of the name {name} already: choose another name")
    for function in (recognises, read):
        if not callable(function):
            raise TypeError(f"a reader has two functions, not {short_repr(function)}")
    REGISTERED[name] = Reader(name, recognises, read)


def unregister_reader(name: str) -> None:
    """Take back a reader that was registered; nothing where there is none."""
    REGISTERED.pop(name, None)


def read(
    name: str,
    *,
    format: str | None = None,  # noqa: A002 - as the command line has it
    thread: str | None = None,
    agent_id: str | None = None,
    session_id: str | None = None,
    max_bytes: int | None = None,
    limits: DocumentLimits = DEFAULT_LIMITS,
) -> list[Document]:
    """The documents in a file or a database, ready to be imported.

    ``format`` is the name of a reader, where it should not be found out. ``thread`` is one of the
    conversations of a database, which gives all of them otherwise. ``agent_id`` and ``session_id``
    are names to give it instead of what the source says. ``limits`` bounds what is read of a file;
    ``max_bytes`` is short for limits with this one.
    """
    if max_bytes is not None:
        limits = replace(limits, max_bytes=max_bytes)
    with open_source(
        name, thread=thread, agent_id=agent_id, session_id=session_id, limits=limits
    ) as source:
        return read_source(source, format).documents


def read_source(source: Source, format_: str | None = None) -> ReadResult:
    """What is in a source, which is of the format that was named or else recognised."""
    reader = find_reader(format_) if format_ is not None else detect_reader(source)
    if source.thread is not None and reader.name in ONE_CONVERSATION:
        raise InvalidDocumentError(
            f"{source.name} ({reader.name}) has no threads: leave --thread out"
        )
    found = call_reader(reader, lambda: to_list(reader.read(source)), source)
    documents, is_list = found
    for document in documents:
        if not isinstance(document, Document):
            raise InvalidDocumentError(
                f"the reader {reader.name} returned no Document, but {short_repr(document)}"
            )
    return ReadResult(reader.name, documents, is_list)


def to_list(found: Any) -> tuple[list[Any], bool]:
    """What a reader gave as a list, and whether it was one."""
    if isinstance(found, Document) or not isinstance(found, Iterable):
        return [found], False
    return list(found), True


def detect_reader(source: Source) -> Reader:
    """The first reader that takes a source for its own."""
    own = load_built_in(HOLDFAST)
    if own.recognises(source):
        return own
    others, problems = load_entry_points()
    candidates = [*reversed(REGISTERED.values()), *others]
    candidates += [load_built_in(name) for name in BUILT_IN if name != HOLDFAST]
    for reader in candidates:
        if call_reader(reader, lambda each=reader: each.recognises(source), source):  # type: ignore[misc]
            return reader
    raise unknown_format_error(source, [HOLDFAST, *(each.name for each in candidates)], problems)


def unknown_format_error(
    source: Source, names: list[str], problems: dict[str, str]
) -> InvalidDocumentError:
    """The error for a source that nobody knows, with what is known."""
    known = f"Known formats are {', '.join(names)}; --as says which it is"
    for name, problem in problems.items():
        known += f". The reader {name} cannot be loaded: {problem}"
    if source.is_json:
        told = (
            f"{source.name} is JSON, but no document of a session: neither a JSON object that "
            f"holdfast state export wrote nor anything else that is known: {short_repr(source.json)}"
        )
    elif source.is_text:
        try:
            _ = source.json
        except InvalidDocumentError as error:
            told = str(error)
    elif source.file is None:
        told = f"{source.name} is no file, and no database that can be read"
    else:
        try:
            _ = source.text
        except InvalidDocumentError as error:
            told = str(error)
    return InvalidDocumentError(f"{told}. {known}")


def find_reader(name: str) -> Reader:
    """The reader of a format, by its name."""
    if name in REGISTERED:
        return REGISTERED[name]
    if name in BUILT_IN:
        return load_built_in(name)
    others, problems = load_entry_points()
    for reader in others:
        if reader.name == name:
            return reader
    if name in problems:
        raise InvalidDocumentError(f"the reader {name} cannot be loaded: {problems[name]}")
    known = [*BUILT_IN, *REGISTERED, *(each.name for each in others)]
    raise InvalidDocumentError(
        f"there is no format {short_repr(name)}: known are {', '.join(known)}"
    )


def load_built_in(name: str) -> Reader:
    """A reader that comes with Holdfast; its module is imported when it is needed."""
    module = importlib.import_module(BUILT_IN[name])
    return Reader(name, module.recognises, module.read)


def load_entry_points() -> tuple[list[Reader], dict[str, str]]:
    """The readers of installed packages, and what is wrong with those that cannot be loaded."""
    # It takes as long to import as all the rest, and most imports do not come this far.
    from importlib.metadata import entry_points  # noqa: PLC0415

    found: dict[str, Reader] = {}
    problems: dict[str, str] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name in BUILT_IN or entry.name in REGISTERED or entry.name in found:
            continue  # what is nearer to the user goes first
        try:
            offer = entry.load()
            found[entry.name] = Reader(entry.name, offer.recognises, offer.read)
        except Exception as error:  # noqa: BLE001 - whatever a package does when it is imported
            problems[entry.name] = f"{type(error).__name__}: {error}"
    return list(found.values()), problems


def call_reader(reader: Reader, function: Callable[[], T], source: Source) -> T:
    """What a reader says; an error of its own becomes one that names it."""
    try:
        return function()
    except HoldfastError:
        raise
    except RecursionError:
        raise InvalidDocumentError(f"{source.name} is nested too deep to be read") from None
    except Exception as error:
        raise InvalidDocumentError(
            f"the reader {reader.name} cannot read {source.name}: {type(error).__name__}: "
            f"{error!s:.400}"
        ) from error
