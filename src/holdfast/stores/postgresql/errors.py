"""What PostgreSQL's errors mean: by SQLSTATE, or by text while a connection is being made."""

from __future__ import annotations

import re

import psycopg

from holdfast.errors import StateStoreError

# libpq reports a failed connection as text only, without a SQLSTATE.
CONNECT_HINTS = {
    r"password|authentication|pg_hba\.conf|role .* does not exist": "check the user name and "
    "password of the URL, and the server's pg_hba.conf",
    r"database .* does not exist": "create the database, or name another in the path of the URL",
    r"permission denied": "grant the role CONNECT on the database",
    r"invalid (\S+ )?value|invalid port": "check the options of the URL; those that are not the "
    "store's own are libpq's",
    # Not the answer of a server that is starting up or shutting down.
    r"SSL(?! exchange)|certificate": "check the options sslmode and sslrootcert of the URL",
}

# SQLSTATEs or their classes. An error that rolled the transaction back for certain is not UNKNOWN.
TRANSIENT = ("08", "25006", "25P03", "40", "53200", "53300", "53400", "55P03", "57")
UNKNOWN = ("08", "40003", "57P")
HINTS: dict[tuple[str, ...], str] = {
    ("22021", "22P05"): "use a database with the encoding UTF8, because keys are any text",
    ("25006",): "it does not accept writes, perhaps as a standby; use the primary",
    ("3F000",): "create the schema that the option table of the URL names",
    ("40",): "too many writers change the same keys at the same time",
    ("42501",): "grant the role SELECT, INSERT, UPDATE and DELETE on TABLE and TABLE_done",
    (
        "42703",
        "42809",
        "42P10",
    ): "TABLE or TABLE_done is not a table of Holdfast; set the option table of the URL",
    ("42883",): "a server without advisory locks or NOTIFY needs the option notify=off of the URL",
    ("54000",): "if the queue of notifications is full, end the session that does not read it, or "
    "set the option notify=off of the URL",
    ("42P01",): "TABLE or TABLE_done was removed while in use; open the store again to create it",
    ("53100",): "the server's disk is full; free some space there",
    ("53300",): "use fewer connections (option pool of the URL), or a connection pooler",
    ("57014",): "check the server's statement_timeout",
}


def explain_error(error: Exception, table: str, display_url: str) -> StateStoreError:
    """Return what an error of psycopg during an operation means."""
    code = getattr(error, "sqlstate", None) or ""
    if not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StateStoreError(
            f"lost the connection to {display_url}: {format_error(error)}",
            transient=True,
            unknown=True,
        )
    hints = (hint for codes, hint in HINTS.items() if code.startswith(codes))
    hint = next(hints, "").replace("TABLE", table)
    return StateStoreError(
        f"{display_url}: {format_error(error)}" + (f"; {hint}" if hint else ""),
        transient=code.startswith(TRANSIENT),
        unknown=code.startswith(UNKNOWN),
    )


def explain_connect_error(text: str, display_url: str) -> StateStoreError:
    """Return what it means that a connection cannot be made. Nothing was written then."""
    text = " ".join(text.split())
    for pattern, hint in CONNECT_HINTS.items():
        if re.search(pattern, text):
            return StateStoreError(f"cannot use {display_url}: {text}; {hint}")
    return StateStoreError(
        f"{display_url} cannot be reached: {text}; check that the server is running and listens "
        "there",
        transient=True,
    )


def format_error(error: Exception) -> str:
    """Return the message of the server or the driver in one line."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((primary or str(error)).split()).rstrip(".")
