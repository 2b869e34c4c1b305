"""The readers of formats, and which of them reads a source.

A reader is a name and two functions, ``recognises`` and ``read``. Besides the built-in ones, a
program registers readers with `register_reader`, and an installed package offers them by entry
points of the group ``holdfast.readers``: the name of the entry is the format, and its value is a
module, or any object, with both functions.
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
    "claude-code": "holdfast.importers.claude_code",
    "codex": "holdfast.importers.codex",
    "letta": "holdfast.importers.letta",
    "grampus": "holdfast.importers.grampus",
    "chat": "holdfast.importers.chat",
}
"""The modules of built-in readers by format, in the order in which they are tried.

The least specific is last: a list of messages is also part of other formats.
"""
WITHOUT_THREADS = frozenset(
    (HOLDFAST, "strands", "claude-code", "codex", "letta", "grampus", "chat")
)
SEVERAL_AGENTS = frozenset(("claude-code",))
"""Formats in which one source can have sessions of several agents, whose ids the reader gives."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Recognises and reads one format."""

    name: str
    recognises: RecognisesFunction
    """Returns whether a source has this format. Called for every source, so it must be fast."""
    read: ReadFunction
    """Returns the document in a source, or an iterable of documents."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The documents read from a source."""

    format: str
    documents: list[Document]
    is_list: bool
    """Whether the source could hold any number of documents."""


REGISTERED: dict[str, Reader] = {}


def register_reader(name: str, recognises: RecognisesFunction, read: ReadFunction) -> None:
    """Register a reader for another format in this process.

    The reader registered last is asked first, and registered ones before built-in ones, except that
    Holdfast's own documents are always read as such.

    Raises:
        TypeError: The name is not a str, or a function is not callable.
        ValueError: The name is taken.

    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"format name must be a non-empty str, got {short_repr(name)}")
    if name in BUILT_IN or name in REGISTERED:
        raise ValueError(f"a reader named {name!r} exists already; choose another name")
    for function in (recognises, read):
        if not callable(function):
            raise TypeError(f"reader function must be callable, got {short_repr(function)}")
    REGISTERED[name] = Reader(name, recognises, read)


def unregister_reader(name: str) -> None:
    """Remove a registered reader, if there is one of that name."""
    REGISTERED.pop(name, None)


def read(
    name: str,
    *,
    format: str | None = None,  # noqa: A002 - the name of the CLI option
    thread: str | None = None,
    agent_id: str | None = None,
    session_id: str | None = None,
    max_bytes: int | None = None,
    limits: DocumentLimits = DEFAULT_LIMITS,
) -> list[Document]:
    """Return the documents in a file or database, ready for `SnapshotManager.import_session`.

    ``name`` is a path or a database URL. ``format`` names a reader; without it the format is
    detected. ``thread`` selects one thread of a database; without it all are read. ``agent_id`` and
    ``session_id`` replace the ids in the source. ``limits`` bounds what is read from a file;
    ``max_bytes`` overrides its maximum size.

    Raises:
        InvalidDocumentError: The source cannot be read, or has an unknown format.
        MissingExtraError: The format needs an extra that is not installed.
        NotFoundError: The database has no such thread.
        StateStoreError: The database server cannot be reached.

    """
    if max_bytes is not None:
        limits = replace(limits, max_bytes=max_bytes)
    with open_source(
        name, thread=thread, agent_id=agent_id, session_id=session_id, limits=limits
    ) as source:
        return read_source(source, format).documents


def read_source(source: Source, format_: str | None = None) -> ReadResult:
    """Return the documents in a source, with the named reader or the one that recognises it.

    Raises:
        InvalidDocumentError: The source cannot be read, or has an unknown format.

    """
    reader = find_reader(format_) if format_ is not None else detect_reader(source)
    if source.thread is not None and reader.name in WITHOUT_THREADS:
        raise InvalidDocumentError(f"{source.name} ({reader.name}) has no threads; omit --thread")
    documents, is_list = call_reader(reader, lambda: to_list(reader.read(source)), source)
    for document in documents:
        if not isinstance(document, Document):
            raise InvalidDocumentError(
                f"reader {reader.name!r} must return a Document, got {short_repr(document)}"
            )
    return ReadResult(reader.name, documents, is_list)


def to_list(result: Any) -> tuple[list[Any], bool]:
    """Return the result of a reader as a list, and whether it was one."""
    if isinstance(result, Document) or not isinstance(result, Iterable):
        return [result], False
    return list(result), True


def detect_reader(source: Source) -> Reader:
    """Return the first reader that recognises a source."""
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
    """Return the error for a source that no reader recognises."""
    hint = f"choose the format with --as, one of: {', '.join(names)}"
    for name, problem in problems.items():
        hint += f"; cannot load the reader {name!r}: {problem}"
    try:
        found = short_repr(source.json)
    except InvalidDocumentError as error:
        problem = str(error)
        if source.file is None:
            problem = f"{source.name} is not a file or a supported database URL"
    else:
        problem = f"{source.name} is JSON of an unknown format: {found}"
    return InvalidDocumentError(f"{problem}; {hint}")


def find_reader(name: str) -> Reader:
    """Return the reader of a format, by name.

    Raises:
        InvalidDocumentError: The reader does not exist, or cannot be loaded.

    """
    if name in REGISTERED:
        return REGISTERED[name]
    if name in BUILT_IN:
        return load_built_in(name)
    others, problems = load_entry_points()
    for reader in others:
        if reader.name == name:
            return reader
    if name in problems:
        raise InvalidDocumentError(f"cannot load the reader {name!r}: {problems[name]}")
    known = [*BUILT_IN, *REGISTERED, *(each.name for each in others)]
    raise InvalidDocumentError(
        f"unknown format {short_repr(name)}: must be one of {', '.join(known)}"
    )


def load_built_in(name: str) -> Reader:
    """Import the module of a built-in reader and return the reader."""
    module = importlib.import_module(BUILT_IN[name])
    return Reader(name, module.recognises, module.read)


def load_entry_points() -> tuple[list[Reader], dict[str, str]]:
    """Return the readers of installed packages, and the errors of those that fail to load."""
    # Takes as long to import as everything else here, and most imports do not need it.
    from importlib.metadata import entry_points  # noqa: PLC0415

    found: dict[str, Reader] = {}
    problems: dict[str, str] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name in BUILT_IN or entry.name in REGISTERED or entry.name in found:
            continue
        try:
            loaded = entry.load()
            found[entry.name] = Reader(entry.name, loaded.recognises, loaded.read)
        except Exception as error:  # noqa: BLE001 - importing a package may raise anything
            problems[entry.name] = f"{type(error).__name__}: {error}"
    return list(found.values()), problems


def call_reader(reader: Reader, function: Callable[[], T], source: Source) -> T:
    """Call a function of a reader; its unexpected errors become one that names the reader."""
    try:
        return function()
    except HoldfastError:
        raise
    except RecursionError:
        raise InvalidDocumentError(f"{source.name} is nested too deeply") from None
    except Exception as error:
        raise InvalidDocumentError(
            f"reader {reader.name!r} cannot read {source.name}: {type(error).__name__}: "
            f"{error!s:.400}"
        ) from error
