"""SQLite's errors as errors of Holdfast that say what to do."""

from __future__ import annotations

import sqlite3

from holdfast.errors import IntegrityError, StateStoreError
from holdfast.stores.local import explain_os_error
from holdfast.stores.sqlite.connections import Connections, primary_code

EXPLAINED = (sqlite3.Error, OverflowError, OSError)
HINTS = {
    sqlite3.SQLITE_BUSY: "another process holds its lock; retry, or wait longer with ?timeout=",
    sqlite3.SQLITE_FULL: "the disk is full; free some space and retry",
    sqlite3.SQLITE_READONLY: "the file or its folder is not writable; check its owner and mode, "
    "and whether its disk is mounted read-only",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that its folder exists and is yours",
    sqlite3.SQLITE_PERM: "permission denied; check its owner and mode",
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database; choose another path",
    sqlite3.SQLITE_TOOBIG: "the value exceeds SQLite's limit of 1 GB",
    sqlite3.SQLITE_IOERR: "the disk failed or is full; check the system's log",
}


def explain_error(error: Exception, connections: Connections) -> Exception:
    """Return the error to raise for one that a connection raised."""
    display_url = connections.display_url
    if isinstance(error, OverflowError):
        return StateStoreError(f"{display_url}: {error}: {HINTS[sqlite3.SQLITE_TOOBIG]}")
    if isinstance(error, OSError):
        return explain_os_error(error, display_url)
    if not isinstance(error, sqlite3.Error):
        return error
    code = primary_code(error)
    if code == sqlite3.SQLITE_CORRUPT:
        return IntegrityError(
            f"{display_url} is damaged ({error}); restore it from a backup, or save "
            "what is readable with the command .recover of the sqlite3 shell"
        )
    if code == sqlite3.SQLITE_CANTOPEN and connections.is_in_read_only_folder():
        code = sqlite3.SQLITE_READONLY
    hint = HINTS.get(code, "see SQLite's documentation of this error")
    return StateStoreError(
        f"{display_url}: {error}: {hint}",
        transient=code == sqlite3.SQLITE_BUSY,
        unknown=may_be_written(error),
    )


def may_be_written(error: Exception) -> bool:
    """Whether a transaction that failed with this error may still be in the write-ahead log."""
    return isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_IOERR
